//! Log-probabilities as OpenAI's chat and completion bodies write them, and a prompt's as vLLM does: each as it is
//! written, as all of them as JSON values would take a hundred times the room that they have before. Knows tokens only
//! to spell them.

use serde::Serialize;
use serde_json::{Value, json};
use twoclock_core::engine::Completion;
use twoclock_core::text::Tokenizer;
use twoclock_core::types::{TokenId, TokenLogprobs};

use super::each::Each;

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

/// In a completion's form. `offset` is where in the text the first of them begins, in characters.
pub(super) fn completion(
    scored: &[Scored<'_>],
    offset: usize,
    tokenizer: &Tokenizer,
) -> impl Serialize {
    #[derive(Serialize)]
    struct OfCompletion<A, B, C, D> {
        text_offset: A,
        token_logprobs: B,
        top_logprobs: C,
        tokens: D,
    }
    let texts = move || scored.iter().map(move |(id, _)| spelled(*id, tokenizer));
    let top = |logprobs: &TokenLogprobs| -> Value {
        let top = logprobs.top.iter();
        let top = top.map(|&(id, logprob)| (spelled(id, tokenizer), json!(logprob)));
        Value::Object(top.collect())
    };
    OfCompletion {
        text_offset: Each(move || {
            texts().scan(offset, |offset, text| {
                let before = *offset;
                *offset += text.chars().count();
                Some(before)
            })
        }),
        token_logprobs: Each(move || {
            let own = scored.iter();
            own.map(|(_, logprobs)| json!(logprobs.map(|l| l.logprob)))
        }),
        top_logprobs: Each(move || scored.iter().map(move |(_, logprobs)| logprobs.map(top))),
        tokens: Each(texts),
    }
}

/// Where in a text what follows these tokens begins that begin at `offset`, in characters.
pub(super) fn offset_behind(scored: &[Scored<'_>], offset: usize, tokenizer: &Tokenizer) -> usize {
    let lengths = scored
        .iter()
        .map(|(id, _)| spelled(*id, tokenizer).chars().count());
    offset + lengths.sum::<usize>()
}
