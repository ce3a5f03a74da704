//! What the engine says against a request, in words for its client, who can set no limit of the server. Knows not
//! which field is at fault.

use twoclock_core::error::Error;
use twoclock_core::sched::RequestError;

use super::refusal::Refusal;

/// What a prompt is called, in errors, that the context has no room for.
const TOO_LONG: &str = "context_length_exceeded";

/// Refuses a field by what the engine says.
pub fn refusal(param: &str, error: &Error) -> Refusal {
    match error {
        Error::Request(RequestError::PromptTooLong {
            num_prompt_tokens,
            room,
            max_model_len,
        }) => {
            let more = if *room > 0 {
                " and one more must fit"
            } else {
                ""
            };
            let said = format!(
                "the prompt has {num_prompt_tokens} tokens{more}, but the context has {max_model_len}: shorten the \
                 prompt"
            );
            Refusal::sentence(param, said).code(TOO_LONG)
        }
        Error::Request(RequestError::NeverFits {
            num_tokens,
            block_size,
            available,
            ..
        }) => {
            let kept = available.saturating_mul(*block_size);
            let said = format!(
                "the prompt and its answer have up to {num_tokens} tokens, but no more than {kept} can be kept: \
                 shorten the prompt or lower max_tokens"
            );
            Refusal::sentence(param, said).code(TOO_LONG)
        }
        error => Refusal::sentence(param, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_what_it_can_do() {
        let of = |room| RequestError::PromptTooLong {
            num_prompt_tokens: 70,
            room,
            max_model_len: 64,
        };
        let never = RequestError::NeverFits {
            num_tokens: 90,
            needed: 6,
            block_size: 16,
            available: 4,
        };
        for (error, told) in [
            (
                of(0),
                "the prompt has 70 tokens, but the context has 64: shorten the prompt",
            ),
            (
                of(1),
                "the prompt has 70 tokens and one more must fit, but the context has 64: shorten the prompt",
            ),
            (
                never,
                "the prompt and its answer have up to 90 tokens, but no more than 64 can be kept: shorten the \
                 prompt or lower max_tokens",
            ),
        ] {
            let refusal = refusal("prompt", &error.into());
            assert_eq!(refusal.to_string(), told);
            assert_eq!(refusal.code, Some("context_length_exceeded"));
        }
        let other = refusal("prompt", &RequestError::EmptyPrompt.into());
        assert_eq!(other.code, None);
        assert!(other.to_string().contains("no tokens"));
    }
}
