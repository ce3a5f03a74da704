//! Log-probabilities as OpenAI's chat and completion bodies write them, and a prompt's as vLLM does: each as it is
//! written, as all of them as JSON values would take a hundred times the room that they have before. Knows tokens only
//! to spell them.

use serde::Serialize;
use serde_json::{Map, Value, json};
use twoclock_core::engine::Completion;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{TokenId, TokenLogprobs};

use super::each::Each;

/// A token and how likely it was; the first of a prompt follows nothing, and is not.
pub(super) type Scored<'a> = (TokenId, Option<&'a TokenLogprobs>);

fn spelled(id: TokenId, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
}

/// As OpenAI spells a token in a completion: bytes that are no text by themselves as `bytes:\xf0\x9f`.
fn literal(id: TokenId, tokenizer: &Tokenizer) -> String {
    let bytes = tokenizer.token_bytes(id);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("bytes:{}", bytes.escape_ascii()),
    }
}

/// The tokens of a prompt that is said again; none where it was not scored.
pub(super) fn echoed<'a>(
    prompt: &'a [TokenId],
    scores: &'a [TokenLogprobs],
) -> impl Iterator<Item = Scored<'a>> {
    let whole = scores.len() + 1 == prompt.len();
    let scored = std::iter::once(None).chain(scores.iter().map(Some));
    let ids = prompt.iter().copied().filter(move |_| whole);
    ids.zip(scored)
}

/// Of each prompt token but the first: its own and the best ones by id.
pub(super) fn of_prompt(completion: &Completion, tokenizer: &Tokenizer) -> impl Serialize {
    Each(move || {
        let scored = completion.prompt_token_ids.iter().skip(1).copied();
        let positions = scored.zip(&completion.prompt_logprobs);
        let positions = positions.map(move |(id, scores)| of_position(id, scores, tokenizer));
        std::iter::once(Value::Null).chain(positions)
    })
}

fn of_position(id: TokenId, scores: &TokenLogprobs, tokenizer: &Tokenizer) -> Value {
    let best = scores.top.iter().zip(1..);
    let best = best.map(|(&(id, logprob), rank)| (id, logprob, rank));
    let best = best.filter(|(best, ..)| *best != id);
    let all = std::iter::once((id, scores.logprob, scores.rank)).chain(best);
    let all = all.map(|(id, logprob, rank)| {
        let one = json!({
            "logprob": logprob,
            "rank": rank,
            "decoded_token": spelled(id, tokenizer),
        });
        (id.to_string(), one)
    });
    Value::Object(all.collect())
}

/// In a chat's form.
pub(super) fn chat(scored: &[Scored<'_>], tokenizer: &Tokenizer) -> impl Serialize {
    #[derive(Serialize)]
    struct OfChat<T> {
        content: T,
    }
    let one = |id: TokenId, logprob: f32| {
        json!({
            "token": spelled(id, tokenizer),
            "logprob": logprob,
            "bytes": tokenizer.token_bytes(id),
        })
    };
    OfChat {
        content: Each(move || {
            scored.iter().filter_map(move |(id, logprobs)| {
                let logprobs = (*logprobs)?;
                let mut position = one(*id, logprobs.logprob);
                let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
                position["top_logprobs"] = top.collect();
                Some(position)
            })
        }),
    }
}

/// In a completion's form: each of them stands at its place of `offsets` in the text.
pub(super) fn completion(
    scored: &[Scored<'_>],
    offsets: &[usize],
    tokenizer: &Tokenizer,
) -> impl Serialize {
    #[derive(Serialize)]
    struct OfCompletion<'a, B, C, D> {
        text_offset: &'a [usize],
        token_logprobs: B,
        top_logprobs: C,
        tokens: D,
    }
    let top = |(id, scores): &Scored<'_>| -> Option<Value> {
        let scores = (*scores)?;
        let own = (*id, scores.logprob);
        let mut texts = Map::new();
        // The likeliest first, which of those that are spelled alike stands; its own is among them, or likelier than
        // none of them.
        for &(id, logprob) in scores.top.iter().chain([&own]) {
            let text = texts.entry(literal(id, tokenizer));
            text.or_insert_with(|| json!(logprob));
        }
        Some(Value::Object(texts))
    };
    OfCompletion {
        text_offset: offsets,
        token_logprobs: Each(move || {
            let own = scored.iter();
            own.map(|(_, logprobs)| json!(logprobs.map(|l| l.logprob)))
        }),
        top_logprobs: Each(move || scored.iter().map(top)),
        tokens: Each(move || scored.iter().map(move |(id, _)| literal(*id, tokenizer))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_tells_apart_what_is_no_text_and_has_its_own_token() {
        let json = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
        let tokenizer = Tokenizer::from_json(json, None, None).unwrap();
        let ids = 0..tokenizer.vocab_size() as TokenId + 2;
        let of = |bytes: &[u8]| ids.clone().find(|&id| tokenizer.token_bytes(id) == bytes);
        let of = |bytes: &[u8]| of(bytes).unwrap();
        // Ids beyond the vocabulary, as models pad it, are spelled alike.
        let padding = tokenizer.vocab_size() as TokenId;
        let scores = |top: &[(TokenId, f32)]| TokenLogprobs {
            logprob: -4.0,
            rank: 9,
            top: top.to_vec(),
        };
        let several = scores(&[
            (of(b"\xf0"), -0.5),
            (of(b"\x9f"), -1.0),
            (padding, -1.5),
            (padding + 1, -2.0),
        ]);
        let own = scores(&[]);
        let alike = scores(&[(padding, -1.5)]);
        let scored = [
            (of(b"a"), None),
            (of(b"b"), Some(&several)),
            (of(b"\x90"), Some(&own)),
            (padding + 1, Some(&alike)),
        ];
        let said = json!(completion(&scored, &[0, 1, 2, 2], &tokenizer));
        assert_eq!(
            said,
            json!({
                "text_offset": [0, 1, 2, 2],
                "token_logprobs": [null, -4.0, -4.0, -4.0],
                "top_logprobs": [
                    null,
                    {"bytes:\\xf0": -0.5, "bytes:\\x9f": -1.0, "": -1.5, "b": -4.0},
                    {"bytes:\\x90": -4.0},
                    {"": -1.5},
                ],
                "tokens": ["a", "b", "bytes:\\x90", ""],
            })
        );
        assert_eq!(
            json!(chat(&scored, &tokenizer))["content"][1]["bytes"],
            json!([0x90])
        );
    }
}
