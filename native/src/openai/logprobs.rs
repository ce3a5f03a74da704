//! Log-probabilities as OpenAI's chat and completion bodies write them, and a prompt's as vLLM does.
//! Knows tokens only to spell them.

use serde_json::{Value, json};
use twoclock_core::engine::Completion;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{TokenId, TokenLogprobs};

/// A token and how likely it was; the first of a prompt follows nothing, and is not.
pub(super) type Scored<'a> = (TokenId, Option<&'a TokenLogprobs>);

fn spelled(id: TokenId, tokenizer: &Tokenizer) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
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

/// Of each prompt token but the first: its own and the best ones by id. A token's rank is known where
/// it is among those.
pub(super) fn of_prompt(completion: &Completion, tokenizer: &Tokenizer) -> Value {
    let scored = completion.prompt_token_ids.iter().skip(1).copied();
    let positions = scored.zip(&completion.prompt_logprobs).map(|(id, scores)| {
        let rank = |id| scores.top.iter().position(|(best, _)| *best == id);
        let best = scores.top.iter().copied().filter(|(best, _)| *best != id);
        let all = std::iter::once((id, scores.logprob)).chain(best);
        let all = all.map(|(id, logprob)| {
            let one = json!({
                "logprob": logprob,
                "rank": rank(id).map(|above| above + 1),
                "decoded_token": spelled(id, tokenizer),
            });
            (id.to_string(), one)
        });
        Value::Object(all.collect())
    });
    std::iter::once(Value::Null).chain(positions).collect()
}

/// In a chat's form.
pub(super) fn chat(scored: &[Scored<'_>], tokenizer: &Tokenizer) -> Value {
    let one = |id: TokenId, logprob: f32| {
        json!({
            "token": spelled(id, tokenizer),
            "logprob": logprob,
            "bytes": tokenizer.token_bytes(id),
        })
    };
    let positions = scored.iter().filter_map(|(id, logprobs)| {
        let logprobs = (*logprobs)?;
        let mut position = one(*id, logprobs.logprob);
        let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
        position["top_logprobs"] = top.collect();
        Some(position)
    });
    json!({"content": positions.collect::<Vec<_>>()})
}

/// In a completion's form. `offset` is where in the text the first of them begins, and then where the
/// next would, in characters.
pub(super) fn completion(
    scored: &[Scored<'_>],
    offset: &mut usize,
    tokenizer: &Tokenizer,
) -> Value {
    let texts = scored.iter().map(|(id, _)| spelled(*id, tokenizer));
    let texts: Vec<String> = texts.collect();
    let offsets = texts.iter().map(|text| {
        let before = *offset;
        *offset += text.chars().count();
        before
    });
    let offsets: Vec<usize> = offsets.collect();
    let top = |logprobs: &TokenLogprobs| -> Value {
        let top = logprobs.top.iter();
        let top = top.map(|&(id, logprob)| (spelled(id, tokenizer), json!(logprob)));
        Value::Object(top.collect())
    };
    let tops = scored.iter().map(|(_, logprobs)| logprobs.map(top));
    let own = scored
        .iter()
        .map(|(_, logprobs)| logprobs.map(|l| l.logprob));
    json!({
        "text_offset": offsets,
        "token_logprobs": own.collect::<Vec<_>>(),
        "top_logprobs": tops.collect::<Vec<_>>(),
        "tokens": texts,
    })
}
