//! One answer's form: which tokens may come next, bans and ends considered, and when it is whole.
//! Depends on the answer's tokens alone, so that whatever happens to their computation changes
//! nothing. Knows neither scheduler nor step.

use super::GrammarMatcher;
use crate::types::{SamplingParams, StructuredOutputError, TokenId, TokenMask};

/// The form of one answer, and where the answer stands. A copy is another answer that stands there.
#[derive(Clone, Debug)]
pub struct Constraint {
    matcher: GrammarMatcher,
    /// End the answer, and may come where it is whole.
    stop_ids: Vec<TokenId>,
    /// Would be part of the answer, and never are.
    ignored_ids: Vec<TokenId>,
    /// May not come before `min_tokens`.
    held_ids: Vec<TokenId>,
    min_tokens: usize,
    bad_words: Vec<Vec<TokenId>>,
    output: Vec<TokenId>,
    mask: TokenMask,
}

impl Constraint {
    /// An answer not yet begun, whose request has these parameters; `eos` end a generation.
    ///
    /// # Errors
    /// [`StructuredOutputError::NothingAllowed`] where it cannot begin.
    pub fn new(
        matcher: GrammarMatcher,
        params: &SamplingParams,
        eos: &[TokenId],
    ) -> Result<Self, StructuredOutputError> {
        let mut stop_ids = params.stop_token_ids.clone();
        let mut ignored_ids = eos.to_vec();
        if params.ignore_eos {
            ignored_ids.retain(|id| !stop_ids.contains(id));
        } else {
            stop_ids.append(&mut ignored_ids);
        }
        let name = matcher.name;
        let mut new = Self {
            matcher,
            held_ids: [&params.stop_token_ids, eos].concat(),
            stop_ids,
            ignored_ids,
            min_tokens: params.min_tokens,
            bad_words: params.bad_words.clone(),
            output: Vec::new(),
            mask: TokenMask::new(Vec::new()),
        };
        match new.look_ahead()? {
            true => Err(StructuredOutputError::NothingAllowed { name }),
            false => Ok(new),
        }
    }

    /// The tokens that may be drawn now.
    pub fn mask(&self) -> &TokenMask {
        &self.mask
    }

    /// Goes on by the token that was drawn, which is none that ends the answer. Says whether the
    /// answer is whole and nothing may follow.
    ///
    /// # Errors
    /// The answer cannot go on, or only at too high a price.
    pub fn accept(&mut self, id: TokenId) -> Result<bool, StructuredOutputError> {
        self.matcher.accept(id)?;
        self.output.push(id);
        self.look_ahead()
    }

    /// Finds the next mask; says whether the answer is whole and nothing may follow.
    fn look_ahead(&mut self) -> Result<bool, StructuredOutputError> {
        if self.matcher.is_complete() {
            return Ok(true);
        }
        let mut words = self.matcher.mask()?;
        let whole = self.matcher.accepts()?;
        if whole {
            // The library allows end-of-generation ids here.
            self.ignored_ids
                .iter()
                .for_each(|&id| set(&mut words, id, false));
            self.stop_ids
                .iter()
                .for_each(|&id| set(&mut words, id, true));
        }
        let mut left = words.clone();
        self.banned().for_each(|id| set(&mut left, id, false));
        if left.iter().all(|word| *word == 0) {
            let name = self.matcher.name;
            return match whole {
                true => Ok(true),
                false => Err(StructuredOutputError::NothingAllowed { name }),
            };
        }
        self.mask = TokenMask::new(words);
        Ok(false)
    }

    /// What is banned from the next draw by other means, as [`logit_edits`](crate::sample::logit_edits)
    /// does it.
    fn banned(&self) -> impl Iterator<Item = TokenId> {
        let held = match self.output.len() < self.min_tokens {
            true => self.held_ids.as_slice(),
            false => &[],
        };
        let words = self.bad_words.iter().filter_map(|word| {
            let (last, before) = word.split_last()?;
            self.output.ends_with(before).then_some(*last)
        });
        held.iter().copied().chain(words)
    }
}

fn set(words: &mut [u32], id: TokenId, allowed: bool) {
    if let Some(word) = words.get_mut(id as usize / 32) {
        let bit = 1 << (id % 32);
        match allowed {
            true => *word |= bit,
            false => *word &= !bit,
        }
    }
}
