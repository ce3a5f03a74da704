//! OpenAI's chunks as events of a stream, up to `[DONE]`.

use axum::response::sse::Event;
use serde_json::Value;
use twoclock_core::engine::RequestOutput;
use twoclock_core::sched::RequestError;
use twoclock_core::text::Tokenizer;

use super::api_error::ApiError;
use super::job::Job;
use super::stream::Tell;
use crate::openai::chunk::{Chunks, Echo};

/// Tells a chat's or a completion's answer.
#[derive(Debug)]
pub struct Teller {
    chunks: Chunks,
    /// Tokens of each prompt.
    num_prompt_tokens: Vec<usize>,
    include_usage: bool,
}

impl Teller {
    /// Of the answers to this job.
    pub fn new(job: &mut Job) -> Self {
        let asked = &mut job.asked;
        let (id, model) = (job.id.clone(), job.lease.name().to_owned());
        let mut chunks = Chunks::new(asked.endpoint, id, job.created, model, asked.params.n);
        chunks.include_usage = asked.include_usage;
        chunks.format = std::mem::take(&mut asked.format);
        let num_prompt_tokens = job.prompts.iter().map(Vec::len).collect();
        let is_scored = !asked.scored_echoes().is_empty();
        let prompts = std::mem::take(&mut job.prompts);
        let echoes = std::mem::take(&mut asked.echoes).into_iter().zip(prompts);
        chunks.echoes = echoes
            .map(|(text, ids)| Echo::new(text, ids, is_scored))
            .collect();
        Self {
            chunks,
            num_prompt_tokens,
            include_usage: asked.include_usage,
        }
    }
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

impl Tell for Teller {
    fn gained(
        &mut self,
        prompt: usize,
        gained: RequestOutput,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<Event>, RequestError> {
        let num_prompt_tokens = self.num_prompt_tokens[prompt];
        let pieces = self
            .chunks
            .pieces(prompt, num_prompt_tokens, gained, tokenizer)?;
        Ok(pieces.iter().map(event).collect())
    }

    fn end(&mut self, _: &Tokenizer) -> Vec<Event> {
        let usage = self.include_usage.then(|| event(&self.chunks.usage()));
        let done = Event::default().data("[DONE]");
        usage.into_iter().chain([done]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![event(&error.body()), Event::default().data("[DONE]")]
    }
}
