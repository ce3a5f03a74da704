//! What the engine calls its parameters, as the command line names them: an error that a person meets at a
//! terminal says which flag to change. Knows the words alone; bodies of requests keep theirs.

use twoclock_core::error::Error;
use twoclock_core::sched::{ConfigError, RequestError};
use twoclock_core::types::StructuredOutputError;

/// Parameters and their flags.
const FLAGS: [(&str, &str); 19] = [
    ("max_model_len", "--max-model-len"),
    ("max_num_batched_tokens", "--max-num-batched-tokens"),
    ("max_num_seqs", "--max-num-seqs"),
    ("block_size", "--block-size"),
    ("run_ahead", "--run-ahead"),
    ("max_tokens", "--max-tokens"),
    ("min_tokens", "--min-tokens"),
    ("temperature", "--temperature"),
    ("top_k", "--top-k"),
    ("top_p", "--top-p"),
    ("min_p", "--min-p"),
    ("repetition_penalty", "--repetition-penalty"),
    ("presence_penalty", "--presence-penalty"),
    ("frequency_penalty", "--frequency-penalty"),
    ("logit_bias", "--logit-bias"),
    ("bad_words", "--bad-word"),
    ("stop_token_ids", "--stop-token-id"),
    ("prompt_logprobs", "--prompt-logprobs"),
    ("dimensions", "--dimensions"),
];

/// Forms of answers and their flags.
const FORMS: [(&str, &str); 5] = [
    ("json", "--json-schema"),
    ("json_object", "--json-object"),
    ("regex", "--regex"),
    ("grammar", "--grammar"),
    ("choice", "--choice"),
];

/// An error's sentence with the flags in it, where it is about what was asked of the engine.
pub fn sentence(error: &anyhow::Error) -> String {
    let said = crate::output::sentence(error);
    let is_about_them = error.chain().any(|cause| {
        cause.is::<ConfigError>()
            || cause.is::<RequestError>()
            || cause.is::<StructuredOutputError>()
            || matches!(
                cause.downcast_ref(),
                Some(Error::Config(_) | Error::Request(_))
            )
    });
    match is_about_them {
        true => named(&said),
        false => said,
    }
}

/// What the engine says of its parameters, said of flags.
pub fn named(said: &str) -> String {
    const FORM: &str = "structured_output.";
    if let Some(at) = said.find(FORM) {
        // What follows is about a text of the person's own, in which any word may stand.
        let (before, rest) = (&said[..at], &said[at + FORM.len()..]);
        let end = rest.find(':').unwrap_or(rest.len());
        let flag = FORMS.iter().find(|(form, _)| *form == &rest[..end]);
        return match flag {
            Some((_, flag)) => format!("{before}{flag}{}", &rest[end..]),
            None => said.to_owned(),
        };
    }
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut told = String::new();
    let mut rest = said;
    while let Some(begin) = rest.find(is_in_word) {
        let (before, word) = rest.split_at(begin);
        let (word, after) = word.split_at(word.find(|c| !is_in_word(c)).unwrap_or(word.len()));
        let flag = FLAGS.iter().find(|(name, _)| *name == word);
        told.push_str(before);
        // A flag that is named already stays as it is.
        told.push_str(match flag {
            Some((_, flag)) if !before.ends_with('-') => flag,
            _ => word,
        });
        rest = after;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn parameters_are_said_as_flags() {
        for (said, told) in [
            (
                "max_model_len is 9: lower max_model_len",
                "--max-model-len is 9: lower --max-model-len",
            ),
            ("top_p_x and stop", "top_p_x and stop"),
            (
                "lower --temperature, temperature",
                "lower --temperature, --temperature",
            ),
            (
                "structured_output.json_object: top_k is",
                "--json-object: top_k is",
            ),
            ("structured_output.regex: a: b", "--regex: a: b"),
            ("structured_output needs", "structured_output needs"),
        ] {
            assert_eq!(named(said), told);
        }
    }

    #[test]
    fn every_flag_is_there() {
        let command = Cli::command();
        let flags = command.get_subcommands().flat_map(|c| c.get_arguments());
        let flags: Vec<_> = flags.filter_map(|flag| flag.get_long()).collect();
        for (_, flag) in FLAGS.iter().chain(&FORMS) {
            assert!(flags.contains(&flag.trim_start_matches('-')), "{flag}");
        }
    }
}
