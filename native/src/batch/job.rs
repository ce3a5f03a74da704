//! Working through the requests: as many in the engine as keep it busy, each at its time, answers
//! written as they are ready. Knows the engine and no terminal.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pollster::block_on;
use twoclock_core::clock::Clock;
use twoclock_core::engine::{Completion, LlmEngine, Prompt, RequestMetrics, RequestOutput};
use twoclock_core::error::Error;
use twoclock_core::runner::ExecuteModel;
use twoclock_core::sched::{RequestError, RequestStatus};
use twoclock_core::text::{ChatTemplate, Tokenizer};
use twoclock_core::types::{FinishReason, RequestId, SamplingParams, TokenId};
use twoclock_core::weights::GenerationDefaults;

use super::answers::Answers;
use super::input::{BatchError, Entry, Framed, Input, Reading};
use super::seed::seed;
use super::summary::Summary;
use crate::openai::{Answered, Asked, Choice, Endpoint, Refusal, Serving, Usage, error_body};

/// Engine and surroundings of a batch.
pub struct Job<'a, R: ExecuteModel, C: Clock> {
    /// What answers.
    pub engine: &'a mut LlmEngine<R, C>,
    /// The model's chat template, where it has one.
    pub template: Option<&'a ChatTemplate>,
    /// What the model recommends.
    pub defaults: &'a GenerationDefaults,
    /// The model's name. It answers every request, whatever model that names.
    pub model: &'a str,
    /// Whether to stop; asked between steps.
    pub interrupted: &'a dyn Fn() -> bool,
    /// Lets a moment pass while no request's time has come.
    pub rest: &'a dyn Fn(),
    /// Told how many requests are over.
    pub told: &'a dyn Fn(usize),
}

/// A line whose answers are being computed.
struct Open {
    custom_id: String,
    asked: Asked,
    /// When it was due, where it said so; it may have been taken in a step later.
    arrival: Option<Duration>,
    requests: Vec<RequestId>,
    /// `n` for each request, in order.
    choices: Vec<Choice>,
    /// Those of them that are not over.
    num_left: usize,
}

/// All that is going on.
struct Work<'a> {
    answers: &'a mut Answers,
    /// The model that serves.
    model: &'a str,
    summary: &'a mut Summary,
    /// By line.
    open: BTreeMap<usize, Open>,
    /// The line of each request, and its first choice there.
    places: BTreeMap<RequestId, (usize, usize)>,
    /// Choices of all open lines.
    num_choices: usize,
    num_over: usize,
    /// Whether to stop.
    stopped: bool,
}

impl<R: ExecuteModel, C: Clock> Job<'_, R, C> {
    /// Answers all of `input`. A step that fails is the answer of the lines that took part in it.
    ///
    /// # Errors
    /// A file's, or the loss of the device.
    pub fn run(
        mut self,
        mut input: Input,
        answers: &mut Answers,
        summary: &mut Summary,
    ) -> anyhow::Result<()> {
        let mut work = Work {
            answers,
            model: self.model,
            summary,
            open: BTreeMap::new(),
            places: BTreeMap::new(),
            num_choices: 0,
            num_over: 0,
            stopped: false,
        };
        let entries = input.entries().to_vec();
        let mut entries = entries.into_iter().peekable();
        let start = self.engine.core().clock().now();
        let since = |engine: &LlmEngine<R, C>| engine.core().clock().now().saturating_sub(start);
        // What has come waits in the file and not in memory.
        let enough = 2 * self.engine.core().scheduler().config().max_num_seqs;
        loop {
            if self.is_stopped(&mut work) {
                work.summary.interrupted += work.open.len() + entries.len();
                self.give_up(&work);
                break;
            }
            let now = since(self.engine).as_secs_f64();
            let comes = |entry: &Entry| match entry.arrival {
                Some(arrival) => arrival <= now,
                None => true,
            };
            while !self.is_stopped(&mut work)
                && let Some(entry) =
                    entries.next_if(|entry| comes(entry) && work.num_choices < enough)
            {
                let arrival = entry.arrival.map(|s| start + Duration::from_secs_f64(s));
                match input.read(entry)? {
                    Reading::Framed(framed) => {
                        self.take_in(entry.line, framed, arrival, &mut work)?;
                    }
                    Reading::Unreadable { custom_id, cause } => {
                        work.refuse(&custom_id, &Refusal::sentence("body", cause))?;
                    }
                }
                (self.told)(work.num_over);
            }
            if self.engine.has_unfinished_requests() {
                match block_on(self.engine.step()) {
                    Ok(outputs) => {
                        for output in outputs {
                            self.deliver(output, &mut work)?;
                        }
                    }
                    Err(error) if is_loss(&error) => return Err(error.into()),
                    Err(error) => self.fail_step(&error, &mut work)?,
                }
            } else if entries.peek().is_none() {
                break;
            } else if !work.stopped && !entries.peek().is_some_and(comes) {
                (self.rest)();
            }
            work.summary.duration = since(self.engine);
        }
        let core = self.engine.core();
        work.summary.cache = core.scheduler().cache_metrics();
        work.summary.kv_waste = core.kv_slot_seconds().waste();
        Ok(())
    }

    /// Whether to stop, from now on.
    fn is_stopped(&self, work: &mut Work<'_>) -> bool {
        // Asked no more once it said so: what comes after that is meant for others.
        work.stopped = work.stopped || (self.interrupted)();
        work.stopped
    }

    /// Answers the lines that took part in a step that failed; the others go on.
    fn fail_step(&mut self, error: &Error, work: &mut Work<'_>) -> Result<(), BatchError> {
        let scheduler = self.engine.core().scheduler();
        let runs = |open: &Open| {
            let n = open.choices.len() / open.requests.len().max(1);
            let mut ids = open
                .requests
                .iter()
                .flat_map(|id| (id.0..).take(n).map(RequestId));
            ids.any(|id| {
                let request = scheduler.request(id);
                request.is_some_and(|request| request.status() == RequestStatus::Running)
            })
        };
        let lines = work.open.iter().filter(|(_, open)| runs(open));
        let mut lines: Vec<usize> = lines.map(|(line, _)| *line).collect();
        if lines.is_empty() {
            // Whoever it was: the same step would only fail again.
            lines.extend(work.open.keys());
        }
        for line in lines {
            if let Some(open) = work.close(line) {
                self.forget(&open, work);
                work.fail(&open.custom_id, &error.to_string())?;
            }
        }
        (self.told)(work.num_over);
        Ok(())
    }

    fn give_up(&mut self, work: &Work<'_>) {
        for &id in work.places.keys() {
            self.engine.abort(id);
        }
    }

    /// Adds a line's requests to the engine, or answers that it is none.
    fn take_in(
        &mut self,
        line: usize,
        framed: Framed,
        arrival: Option<Duration>,
        work: &mut Work<'_>,
    ) -> Result<(), BatchError> {
        let custom_id = framed.custom_id.clone();
        let asked = match self.understand(&framed) {
            Ok(asked) => asked,
            Err(refusal) => return work.refuse(&custom_id, &refusal),
        };
        let n = asked.params.n;
        let mut open = Open {
            custom_id,
            arrival,
            requests: Vec::new(),
            choices: Vec::new(),
            num_left: 0,
            asked,
        };
        let prompts = std::mem::take(&mut open.asked.prompts);
        for (place, prompt) in prompts.into_iter().enumerate() {
            // A body may ask for much.
            if self.is_stopped(work) {
                work.summary.interrupted += 1;
                self.forget(&open, work);
                return Ok(());
            }
            match self.add(prompt, &open.asked.params) {
                Ok((id, ids)) => {
                    work.places.insert(id, (line, open.choices.len()));
                    open.requests.push(id);
                    let echo = open.asked.echoes.get(place);
                    let metrics = RequestMetrics::new(self.engine.core().clock().now());
                    open.choices.extend((0..n).map(|index| Choice {
                        completion: Completion::new(id, index, ids.clone(), metrics),
                        text: echo.cloned().unwrap_or_default(),
                    }));
                }
                Err(error) => {
                    self.forget(&open, work);
                    return match open.asked.refusal(&error) {
                        Some(refusal) => work.refuse(&open.custom_id, &refusal),
                        None => work.fail(&open.custom_id, &error.to_string()),
                    };
                }
            }
        }
        open.num_left = open.choices.len();
        work.num_choices += open.choices.len();
        work.open.insert(line, open);
        Ok(())
    }

    fn add(
        &mut self,
        prompt: Prompt,
        params: &SamplingParams,
    ) -> Result<(RequestId, Vec<TokenId>), Error> {
        let ids = prompt.into_token_ids(self.engine.tokenizer())?;
        let prompt = Prompt::TokenIds(ids.clone());
        let id = self.engine.add_request(prompt, params.clone())?;
        Ok((id, ids))
    }

    fn understand(&self, framed: &Framed) -> Result<Asked, Refusal> {
        if framed.method != "POST" {
            return Err(Refusal::of("method", "must be \"POST\""));
        }
        let endpoint = framed.url.as_str().and_then(Endpoint::of_url);
        let endpoint = endpoint.ok_or_else(|| {
            let must = "must be /v1/chat/completions or /v1/completions";
            Refusal::of("url", must)
        })?;
        let serving = Serving {
            tokenizer: self.engine.tokenizer(),
            template: self.template,
            defaults: self.defaults,
            max_model_len: self.engine.core().scheduler().config().max_model_len,
            // A file's lines are bounded, and nobody else waits.
            max_prompt_bytes: None,
            heeds_priority: true,
        };
        Asked::read(endpoint, &framed.body, &serving, seed(&framed.custom_id))
    }

    fn deliver(&mut self, output: RequestOutput, work: &mut Work<'_>) -> Result<(), BatchError> {
        let Some(&(line, first)) = work.places.get(&output.output.request_id) else {
            return Ok(());
        };
        let Some(open) = work.open.get_mut(&line) else {
            return Ok(());
        };
        let choice = &mut open.choices[first + output.output.index];
        choice.text.push_str(&output.text);
        let failed = choice.completion.take(output.output).err();
        if failed.is_none() {
            open.num_left -= usize::from(choice.completion.finish_reason.is_some());
            if open.num_left > 0 {
                return Ok(());
            }
        }
        let Some(open) = work.close(line) else {
            return Ok(());
        };
        self.forget(&open, work);
        let result = match failed {
            // What shows only while an answer is drawn may be the request's fault as well.
            Some(
                error @ (RequestError::StructuredOutput(_) | RequestError::EverythingBanned { .. }),
            ) => work.refuse(&open.custom_id, &Refusal::general(error)),
            Some(error) => work.fail(&open.custom_id, &error.to_string()),
            None => work.complete(&open, self.engine.tokenizer()),
        };
        (self.told)(work.num_over);
        result
    }

    /// Lets the engine go of a line's requests, whatever is left of them.
    fn forget(&mut self, open: &Open, work: &mut Work<'_>) {
        let n = open.choices.len() / open.requests.len().max(1);
        for (index, id) in open.requests.iter().enumerate() {
            work.places.remove(id);
            let mut choices = open.choices[index * n..][..n].iter();
            // What is over is not looked for.
            if choices.any(|choice| choice.completion.finish_reason.is_none()) {
                self.engine.abort(*id);
            }
        }
    }
}

/// Whether there is no device any more to go on with.
fn is_loss(error: &Error) -> bool {
    error.is_device_lost() || matches!(error, Error::NoOtherDevice { .. })
}

impl Work<'_> {
    /// A line is no longer open.
    fn close(&mut self, line: usize) -> Option<Open> {
        let open = self.open.remove(&line)?;
        self.num_choices -= open.choices.len();
        Some(open)
    }

    fn refuse(&mut self, custom_id: &str, refusal: &Refusal) -> Result<(), BatchError> {
        self.num_over += 1;
        self.summary.failed += 1;
        let body = error_body(400, &refusal.to_string(), refusal.param.as_deref(), None);
        self.answers.write(custom_id, 400, &body)
    }

    fn fail(&mut self, custom_id: &str, message: &str) -> Result<(), BatchError> {
        self.num_over += 1;
        self.summary.failed += 1;
        self.answers
            .write(custom_id, 500, &error_body(500, message, None, None))
    }

    fn complete(&mut self, open: &Open, tokenizer: &Tokenizer) -> Result<(), BatchError> {
        self.num_over += 1;
        self.summary.completed += 1;
        let mut usage = Usage::default();
        for choice in &open.choices {
            let completion = &choice.completion;
            debug_assert_ne!(completion.finish_reason, Some(FinishReason::Abort));
            usage.completion_tokens += completion.token_ids.len();
            if completion.index == 0 {
                usage.prompt_tokens += completion.prompt_token_ids.len();
                usage.cached_tokens += completion.num_cached_tokens;
            }
            self.summary.record(&RequestMetrics {
                arrival: open.arrival.unwrap_or(completion.metrics.arrival),
                ..completion.metrics
            });
        }
        self.summary.usage.prompt_tokens += usage.prompt_tokens;
        self.summary.usage.completion_tokens += usage.completion_tokens;
        self.summary.usage.cached_tokens += usage.cached_tokens;
        let prefix = match open.asked.endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completions => "cmpl",
        };
        let id = format!("{prefix}-{}", self.answers.next_number());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let created = now.unwrap_or(Duration::ZERO).as_secs();
        let answered = Answered {
            endpoint: open.asked.endpoint,
            id: &id,
            created,
            model: self.model,
            choices: &open.choices,
            usage,
            scores_prompt: open.asked.scores_prompt,
            scored_echoes: open.asked.scored_echoes(),
            format: &open.asked.format,
            tokenizer,
        };
        self.answers.write(&open.custom_id, 200, &answered)
    }
}
