//! How many tokens' keys and values are kept, as the command line says it. Knows no model.

use std::str::FromStr;

/// Their slots are numbered in 32 bits.
const MOST: usize = u32::MAX as usize;

/// Tokens of all sequences together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCacheTokens {
    /// Those of four of the longest sequences, or of as many as run together, or fewer where they do not fit.
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
                Ok(tokens) if tokens == 0 || tokens > MOST => {
                    Err(format!("it must be 1 to {MOST}, or max"))
                }
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
        for wrong in ["", "all", "-1", "0", "4294967296", "1e3"] {
            let said = wrong.parse::<KvCacheTokens>().unwrap_err();
            assert!(said.ends_with("or max"), "{said}");
        }
    }
}
