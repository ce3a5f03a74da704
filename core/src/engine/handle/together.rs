//! Requests that come as one, such as the prompts of one body. Owns that they stand in the queue as one: were each
//! held against its length, more than it holds could never be taken, however often they came again.

use super::{EngineHandle, LastHandle, RequestStream, SubmitError, Wish};
use crate::engine::{Prompt, sampling_check};
use crate::sched::RequestError;
use crate::types::{PoolingParams, SamplingParams, TokenId};

/// Takes requests of which the first needs room in the queue. How many follow is the caller's to bound.
#[derive(Debug)]
pub struct Together<'a> {
    handle: &'a EngineHandle,
    /// One of them was taken.
    has_room: bool,
}

impl<'a> Together<'a> {
    pub(super) fn new(handle: &'a EngineHandle) -> Self {
        Self {
            handle,
            has_room: false,
        }
    }

    /// As [`EngineHandle::submit`].
    ///
    /// # Errors
    /// Likewise; that the queue is full only for the first.
    pub fn submit(
        &mut self,
        prompt: Prompt,
        params: SamplingParams,
    ) -> Result<RequestStream, SubmitError> {
        let LastHandle {
            tokenizer,
            vocab_size,
            eos_token_ids,
            compiler,
            ..
        } = &*self.handle.last;
        let ids = self.ids(prompt)?;
        sampling_check::check(&params, *vocab_size).map_err(SubmitError::refused)?;
        compiler.learn(&params, *vocab_size, eos_token_ids, tokenizer);
        let forms = compiler
            .compile(&params, eos_token_ids)
            .map_err(|error| SubmitError::refused(RequestError::from(error)))?;
        self.take(ids, Wish::Answers(Box::new(params), forms))
    }

    /// As [`EngineHandle::submit_pooling`].
    ///
    /// # Errors
    /// Likewise; that the queue is full only for the first.
    pub fn submit_pooling(
        &mut self,
        prompt: Prompt,
        params: PoolingParams,
    ) -> Result<RequestStream, SubmitError> {
        let ids = self.ids(prompt)?;
        self.take(ids, Wish::Embedding(params))
    }

    fn ids(&self, prompt: Prompt) -> Result<Vec<TokenId>, SubmitError> {
        let LastHandle {
            tokenizer,
            vocab_size,
            ..
        } = &*self.handle.last;
        // Before any work is done for a request that cannot be taken.
        self.handle.mailbox.check_room(self.has_room)?;
        let ids = prompt
            .into_token_ids(tokenizer)
            .map_err(SubmitError::refused)?;
        sampling_check::check_ids("the prompt", &ids, *vocab_size).map_err(SubmitError::refused)?;
        Ok(ids)
    }

    fn take(&mut self, ids: Vec<TokenId>, wish: Wish) -> Result<RequestStream, SubmitError> {
        let stream = self.handle.mailbox.submit(ids, wish, self.has_room)?;
        self.has_room = true;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SubmitError;
    use super::super::fake_engine::*;

    /// More than the queue holds would else never be taken.
    #[test]
    fn what_comes_as_one_stands_in_the_queue_as_one() {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut together = handle.together();
        let mut streams: Vec<_> = (0..20)
            .map(|index| {
                let (prompt, params) = request(index % 6);
                together.submit(prompt, params).expect("the first had room")
            })
            .collect();
        let (prompt, params) = request(0);
        let late = handle.together().submit(prompt, params);
        assert!(matches!(late, Err(SubmitError::QueueFull { .. })));
        use_up(&mut driver, &mut streams);
        submit(&handle, 0);
    }
}
