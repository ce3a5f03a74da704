//! The operands of a template's expressions, told apart by the signs between them. Owns where a value
//! is made of others and what it then goes through; knows no tags.
//!
//! The library bounds texts where they are made and lists only partly: a sum of lists is lazy, and
//! what is nested may nest for ever. So each list, object or tuple that is written out, each right
//! side of a sum, of a comparison and of a set of tags that calls something, is looked at as it is
//! made ([`NESTED`]). What `~` joins becomes text first, bounded ([`TEXT`]); `*` repeats no lists
//! ([`SCALAR`]).

use std::ops::Range;

/// The filter that bounds how deep and large a value is.
pub(super) const NESTED: &str = "__nested";
/// The filter for what becomes part of a namespace.
pub(super) const MEMBER: &str = "__member";
/// The filter that makes text of lists and objects.
pub(super) const TEXT: &str = "__text";
/// The filter that refuses lists and objects.
pub(super) const SCALAR: &str = "__scalar";
/// The filter that keeps what it is given from being escaped.
pub(super) const VERBATIM: &str = "__verbatim";

/// Words after which an expression begins, or before which it ends.
const KEYWORDS: [&str; 8] = ["and", "or", "not", "in", "is", "if", "else", "recursive"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    None,
    /// Behind a value: of a call or an index.
    Behind,
    /// In front: of a group, or of a tuple once there is a comma.
    Group,
    /// Of a list or an object.
    Literal,
}

/// One bracket's inside, or the whole.
struct Level {
    bracket: Bracket,
    opened: usize,
    comma: bool,
    /// Some word in it is a name.
    names: bool,
    /// Where the operands of `*`, `~` and the rest begin, and what they end in.
    product: Operand,
    join: Operand,
    sum: Operand,
    comparison: Operand,
}

#[derive(Clone, Copy)]
struct Operand {
    start: usize,
    /// Lexemes before it.
    lexemes: usize,
    filter: Option<&'static str>,
}

impl Level {
    fn new(bracket: Bracket, opened: usize, start: usize, lexemes: usize) -> Self {
        let operand = Operand {
            start,
            lexemes,
            filter: None,
        };
        Self {
            bracket,
            opened,
            comma: false,
            names: false,
            product: operand,
            join: operand,
            sum: operand,
            comparison: operand,
        }
    }
}

/// What is known of a tag's expressions so far.
pub(super) struct Operands {
    levels: Vec<Level>,
    /// Texts to be inserted, and where.
    edits: Vec<(usize, Edit)>,
    /// The lexeme from which on there are only names and dots.
    path: usize,
    /// Something outside brackets may hand on one of several values.
    chooses: bool,
    lexemes: usize,
    /// End of the last lexeme.
    end: usize,
    last: Last,
    /// The first word of a statement.
    head: Option<String>,
    assignment: Option<usize>,
    filters: usize,
    literals: usize,
    makes_values: bool,
    marks_safe: bool,
    adds: bool,
    joins: bool,
    parameters: Vec<Range<usize>>,
    /// What is being read is assigned to.
    in_target: bool,
    /// The last lexeme is a number or a quoted text, or opens a list of arguments.
    constant: bool,
    opens: bool,
}

enum Edit {
    Text(String),
    /// A part of the tag once more.
    Again(Range<usize>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Value,
    /// Anything a value may follow.
    Operator,
    Dot,
    Pipe,
    /// `is`, or `is not`.
    Test,
}

impl Operands {
    /// For a tag whose expressions begin at `start`; a statement's first word is none of them.
    pub(super) fn new(start: usize, is_statement: bool) -> Self {
        Self {
            levels: vec![Level::new(Bracket::None, 0, start, 0)],
            edits: Vec::new(),
            path: 0,
            chooses: false,
            lexemes: 0,
            end: start,
            last: Last::Operator,
            head: (!is_statement).then(String::new),
            assignment: None,
            filters: 0,
            literals: 0,
            makes_values: false,
            marks_safe: false,
            adds: false,
            joins: false,
            parameters: Vec::new(),
            in_target: false,
            constant: false,
            opens: false,
        }
    }

    pub(super) fn is_outside_brackets(&self) -> bool {
        self.levels.len() == 1
    }

    /// Lists and objects that are open.
    pub(super) fn literal_depth(&self) -> usize {
        self.literals
    }

    pub(super) fn filters(&self) -> usize {
        self.filters
    }

    /// Where the first `=` stands that is outside brackets.
    pub(super) fn assignment(&self) -> Option<usize> {
        self.assignment
    }

    /// Something is called, filtered, cut or made a tuple outside brackets.
    pub(super) fn makes_values(&self) -> bool {
        self.makes_values
    }

    /// The value is none of those that names stand for, but made of some by a sign.
    pub(super) fn is_made(&self) -> bool {
        (self.adds || self.joins) && !self.chooses
    }

    /// A text is added to one that is marked as safe.
    pub(super) fn escapes(&self) -> bool {
        self.marks_safe && self.adds && !self.joins
    }

    /// Names of a macro's parameters.
    pub(super) fn parameters(&self) -> &[Range<usize>] {
        &self.parameters
    }

    /// Takes the next lexeme, which stands at `at`.
    pub(super) fn take(&mut self, at: usize, lexeme: &str) {
        let first = lexeme.as_bytes()[0];
        let after = at + lexeme.len();
        let is_word = first.is_ascii_alphanumeric() || first == b'_' || !first.is_ascii();
        let behind_value = self.last == Last::Value;
        let mut last = Last::Operator;
        match lexeme {
            "(" | "[" | "{" => self.open_bracket(at, lexeme),
            ")" | "]" | "}" => {
                self.close_bracket(after);
                last = Last::Value;
            }
            "+" | "-" if behind_value => {
                self.end_sum();
                let filter = (lexeme == "+").then_some(NESTED);
                self.adds |= lexeme == "+" && self.is_outside_brackets();
                self.begin(after, Begins::Summand, filter);
            }
            "~" => {
                self.joins |= self.is_outside_brackets();
                self.end_product();
                self.level().join.filter = Some(TEXT);
                self.end_join();
                self.begin(after, Begins::Joined, Some(TEXT));
            }
            "*" if behind_value => {
                self.level().product.filter = Some(SCALAR);
                self.end_product();
                self.begin(after, Begins::Factor, Some(SCALAR));
            }
            "/" | "//" | "%" => {
                self.end_product();
                self.begin(after, Begins::Factor, None);
            }
            "==" | "!=" | "<" | ">" | "<=" | ">=" => {
                self.end_comparison();
                self.begin(after, Begins::Compared, Some(NESTED));
            }
            "," | ":" | "=" => {
                self.end_comparison();
                if self.is_outside_brackets() {
                    self.makes_values |= lexeme == ",";
                    if lexeme == "=" {
                        self.assignment.get_or_insert(at);
                        self.in_target = false;
                    }
                }
                let level = self.level();
                level.comma |= lexeme == ",";
                let cuts = lexeme == ":" && level.bracket == Bracket::Behind;
                self.makes_values |= cuts;
                self.begin(after, Begins::Compared, None);
            }
            "|" => {
                self.filters += 1;
                self.makes_values |= self.is_outside_brackets();
                last = Last::Pipe;
            }
            "." => last = Last::Dot,
            _ if is_word => last = self.take_word(at, lexeme),
            _ if matches!(first, b'\'' | b'"') => last = Last::Value,
            _ => {}
        }
        if self.head.is_none() {
            self.in_target = matches!(lexeme, "for" | "set" | "call");
            self.head = Some(lexeme.to_owned());
        }
        self.constant = matches!(first, b'\'' | b'"') || first.is_ascii_digit();
        self.opens = matches!(lexeme, "(" | ",");
        self.lexemes += 1;
        if !(is_word && last == Last::Value || lexeme == ".") {
            self.path = self.lexemes;
        }
        self.end = after;
        self.last = last;
    }

    fn take_word(&mut self, at: usize, word: &str) -> Last {
        let after = at + word.len();
        match self.last {
            Last::Pipe => {
                self.marks_safe |= matches!(word, "safe" | "escape" | "e" | "forceescape");
                return Last::Value;
            }
            Last::Test if word == "not" => return Last::Test,
            Last::Test => return Last::Value,
            Last::Dot => return Last::Value,
            Last::Value | Last::Operator => {}
        }
        if KEYWORDS.contains(&word) || self.head.is_none() {
            self.end_comparison();
            self.chooses |= matches!(word, "if" | "or" | "and") && self.is_outside_brackets();
            // A loop's own `in` compares nothing.
            let filter = (word == "in" && !self.in_target).then_some(NESTED);
            self.in_target &= word != "in";
            self.begin(after, Begins::Compared, filter);
            return if word == "is" {
                Last::Test
            } else {
                Last::Operator
            };
        }
        let constant = word.starts_with(|c: char| c.is_ascii_digit())
            || matches!(word, "true" | "false" | "none" | "True" | "False" | "None");
        if !constant {
            for level in &mut self.levels {
                level.names = true;
            }
        }
        let of_macro = self.levels.len() == 2 && self.head.as_deref() == Some("macro");
        if of_macro && self.opens {
            self.parameters.push(at..after);
        }
        Last::Value
    }

    /// At the end of the tag.
    pub(super) fn finish(&mut self) {
        self.end_comparison();
        self.edits.sort_by_key(|(at, _)| *at);
    }

    /// A part of the tag with what its values go through.
    pub(super) fn rewritten(&self, tag: &str, part: Range<usize>) -> String {
        let mut out = String::with_capacity(part.len() + 32);
        let mut copied = part.start;
        for (at, text) in &self.edits {
            if (part.start..=part.end).contains(at) {
                out.push_str(tag.get(copied..*at).unwrap_or_default());
                match text {
                    Edit::Text(text) => out.push_str(text),
                    Edit::Again(range) => out.push_str(tag.get(range.clone()).unwrap_or_default()),
                }
                copied = *at;
            }
        }
        out.push_str(tag.get(copied..part.end).unwrap_or_default());
        out
    }

    fn level(&mut self) -> &mut Level {
        self.levels
            .last_mut()
            .expect("the level outside all brackets is never closed")
    }

    fn open_bracket(&mut self, at: usize, lexeme: &str) {
        let bracket = match lexeme {
            "{" => Bracket::Literal,
            _ if self.last == Last::Value || self.in_target => Bracket::Behind,
            "(" => Bracket::Group,
            _ => Bracket::Literal,
        };
        self.literals += usize::from(bracket == Bracket::Literal);
        if lexeme == "(" && bracket == Bracket::Behind && self.is_outside_brackets() {
            self.makes_values = true;
        }
        let level = Level::new(bracket, at, at + 1, self.lexemes + 1);
        self.levels.push(level);
    }

    fn close_bracket(&mut self, after: usize) {
        self.end_comparison();
        if self.is_outside_brackets() {
            return;
        }
        let Some(level) = self.levels.pop() else {
            return;
        };
        self.literals -= usize::from(level.bracket == Bracket::Literal);
        let in_literal = self.level().bracket == Bracket::Literal;
        let made = match level.bracket {
            Bracket::Literal => !in_literal,
            Bracket::Group => level.comma,
            Bracket::Behind | Bracket::None => false,
        };
        if made && level.names {
            self.insert(level.opened, "(");
            self.insert(after, &format!("|{NESTED})"));
        }
        if self.head.as_deref() == Some("call") && self.is_outside_brackets() {
            self.in_target = false;
        }
    }

    fn close(&mut self, operand: Operand) {
        let lexemes = self.lexemes - operand.lexemes;
        let Some(filter) = operand.filter else {
            return;
        };
        if lexemes == 0 || (lexemes == 1 && self.constant) {
            return;
        }
        let end = self.end;
        self.insert(operand.start, "(");
        if self.path > operand.lexemes {
            return self.insert(end, &format!(")|{filter}"));
        }
        // A filter is charged for the texts it gets, and most of what is joined are texts.
        let again = operand.start..end;
        self.insert(end, " if ");
        self.edits.push((end, Edit::Again(again.clone())));
        self.insert(end, " is string else ");
        self.edits.push((end, Edit::Again(again)));
        self.insert(end, &format!("|{filter})"));
    }

    fn insert(&mut self, at: usize, text: &str) {
        self.edits.push((at, Edit::Text(text.to_owned())));
    }

    fn end_product(&mut self) {
        let operand = self.level().product;
        self.close(operand);
        self.level().product.filter = None;
    }

    fn end_join(&mut self) {
        self.end_product();
        let operand = self.level().join;
        self.close(operand);
        self.level().join.filter = None;
    }

    fn end_sum(&mut self) {
        self.end_join();
        let operand = self.level().sum;
        self.close(operand);
        self.level().sum.filter = None;
    }

    fn end_comparison(&mut self) {
        self.end_sum();
        let operand = self.level().comparison;
        self.close(operand);
        self.level().comparison.filter = None;
    }

    fn begin(&mut self, start: usize, begins: Begins, filter: Option<&'static str>) {
        let plain = Operand {
            start,
            lexemes: self.lexemes + 1,
            filter: None,
        };
        let operand = Operand { filter, ..plain };
        let level = self.level();
        level.product = plain;
        match begins {
            Begins::Factor => level.product = operand,
            Begins::Joined => level.join = operand,
            Begins::Summand => (level.join, level.sum) = (plain, operand),
            Begins::Compared => {
                (level.join, level.sum, level.comparison) = (plain, plain, operand);
            }
        }
    }
}

/// What begins behind a sign.
#[derive(Clone, Copy)]
enum Begins {
    Factor,
    Joined,
    Summand,
    Compared,
}

#[cfg(test)]
mod tests {
    use super::super::template_tags::adapt;

    #[test]
    fn values_are_looked_at_where_they_are_made() {
        for (source, adapted) in [
            ("{{ a }}", "{{ a }}"),
            (
                "{{- 'a' + b + 'c' -}}",
                "{{- 'a' +( b if  b is string else  b|__nested) + 'c' -}}",
            ),
            (
                "{{ call['x'] ~ b.c | trim ~ 'd' }}",
                "{{( call['x'])|__text ~( b.c | trim)|__text ~ 'd' }}",
            ),
            (
                "{{ a * 2 + b }}",
                "{{( a if  a is string else  a|__scalar) * 2 +( b if  b is string else  b|__nested) }}",
            ),
            (
                "{{ a + b * c ~ d }}",
                "{{ a +((( b if  b is string else  b|__scalar) *( c if  c is string else  c|__scalar))|__text ~( d if  d is string else  d|__text))|__nested }}",
            ),
            (
                "{{ [a, [b]] + ['x'] }}",
                "{{ ([a, [b]]|__nested) +( ['x'])|__nested }}",
            ),
            (
                "{{ f(1, a + b)[c - 1:] }}",
                "{{ f(1, a +( b if  b is string else  b|__nested))[c - 1:] }}",
            ),
            (
                "{{ (a, 1) if b == c else {'k': d} }}",
                "{{ ((a, 1)|__nested) if b ==( c if  c is string else  c|__nested) else ({'k': d}|__nested) }}",
            ),
            (
                "{{ a is not none and x.in + 1e-3 * -b }}",
                "{{ a is not none and x.in +( 1e-3 *( -b)|__scalar)|__nested }}",
            ),
            (
                "{% if a in ['b', 'c'] %}",
                "{% if a in( ['b', 'c'])|__nested %}",
            ),
            (
                "{%- for (a, b) in c.d if a in e -%}",
                "{%- for (a, b) in c.d if a in( e if  e is string else  e|__nested) -%}",
            ),
            ("{% call(a, b) f(c) %}", "{% call(a, b) f(c) %}"),
            (
                "{% set (a, b) = c, d %}",
                "{% set (a, b) =( c, d )|__nested %}",
            ),
            ("{% set x = a == 'b' -%}", "{% set x = a == 'b' -%}"),
            (
                "{%- set ns.x=f(y=1) %}",
                "{%- set ns.x=(f(y=1) )|__nested|__member %}",
            ),
            (
                "{% set ns.x = ns.x + [m] %}",
                "{% set ns.x = ns.x +( ([m]|__nested))|__nested %}",
            ),
            ("{% set x = a[1:] %}", "{% set x =( a[1:] )|__nested %}"),
            (
                "{%- macro f(a, b=[c]) -%} x",
                "{%- macro f(a, b=([c]|__nested)) -%}{%- set a = a|__nested -%}{%- set b = b|__nested -%} x",
            ),
            (
                "{% macro f(a) %}\n",
                "{% macro f(a) -%}{%- set a = a|__nested %}\n",
            ),
            ("{% macro f() %}", "{% macro f() %}"),
        ] {
            assert_eq!(adapt(source).as_deref(), Ok(adapted), "{source}");
        }
    }
}
