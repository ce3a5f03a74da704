//! The classes `\d`, `\w` and `\s` of a regular expression as ASCII, which is what those who ask for digits
//! mean, and what JSON schema's patterns mean by them. Left to Unicode, a model that would rather say
//! something else finds a digit of some script that it likes.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, ClassPerl, ClassPerlKind, ClassSetItem, Error, Span, Visitor, visit};

/// The expression with those classes spelled out, whether alone or inside brackets. Nothing else of it
/// changes.
///
/// # Errors
/// The parser's, which points at the place.
pub(super) fn ascii_classes(regex: &str, nest_limit: u32) -> Result<String, Box<Error>> {
    let mut parser = ParserBuilder::new().nest_limit(nest_limit).build();
    let ast = parser.parse(regex)?;
    let mut found = match visit(&ast, Classes::default()) {
        Ok(found) => found,
        Err(never) => match never {},
    };
    found.sort_by_key(|(span, _)| span.start.offset);
    let (mut spelled, mut copied) = (String::new(), 0);
    for (span, class) in found {
        spelled.push_str(&regex[copied..span.start.offset]);
        spelled.push_str(class);
        copied = span.end.offset;
    }
    spelled.push_str(&regex[copied..]);
    Ok(spelled)
}

/// The classes of an expression, by place.
#[derive(Default)]
struct Classes(Vec<(Span, &'static str)>);

impl Classes {
    fn take(&mut self, class: &ClassPerl) {
        let spelled = match (&class.kind, class.negated) {
            (ClassPerlKind::Digit, false) => "[0-9]",
            (ClassPerlKind::Digit, true) => "[^0-9]",
            (ClassPerlKind::Word, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true) => "[^0-9A-Za-z_]",
            (ClassPerlKind::Space, false) => r"[\t\n\v\f\r ]",
            (ClassPerlKind::Space, true) => r"[^\t\n\v\f\r ]",
        };
        self.0.push((class.span, spelled));
    }
}

impl Visitor for Classes {
    type Output = Vec<(Span, &'static str)>;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Self::Output, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if let Ast::ClassPerl(class) = ast {
            self.take(class);
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        if let ClassSetItem::Perl(class) = item {
            self.take(class);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_spelled_out_wherever_they_stand() {
        let spelled = |regex| ascii_classes(regex, 50).unwrap();
        assert_eq!(spelled(r"\d{4}-\d{2}"), "[0-9]{4}-[0-9]{2}");
        assert_eq!(
            spelled(r"é[\w.-]+@\D|\s*"),
            r"é[[0-9A-Za-z_].-]+@[^0-9]|[\t\n\v\f\r ]*"
        );
        for same in [r"\\d", "[0-9]", r"\p{Nd}", "日", "(?:a|b)*", ""] {
            assert_eq!(spelled(same), same);
        }
        assert!(ascii_classes("(a", 50).is_err());
        let digits = regex_syntax::parse(&spelled(r"[^\d\S]")).unwrap();
        assert_eq!(digits, regex_syntax::parse(r"[\t\n\v\f\r ]").unwrap());
    }
}
