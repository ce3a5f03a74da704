//! JSON read character by character, so that an object's end and its first fault are known as soon as
//! they come. Knows no keys and keeps no text.

/// Deepest nesting taken.
const MAX_DEPTH: usize = 64;

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More must come.
    Going,
    /// More must come; the character may stand in a string only escaped, and is meant so.
    Control,
    /// With it the value is whole.
    Whole,
    /// It cannot stand here.
    Wrong,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an empty array.
    FirstElement,
    Key,
    /// A key, or the end of an empty object.
    FirstKey,
    Colon,
    /// A comma or an end.
    AfterValue,
    Text {
        is_key: bool,
        /// Of an escape, how many characters are left; its first may be any of several.
        escape: Escape,
    },
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    Begun,
    Hex(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    fn next(self, c: char) -> Option<Self> {
        Some(match (self, c) {
            (Self::Minus, '0') => Self::Zero,
            (Self::Minus, '1'..='9') | (Self::Digits, '0'..='9') => Self::Digits,
            (Self::Zero | Self::Digits, '.') => Self::Point,
            (Self::Point | Self::Fraction, '0'..='9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, 'e' | 'E') => Self::Exponent,
            (Self::Exponent, '+' | '-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, '0'..='9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(
            self,
            Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// Where a text stands in its value.
#[derive(Clone, Debug)]
pub(super) struct JsonScan {
    open: Vec<Container>,
    state: State,
}

impl JsonScan {
    /// Before a value.
    pub(super) fn new() -> Self {
        Self {
            open: Vec::new(),
            state: State::Value,
        }
    }

    /// How many objects and arrays are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether a member of an object may begin.
    pub(super) fn awaits_key(&self) -> bool {
        matches!(self.state, State::Key | State::FirstKey)
    }

    /// Whether a key has ended and its colon has not come.
    pub(super) fn awaits_colon(&self) -> bool {
        self.state == State::Colon
    }

    /// Whether a value of an object must begin.
    pub(super) fn awaits_value(&self) -> bool {
        self.state == State::Value
    }

    /// Whether a value has ended.
    pub(super) fn is_after_value(&self) -> bool {
        self.state == State::AfterValue
    }

    /// Whether a text or a key has begun and not ended.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.state, State::Text { .. })
    }

    /// Goes on by a character. After [`Step::Whole`] and [`Step::Wrong`] nothing more is asked.
    pub(super) fn push(&mut self, c: char) -> Step {
        match self.state {
            State::Text { is_key, escape } => return self.in_text(is_key, escape, c),
            State::Number(number) => {
                if let Some(next) = number.next(c) {
                    self.state = State::Number(next);
                    return Step::Going;
                }
                if !number.may_end() {
                    return Step::Wrong;
                }
                self.state = State::AfterValue;
            }
            State::Literal(rest) => {
                let (first, rest) = match rest.split_first() {
                    Some((first, rest)) => (char::from(*first), rest),
                    None => return Step::Wrong,
                };
                if c != first {
                    return Step::Wrong;
                }
                self.state = match rest {
                    [] => State::AfterValue,
                    rest => State::Literal(rest),
                };
                return Step::Going;
            }
            _ => {}
        }
        if matches!(c, ' ' | '\n' | '\r' | '\t') {
            return Step::Going;
        }
        match (self.state, c) {
            (State::FirstElement, ']') => self.close(Container::Array),
            (State::Value | State::FirstElement, c) => self.begin_value(c),
            (State::FirstKey, '}') => self.close(Container::Object),
            (State::Key | State::FirstKey, '"') => self.begin_text(true),
            (State::Colon, ':') => {
                self.state = State::Value;
                Step::Going
            }
            (State::AfterValue, ',') => {
                self.state = match self.open.last() {
                    Some(Container::Object) => State::Key,
                    Some(Container::Array) => State::Value,
                    None => return Step::Wrong,
                };
                Step::Going
            }
            (State::AfterValue, '}') => self.close(Container::Object),
            (State::AfterValue, ']') => self.close(Container::Array),
            _ => Step::Wrong,
        }
    }

    fn in_text(&mut self, is_key: bool, escape: Escape, c: char) -> Step {
        let escape = match (escape, c) {
            (Escape::None, '"') => {
                self.state = match is_key {
                    true => State::Colon,
                    false => State::AfterValue,
                };
                return self.ended();
            }
            (Escape::None, '\\') => Escape::Begun,
            (Escape::None, '\0'..='\u{1f}') => return Step::Control,
            (Escape::None, _) => Escape::None,
            (Escape::Begun, 'u') => Escape::Hex(4),
            (Escape::Begun, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => Escape::None,
            (Escape::Hex(1), c) if c.is_ascii_hexdigit() => Escape::None,
            (Escape::Hex(left), c) if c.is_ascii_hexdigit() => Escape::Hex(left - 1),
            _ => return Step::Wrong,
        };
        self.state = State::Text { is_key, escape };
        Step::Going
    }

    fn begin_text(&mut self, is_key: bool) -> Step {
        let escape = Escape::None;
        self.state = State::Text { is_key, escape };
        Step::Going
    }

    fn begin_value(&mut self, c: char) -> Step {
        self.state = match c {
            '{' | '[' if self.open.len() >= MAX_DEPTH => return Step::Wrong,
            '{' => {
                self.open.push(Container::Object);
                State::FirstKey
            }
            '[' => {
                self.open.push(Container::Array);
                State::FirstElement
            }
            '"' => return self.begin_text(false),
            '-' => State::Number(Number::Minus),
            '0' => State::Number(Number::Zero),
            '1'..='9' => State::Number(Number::Digits),
            't' => State::Literal(b"rue"),
            'f' => State::Literal(b"alse"),
            'n' => State::Literal(b"ull"),
            _ => return Step::Wrong,
        };
        Step::Going
    }

    fn close(&mut self, container: Container) -> Step {
        if self.open.pop() != Some(container) {
            return Step::Wrong;
        }
        self.state = State::AfterValue;
        self.ended()
    }

    fn ended(&self) -> Step {
        match self.open.is_empty() && self.state == State::AfterValue {
            true => Step::Whole,
            false => Step::Going,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Characters up to the end of the value; none where one is wrong or more must come.
    fn length(text: &str) -> Option<usize> {
        let mut scan = JsonScan::new();
        for (at, c) in text.char_indices() {
            match scan.push(c) {
                Step::Going => {}
                Step::Whole => return Some(at + c.len_utf8()),
                Step::Control | Step::Wrong => return None,
            }
        }
        None
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_ends_where_it_ends(value in value(), pretty: bool) {
            let object = serde_json::json!({"a": value});
            let text = match pretty {
                true => serde_json::to_string_pretty(&object).unwrap(),
                false => object.to_string(),
            };
            prop_assert_eq!(length(&text), Some(text.len()));
        }

        #[test]
        fn what_is_whole_here_is_json(text in "\\{[\"a{}:,\\[\\]0-9.eE+\\-tru \\\\]{0,12}\\}?") {
            if let Some(end) = length(&text) {
                let read = serde_json::from_str::<Value>(&text[..end]);
                // The library's numbers have a range.
                let known = read.as_ref().is_ok_and(Value::is_object)
                    || read.is_err_and(|e| e.to_string().contains("out of range"));
                prop_assert!(known, "{}", &text[..end]);
            }
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(
            length(&["[".repeat(64), "]".repeat(64)].concat()),
            Some(128)
        );
        assert_eq!(length(&["[".repeat(65), "]".repeat(65)].concat()), None);
    }
}
