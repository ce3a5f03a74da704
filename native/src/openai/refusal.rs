//! Why a request means nothing: which of its fields, what stands below that, and what is wrong with it. Knows no
//! protocol: how another calls its fields is given to it.

use std::fmt::Display;

use thiserror::Error;

/// A request that means nothing: which of its fields, and why.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}{said}", path.as_deref().unwrap_or_default())]
pub struct Refusal {
    /// The field.
    pub param: Option<String>,
    /// For programs, where they can do more with it than with the field.
    pub code: Option<&'static str>,
    /// What the sentence begins with, where that is the field or something below it.
    path: Option<String>,
    /// The rest of the sentence.
    said: String,
}

impl Refusal {
    /// Refuses a field, by what is said of it: `must be a string`.
    pub fn of(param: &str, said: impl Display) -> Self {
        Below::new("", said).of(param)
    }

    /// Refuses a field by a sentence of its own.
    pub fn sentence(param: &str, said: impl Display) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::general(said)
        }
    }

    /// Refuses no field of its own.
    pub fn general(said: impl Display) -> Self {
        Self {
            param: None,
            code: None,
            path: None,
            said: said.to_string(),
        }
    }

    /// Refuses a field for this reason, which is another's to say.
    pub fn because(param: &str, why: impl Display) -> Self {
        Self {
            path: Some(param.to_owned()),
            ..Self::sentence(param, format!(": {why}"))
        }
    }

    /// The same with a name for programs.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// The same where fields have other names.
    #[must_use]
    pub fn renamed(self, names: &[Name]) -> Self {
        Self {
            param: self.param.map(|param| renamed(&param, names)),
            path: self.path.map(|path| renamed(&path, names)),
            ..self
        }
    }
}

/// What is wrong somewhere below a field: where, as `[3].role`, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    code: Option<&'static str>,
    path: String,
    said: String,
}

impl Below {
    /// What is said of this place: `must be a string`.
    pub fn new(path: impl Into<String>, said: impl Display) -> Self {
        Self {
            code: None,
            path: path.into(),
            said: format!(" {said}"),
        }
    }

    /// The same with a name for programs.
    #[must_use]
    pub fn code(self, code: &'static str) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }

    /// The same seen from further above.
    #[must_use]
    pub fn within(self, place: impl Display) -> Self {
        Self {
            path: format!("{place}{}", self.path),
            ..self
        }
    }

    /// Refuses the field that is a list, in whose item it is.
    pub fn of_item(self, param: &str, index: usize) -> Refusal {
        self.within(format!("[{index}]")).of(param)
    }

    /// Refuses the field that it is below.
    pub fn of(self, param: &str) -> Refusal {
        Refusal {
            param: Some(param.to_owned()),
            code: self.code,
            path: Some(format!("{param}{}", self.path)),
            said: self.said,
        }
    }
}

/// A field, or what it holds, and how it is called elsewhere. `[]` is any place of a list.
pub type Name = (&'static str, &'static str);

/// A path by the first of the names that leads to it or to what it is in.
fn renamed(path: &str, names: &[Name]) -> String {
    let place = path.split_once('[').and_then(|(list, rest)| {
        let (place, rest) = rest.split_once(']')?;
        Some((format!("{list}[]{rest}"), format!("[{place}]")))
    });
    let (any, place) = place.unwrap_or_else(|| (path.to_owned(), String::new()));
    let found = names.iter().find_map(|(from, to)| {
        let rest = any.strip_prefix(from)?;
        let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
        is_whole.then(|| format!("{to}{rest}").replacen("[]", &place, 1))
    });
    found.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_renamed_wherever_it_stands() {
        let names = [
            ("form.schema", "text.format"),
            ("form", "text"),
            ("tools[].function", "tools[]"),
            ("messages", "input"),
        ];
        let below = |path: &str| Below::new(path, "must be");
        for (refusal, param, message) in [
            (Refusal::because("form", "why"), "text", "text: why"),
            (
                Refusal::of("form.schema.a", "is 5"),
                "text.format.a",
                "text.format.a is 5",
            ),
            (
                below(".name").within(".function").of_item("tools", 12),
                "tools",
                "tools[12].name must be",
            ),
            (
                below("[0].type").of("tools"),
                "tools",
                "tools[0].type must be",
            ),
            (
                below("[3].a[1]").of("messages"),
                "input",
                "input[3].a[1] must be",
            ),
            (Refusal::of("formal", "is 5"), "formal", "formal is 5"),
            // A sentence is as it is, whatever it begins with.
            (
                Refusal::sentence("form", "form is a word"),
                "text",
                "form is a word",
            ),
        ] {
            let renamed = refusal.renamed(&names);
            assert_eq!(renamed.param.as_deref(), Some(param));
            assert_eq!(renamed.to_string(), message);
        }
        assert_eq!(Refusal::general("why").renamed(&names).param, None);
    }
}
