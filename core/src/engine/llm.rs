//! The engine with its tokenizer: prompts in, text out, on the caller's thread. Knows no chat and
//! no protocol.

use super::completion::Completion;
use super::core::{EngineCore, EngineOutput, num_answers};
use super::output_processor::{OutputProcessor, RequestOutput, TextStream};
use super::pooling::Embedding;
use super::recovery::{Recovery, RetryPolicy, RunnerFactory};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::runner::ExecuteModel;
use crate::sample::grammar::Constraint;
use crate::sched::{Ahead, RequestError};
use crate::text::{RenderedPrompt, TextError, Tokenizer};
use crate::types::{FinishReason, PoolingParams, RequestId, SamplingParams, TokenId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a request continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text as it is. The tokens a model expects around a text (such as the beginning of sequence)
    /// are added, and the texts of special tokens are read as those tokens.
    Text(String),
    /// Text out of a chat template, which has put all special tokens into it.
    Templated(RenderedPrompt),
    /// Ids as they are.
    TokenIds(Vec<TokenId>),
}

impl Prompt {
    /// Its ids.
    ///
    /// # Errors
    /// The tokenizer's.
    pub fn into_token_ids(self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TextError> {
        match self {
            Self::Text(text) => tokenizer.encode(&text, true, true),
            Self::Templated(p) => tokenizer.encode_with_literals(&p.text, &p.literal),
            Self::TokenIds(ids) => Ok(ids),
        }
    }
}

/// An answer and its text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextCompletion {
    /// The tokens.
    pub completion: Completion,
    /// Their text, special tokens left out.
    pub text: String,
}

/// An engine that speaks text.
pub struct LlmEngine<R: ExecuteModel, C> {
    core: EngineCore<R, C>,
    tokenizer: Arc<Tokenizer>,
    processor: OutputProcessor,
    recovery: Recovery<R>,
}

impl<R: ExecuteModel, C: Clock> LlmEngine<R, C> {
    /// Gives an engine a tokenizer, which must be its model's. What it knows to end a generation
    /// ends one from now on, beside what the model's configuration names.
    pub fn new(mut core: EngineCore<R, C>, tokenizer: impl Into<Arc<Tokenizer>>) -> Self {
        let tokenizer = tokenizer.into();
        core.end_at(tokenizer.eog());
        Self {
            core,
            tokenizer,
            processor: OutputProcessor::new(),
            recovery: Recovery::none(),
        }
    }

    /// Says where another runner comes from when a device is lost. [`step`](Self::step),
    /// [`generate`](Self::generate) and [`embed`](Self::embed) then go on by themselves, with the same tokens as if nothing had been.
    #[must_use]
    pub fn with_factory<F>(mut self, factory: F, retry: RetryPolicy) -> Self
    where
        F: RunnerFactory<Runner = R> + 'static,
    {
        self.recovery = Recovery::new(factory, retry);
        self
    }

    /// The engine below.
    pub fn core(&self) -> &EngineCore<R, C> {
        &self.core
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The tokenizer, to keep.
    pub fn shared_tokenizer(&self) -> Arc<Tokenizer> {
        Arc::clone(&self.tokenizer)
    }

    /// Lets the engine know the tokens' texts, once somebody's answer has a form.
    fn give_vocabulary(&mut self, params: &SamplingParams) {
        let core = &self.core;
        let compiler = &core.constraints.compiler;
        compiler.learn(
            params,
            core.vocab_size,
            &core.eos_token_ids,
            &self.tokenizer,
        );
    }

    /// Queues a request.
    ///
    /// # Errors
    /// The tokenizer's, and those of [`EngineCore::add_request`].
    pub fn add_request(&mut self, prompt: Prompt, params: SamplingParams) -> Result<RequestId> {
        let ids = prompt.into_token_ids(&self.tokenizer)?;
        self.give_vocabulary(&params);
        self.add(Arc::new(params), |core, params| {
            core.add_request(ids, params)
        })
    }

    /// Queues a request that was checked, with the form of its answers, behind others that came with it; and when it came.
    ///
    /// # Errors
    /// Those of [`EngineCore::add_checked`].
    pub(super) fn add_checked(
        &mut self,
        prompt_token_ids: Vec<TokenId>,
        params: Arc<SamplingParams>,
        form: Option<Arc<Constraint>>,
        ahead: Ahead,
        arrival: Duration,
    ) -> Result<RequestId> {
        self.add(params, |core, params| {
            core.add_checked(prompt_token_ids, params, form, ahead, arrival)
        })
    }

    fn add(
        &mut self,
        params: Arc<SamplingParams>,
        to: impl FnOnce(&mut EngineCore<R, C>, Arc<SamplingParams>) -> Result<RequestId, RequestError>,
    ) -> Result<RequestId> {
        let streams = (0..num_answers(&params)).map(|_| TextStream::new(&params));
        let streams: Vec<_> = streams.collect();
        let id = to(&mut self.core, params)?;
        for (index, stream) in streams.into_iter().enumerate() {
            self.processor.expect(id, index, stream);
        }
        Ok(id)
    }

    /// Ends a request at once, as [`EngineCore::abort`].
    pub fn abort(&mut self, id: RequestId) -> Vec<RequestOutput> {
        self.end(id, FinishReason::Abort)
    }

    /// Ends a request at once for a reason.
    pub(super) fn end(&mut self, id: RequestId, reason: FinishReason) -> Vec<RequestOutput> {
        let outputs = self.core.end_all(id, reason).into_iter();
        let text = |output| self.processor.process(&self.tokenizer, output);
        outputs.map(text).collect()
    }

    /// Ends a request with the step that failed, without a word: it counts as an error.
    pub(super) fn fail(&mut self, id: RequestId) {
        self.core.fail(id);
        self.processor.forget(id);
    }

    /// The engine below, for a driver.
    pub(super) fn core_mut(&mut self) -> &mut EngineCore<R, C> {
        &mut self.core
    }

    /// Whether a step has anything to compute or to say.
    pub fn has_unfinished_requests(&self) -> bool {
        self.core.has_unfinished_requests()
    }

    /// Computes one step and says what it brought, as [`EngineCore::step`]. A lost device is replaced
    /// where a factory was given; nothing is told of it then.
    ///
    /// # Errors
    /// The device's, and the factory's when no other device is to be had; the next call computes the
    /// same step again.
    pub async fn step(&mut self) -> Result<Vec<RequestOutput>> {
        loop {
            match self.try_step().await {
                Err(error) if error.is_device_lost() => self.recover(error).await?,
                other => return other,
            }
        }
    }

    /// Replaces the runner, whose device was lost in this way.
    ///
    /// # Errors
    /// There is no factory, or it was tried as often as the policy has it.
    pub(super) async fn recover(&mut self, lost: Error) -> Result<()> {
        self.recovery.replace_runner(&mut self.core, lost).await
    }

    /// One step, without another device when this one is lost.
    pub(super) async fn try_step(&mut self) -> Result<Vec<RequestOutput>> {
        let mut outputs = Vec::new();
        let brought = self.core.step().await?;
        self.recovery.succeeded();
        let mut stopped = BTreeSet::new();
        for output in brought {
            let its = (output.request_id, output.index);
            if stopped.contains(&its) {
                // Computed while a call of its own was waited for, before anybody saw the stop string.
                continue;
            }
            let goes_on = output.finished.is_none();
            let output = self.processor.process(&self.tokenizer, output);
            if goes_on && output.output.finished.is_some() {
                self.core.stop(its.0, its.1);
                stopped.insert(its);
            }
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Steps until all these prompts have their embeddings, in their order, as [`EngineCore::embed`]. A
    /// lost device is replaced as in [`step`](Self::step).
    ///
    /// # Errors
    /// The device's, as a whole; a prompt's own in its place.
    pub async fn embed(
        &mut self,
        prompts: Vec<(Prompt, PoolingParams)>,
    ) -> Result<Vec<Result<Embedding>>> {
        let mut requests = Vec::new();
        let mut refused = Vec::new();
        for (prompt, params) in prompts {
            match prompt.into_token_ids(&self.tokenizer) {
                Ok(ids) => {
                    requests.push((ids, params));
                    refused.push(None);
                }
                Err(error) => refused.push(Some(error)),
            }
        }
        let embeddings = self.core.embed_with(requests, &mut self.recovery).await?;
        let mut embeddings = embeddings.into_iter();
        let answers = refused.into_iter().map(|refused| match refused {
            Some(error) => Err(error.into()),
            None => Ok(embeddings.next().expect("one for each request")?),
        });
        Ok(answers.collect())
    }

    /// Steps until all these prompts are answered, in their order, as [`EngineCore::generate`]; one
    /// that is no tokens has one answer, its error. A lost device is replaced as in
    /// [`step`](Self::step).
    ///
    /// # Errors
    /// The device's, as a whole; a prompt's own in its place.
    pub async fn generate(
        &mut self,
        prompts: Vec<(Prompt, SamplingParams)>,
    ) -> Result<Vec<Result<TextCompletion>>> {
        let mut requests = Vec::new();
        // Of each prompt why it is refused, or how many answers it has.
        let mut expected = Vec::new();
        let mut streams = Vec::new();
        for (prompt, params) in prompts {
            match prompt.into_token_ids(&self.tokenizer) {
                Ok(ids) => {
                    self.give_vocabulary(&params);
                    let n = num_answers(&params);
                    expected.push(Ok(n));
                    streams.extend((0..n).map(|_| (TextStream::new(&params), String::new())));
                    requests.push((ids, params));
                }
                Err(error) => expected.push(Err(error)),
            }
        }
        let tokenizer = &self.tokenizer;
        let stop = |place: usize, output: &EngineOutput| {
            let (stream, text): &mut (TextStream, String) = &mut streams[place];
            let (piece, stopped) = stream.push(tokenizer, output);
            text.push_str(&piece);
            stopped
        };
        let recovery = &mut self.recovery;
        let answers = self.core.generate_until(requests, recovery, stop).await?;
        let mut answers = answers.into_iter().zip(streams);
        let mut texts = Vec::new();
        for expected in expected {
            match expected {
                Err(error) => texts.push(Err(error.into())),
                Ok(n) => texts.extend(answers.by_ref().take(n).map(|(completion, (_, text))| {
                    let completion = completion?;
                    Ok(TextCompletion { completion, text })
                })),
            }
        }
        Ok(texts)
    }
}
