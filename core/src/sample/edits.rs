//! Which logits a request changes before a token is drawn, and how: bans, biases and penalties as
//! one sparse list. Knows no device.

use crate::types::{SamplingHistory, SamplingParams, TokenId};
use std::collections::BTreeMap;

/// What happens to the logit x of one token: `x + bias`; then divided by `repetition` where it is
/// positive, else multiplied by it; then less `minus`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitEdit {
    /// Whose logit.
    pub token_id: TokenId,
    /// It may not be drawn, whatever else is said.
    pub banned: bool,
    /// From `logit_bias`.
    pub bias: f32,
    /// Of tokens in prompt and output; 1 for others.
    pub repetition: f32,
    /// `frequency_penalty` · count + `presence_penalty`, of tokens in the output.
    pub minus: f32,
}

impl LogitEdit {
    /// The edit that changes nothing.
    pub fn none(token_id: TokenId) -> Self {
        Self {
            token_id,
            banned: false,
            bias: 0.0,
            repetition: 1.0,
            minus: 0.0,
        }
    }
}

/// The edits before the draw that follows `history`, one a token, by id.
///
/// As in vLLM: the repetition penalty counts prompt and output, the other two the output alone; a bad
/// word's last id is banned where the ids before it are the output's last.
pub fn logit_edits(params: &SamplingParams, history: &SamplingHistory) -> Vec<LogitEdit> {
    let mut edits = BTreeMap::new();
    let mut of = |id: TokenId, change: &dyn Fn(&mut LogitEdit)| {
        change(edits.entry(id).or_insert(LogitEdit::none(id)));
    };
    let ids = &history.token_ids;
    let output = &ids[history.num_prompt_tokens.min(ids.len())..];
    for &(id, bias) in &params.logit_bias {
        of(id, &|edit| edit.bias = bias);
    }
    if params.repetition_penalty != 1.0 {
        for &id in ids {
            of(id, &|edit| edit.repetition = params.repetition_penalty);
        }
    }
    if params.frequency_penalty != 0.0 || params.presence_penalty != 0.0 {
        let mut counts: BTreeMap<TokenId, f32> = BTreeMap::new();
        for &id in output {
            *counts.entry(id).or_default() += 1.0;
        }
        for (id, count) in counts {
            let minus = params.frequency_penalty * count + params.presence_penalty;
            of(id, &|edit| edit.minus = minus);
        }
    }
    for word in &params.bad_words {
        if let Some((&last, before)) = word.split_last()
            && output.ends_with(before)
        {
            of(last, &|edit| edit.banned = true);
        }
    }
    for &id in &history.held_ids {
        of(id, &|edit| edit.banned = true);
    }
    edits.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_what_it_counts() {
        let params = SamplingParams {
            repetition_penalty: 1.5,
            presence_penalty: 0.25,
            frequency_penalty: 0.5,
            logit_bias: vec![(7, -3.0), (2, 1.0)],
            bad_words: vec![
                vec![9],
                vec![2, 2, 8],
                vec![1, 2, 6],
                vec![2, 1, 2, 2, 2, 5],
            ],
            ..SamplingParams::default()
        };
        let history = SamplingHistory {
            token_ids: vec![1, 3, 2, 2],
            num_prompt_tokens: 2,
            held_ids: vec![0],
        };
        let none = LogitEdit::none;
        let ban = |id| LogitEdit {
            banned: true,
            ..none(id)
        };
        let seen = |id| LogitEdit {
            repetition: 1.5,
            ..none(id)
        };
        let expected = [
            ban(0),
            seen(1),
            LogitEdit {
                bias: 1.0,
                minus: 1.25,
                ..seen(2)
            },
            seen(3),
            LogitEdit {
                bias: -3.0,
                ..none(7)
            },
            ban(8),
            ban(9),
        ];
        assert_eq!(logit_edits(&params, &history), expected);
    }
}
