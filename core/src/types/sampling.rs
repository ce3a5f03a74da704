//! What a request asks of the draw of its tokens, and what a step carries of it. Plain data; what
//! the values mean for logits is `sample`'s, and for text the output processor's.

use super::{StructuredOutput, TokenId, TokenMask};
use std::sync::Arc;

/// How one request draws its tokens and when it ends.
///
/// Names, order and meaning are vLLM's: the answer's form, bans and [`logit_bias`](Self::logit_bias),
/// then penalties, then [`temperature`](Self::temperature), `min_p`, `top_k`, `top_p`, then the draw. At
/// temperature 0 the last three change nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits before drawing; 0 takes the largest logit (lowest id on a tie).
    pub temperature: f32,
    /// Draw from so many of the largest logits, and what equals the last of them; 0 from all.
    pub top_k: usize,
    /// Draw from the likeliest tokens that together have this probability; 1 from all.
    pub top_p: f32,
    /// Draw from tokens at least so likely, as a share of the likeliest one's probability.
    pub min_p: f32,
    /// Over 1 makes tokens of the prompt and the output less likely: positive logits are divided by
    /// it, others multiplied.
    pub repetition_penalty: f32,
    /// Taken off the logit of every token that is in the output.
    pub presence_penalty: f32,
    /// Taken off the logit of a token as often as it is in the output.
    pub frequency_penalty: f32,
    /// Added to the logits of these ids, each of which stands here once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The form of the answer: tokens that would leave it are not drawn, and a whole answer that
    /// nothing may follow ends. Bans win, and `max_tokens` may cut it.
    pub structured_output: Option<StructuredOutput>,
    /// Sequences that do not appear in the output: the last id of one is not drawn right after the
    /// others.
    pub bad_words: Vec<Vec<TokenId>>,
    /// Seeds the noise, which is a hash of (seed, position, token): the same seed gives the same
    /// tokens in any batch.
    pub seed: u64,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// So many tokens are generated before anything but a length ends the request.
    pub min_tokens: usize,
    /// Token ids that end the request; the id itself is not part of the answer.
    pub stop_token_ids: Vec<TokenId>,
    /// Texts that end the request; the answer's text ends before the first of them. Only an engine
    /// with a tokenizer sees them.
    pub stop: Vec<String>,
    /// Keep the stop string at the end of the answer's text.
    pub include_stop_str_in_output: bool,
    /// Leave special tokens out of the answer's text.
    pub skip_special_tokens: bool,
    /// Go on past end-of-generation ids (they then are part of the answer).
    pub ignore_eos: bool,
    /// Report the log-probabilities of the chosen token and of this many best ones, a step. They are
    /// the model's own: before bans, penalties and temperature.
    pub logprobs: Option<usize>,
    /// Report the log-probability of every prompt token after the first, given those before it, and
    /// those of this many best ones at its place.
    pub prompt_logprobs: Option<usize>,
    /// Answers to draw; each has a seed of its own, derived from `seed`, and the first has `seed`
    /// itself. The prompt is computed once.
    pub n: usize,
    /// Requests share cached beginnings only with those of the same salt, so that nobody learns
    /// from the time an answer takes what others have asked.
    pub cache_salt: Option<String>,
    /// Lower comes first, from -100 to 100. A level is worth a fixed number of steps of waiting
    /// ([`STEPS_A_PRIORITY`](crate::sched::STEPS_A_PRIORITY)), so that nothing waits for ever; of one
    /// level the first to come is first. It changes no token.
    pub priority: i32,
}

/// Bounds of what every answer of a request holds for itself and every token is held against, so that one
/// request neither fills memory nor holds up the others.
impl SamplingParams {
    /// Most answers, [`n`](Self::n), as OpenAI's protocol has it.
    pub const MAX_ANSWERS: usize = 128;
    /// Highest and, below 0, lowest [`priority`](Self::priority).
    pub const MAX_PRIORITY: i32 = 100;
    /// Most strings in [`stop`](Self::stop).
    pub const MAX_STOPS: usize = 256;
    /// Most bytes of all of them.
    pub const MAX_STOP_BYTES: usize = 1 << 14;
    /// Most ids in [`stop_token_ids`](Self::stop_token_ids).
    pub const MAX_STOP_IDS: usize = 1024;
    /// Most sequences in [`bad_words`](Self::bad_words).
    pub const MAX_BAD_WORDS: usize = 2048;
    /// Most ids of all of them.
    pub const MAX_BAD_WORD_IDS: usize = 1 << 14;
    /// Most ids in [`logit_bias`](Self::logit_bias).
    pub const MAX_BIASES: usize = 4096;
    /// Most bytes of [`cache_salt`](Self::cache_salt).
    pub const MAX_SALT_BYTES: usize = 1024;
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            structured_output: None,
            bad_words: Vec::new(),
            seed: 0,
            max_tokens: 128,
            min_tokens: 0,
            stop_token_ids: Vec::new(),
            stop: Vec::new(),
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            ignore_eos: false,
            logprobs: None,
            prompt_logprobs: None,
            n: 1,
            cache_salt: None,
            priority: 0,
        }
    }
}

impl SamplingParams {
    /// About the bytes that these parameters take, however many requests share them.
    pub fn num_bytes(&self) -> usize {
        let form = self.structured_output.as_ref();
        let words = self.bad_words.iter().map(|word| size_of_val(&word[..]));
        let salt = self.cache_salt.as_ref().map_or(0, String::len);
        size_of::<Self>()
            + self.num_ending_bytes()
            + form.map_or(0, StructuredOutput::num_bytes)
            + size_of_val(&self.logit_bias[..])
            + size_of_val(&self.bad_words[..])
            + words.sum::<usize>()
            + salt
    }

    /// Of them those of what ends an answer.
    pub fn num_ending_bytes(&self) -> usize {
        let stops = self.stop.iter().map(String::len).sum::<usize>();
        size_of_val(&self.stop_token_ids[..]) + size_of_val(&self.stop[..]) + stops
    }

    /// Whether the logits of single tokens are changed before the draw that follows `num_output`
    /// output tokens.
    pub fn edits_logits(&self, num_output: usize) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
            || !self.logit_bias.is_empty()
            || !self.bad_words.is_empty()
            || num_output < self.min_tokens
    }

    /// Whether a draw depends on which tokens were drawn before it, beyond the logits: the host must then
    /// know all of them before that draw is launched.
    pub fn draws_from_history(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
            || self.bad_words.iter().any(|word| word.len() > 1)
            || self.structured_output.is_some()
    }
}

/// What a sampler must know of a request in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingInputs {
    /// How to draw, as all answers of a request do.
    pub params: Arc<SamplingParams>,
    /// Seeds the noise of this one.
    pub seed: u64,
    /// Token ids that end the request.
    pub stop_ids: Arc<[TokenId]>,
    /// Tokens that it may still draw, in this step and later ones.
    pub num_remaining_tokens: usize,
    /// What bans and penalties depend on, where there are any and a token is drawn.
    pub history: Option<SamplingHistory>,
    /// The tokens that may be drawn, where the answer has a form.
    pub mask: Option<TokenMask>,
}

/// The tokens before a drawn one.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingHistory {
    /// Prompt and output.
    pub token_ids: Vec<TokenId>,
    /// How many of them are the prompt's.
    pub num_prompt_tokens: usize,
    /// Ids that may not be drawn yet, as they would end the request: see
    /// [`SamplingParams::min_tokens`].
    pub held_ids: Vec<TokenId>,
}
