//! Fields of a chat or completion request that ask for what there is not. They are refused, so that nobody believes
//! they were heeded; how other programs call what there is stands with what reads it.

use serde_json::Value;

use super::fields::Fields;
use super::refusal::Refusal;

/// Fields of OpenAI's and vLLM's that change the answer, and are not served whatever they hold.
const FIELDS: [&str; 10] = [
    "suffix",
    "audio",
    "allowed_token_ids",
    "logits_processors",
    "prompt_embeds",
    "chat_template",
    "documents",
    "guided_whitespace_pattern",
    "structural_tag",
    "web_search_options",
];
/// Switches that change the answer, with the way they stand here.
const FLAGS: [(&str, bool); 5] = [
    ("use_beam_search", false),
    ("skip_special_tokens", true),
    ("include_reasoning", true),
    ("return_token_ids", false),
    ("return_tokens_as_token_ids", false),
];

/// Refuses what would change the answer and is not there.
pub(super) fn refuse(fields: &Fields<'_>) -> Result<(), Refusal> {
    let refuse = |name: &str| Err(Refusal::of(name, "is not served"));
    for name in FIELDS {
        if fields.gives(name) {
            return refuse(name);
        }
    }
    for (name, served) in FLAGS {
        if fields.flag(name)?.is_some_and(|flag| flag != served) {
            return refuse(name);
        }
    }
    let n = fields.count("n")?.unwrap_or(1);
    if fields.count("best_of")?.is_some_and(|best| best != n) {
        return refuse("best_of");
    }
    let is_text = |kind: &Value| kind == "text";
    if !fields
        .list("modalities")?
        .is_none_or(|kinds| kinds.iter().all(is_text))
    {
        let said =
            "asks for more than text, but answers are text alone: give [\"text\"], or leave it out";
        return Err(Refusal::of("modalities", said));
    }
    // llama.cpp's clients send an empty one where they want none.
    if fields
        .text("grammar")?
        .is_some_and(|text| !text.trim().is_empty())
    {
        let said = "is not served, which is llama.cpp's GBNF: give structured_outputs.grammar, in Lark's form";
        return Err(Refusal::of("grammar", said));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::described;
    use serde_json::json;

    #[test]
    fn what_asks_for_another_answer_is_named() {
        for (param, value) in [
            ("audio", json!({"voice": "a", "format": "wav"})),
            ("modalities", json!(["text", "audio"])),
            ("modalities", json!("audio")),
            ("modalities", json!([5])),
            ("web_search_options", json!({})),
            ("grammar", json!("root ::= \"a\"")),
            ("grammar", json!({})),
            ("return_token_ids", json!(true)),
            ("include_reasoning", json!(false)),
            ("best_of", json!(2)),
        ] {
            let body = json!({param: value});
            let refused = refuse(&Fields::of(&body).unwrap()).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some(param), "{body}");
        }
        let served = json!({"modalities": ["text"], "audio": null, "grammar": "", "store": true, "best_of": 1,
            "return_token_ids": false, "include_reasoning": true, "unheard_of": 5});
        assert_eq!(refuse(&Fields::of(&served).unwrap()), Ok(()));
    }

    /// Whoever reads the description of the server alone, be it a program, learns what is refused.
    #[test]
    fn what_is_refused_is_described() {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
        ] {
            let fields = described::fields(path);
            for name in FIELDS {
                assert_eq!(fields[name]["type"], "null", "{path} {name}");
            }
            for (name, served) in FLAGS {
                assert_eq!(fields[name]["enum"], json!([served, null]), "{path} {name}");
            }
            for name in ["best_of", "modalities", "grammar"] {
                assert!(fields[name].is_object(), "{path} {name}");
            }
        }
    }
}
