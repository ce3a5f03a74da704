//! How many tokens' keys and values are kept, as the command line says it. Knows no model.

use std::str::FromStr;

/// Tokens of all sequences together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCacheTokens {
    /// Those of four of the longest sequences.
    #[default]
    Usual,
    /// So many.
    Tokens(usize),
    /// As many as the memory leaves that the model may take.
    Max,
}

impl FromStr for KvCacheTokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "max" => Ok(Self::Max),
            text => match text.parse() {
                Ok(tokens) => Ok(Self::Tokens(tokens)),
                Err(error) => Err(format!("{error}; it is a number of tokens, or max")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_all_there_is() {
        assert_eq!("4096".parse(), Ok(KvCacheTokens::Tokens(4096)));
        assert_eq!("max".parse(), Ok(KvCacheTokens::Max));
        for wrong in ["", "all", "-1", "1e3"] {
            let said = wrong.parse::<KvCacheTokens>().unwrap_err();
            assert!(said.ends_with("or max"), "{said}");
        }
    }
}
