//! Requests that come as one, such as the prompts of one body. Owns that they stand in the queue as one: were each
//! held against its length, more than it holds could never be taken, however often they came again; and that they are
//! computed as if they had come one after the other, so that nobody else waits for all of them.

use super::submission::Wish;
use super::{EngineHandle, LastHandle, RequestStream, SubmitError};
use crate::engine::{Prompt, sampling_check};
use crate::sched::{Ahead, RequestError};
use crate::types::{PoolingParams, RequestId, SamplingParams, TokenId};
use std::sync::Arc;

/// About the bytes that are held of a request that waits beside what it brought.
const REQUEST_BYTES: usize = 2048;

/// Takes requests that ask for the same of several prompts and have one place in the queue, which the first needs and
/// the last gives back. How many there are is the caller's to bound.
#[derive(Debug)]
pub struct Together<'a> {
    handle: &'a EngineHandle,
    /// What each prompt is to become.
    wish: Wish,
    /// The first of them that was taken, if one was.
    first: Option<RequestId>,
    /// What was taken.
    taken: Ahead,
}

impl<'a> Together<'a> {
    pub(super) fn answers(
        handle: &'a EngineHandle,
        params: Arc<SamplingParams>,
    ) -> Result<Self, SubmitError> {
        let LastHandle {
            tokenizer,
            vocab_size,
            eos_token_ids,
            compiler,
            ..
        } = &*handle.last;
        // Before any work is done for what cannot be taken.
        handle.check_room()?;
        sampling_check::check(&params, *vocab_size).map_err(SubmitError::refused)?;
        compiler.learn(&params, *vocab_size, eos_token_ids, tokenizer);
        let form = compiler
            .compile(&params, eos_token_ids)
            .map_err(|error| SubmitError::refused(RequestError::from(error)))?;
        Ok(Self::new(handle, Wish::Answers(params, form)))
    }

    pub(super) fn embeddings(
        handle: &'a EngineHandle,
        params: PoolingParams,
    ) -> Result<Self, SubmitError> {
        handle.check_room()?;
        sampling_check::check_pooling(&params).map_err(SubmitError::refused)?;
        Ok(Self::new(handle, Wish::Embedding(params)))
    }

    fn new(handle: &'a EngineHandle, wish: Wish) -> Self {
        Self {
            handle,
            wish,
            first: None,
            taken: Ahead::default(),
        }
    }

    /// About the bytes that the engine holds of so many of them, and so many tokens of their prompts, while they wait.
    pub fn num_bytes(&self, num_prompts: usize, num_prompt_tokens: usize) -> usize {
        let tokens = num_prompt_tokens * size_of::<TokenId>();
        match &self.wish {
            Wish::Answers(params, _) => {
                let each = num_prompts * (REQUEST_BYTES + params.num_ending_bytes()) + tokens;
                params.num_bytes() + params.n * each
            }
            Wish::Embedding(_) => num_prompts * REQUEST_BYTES + tokens,
        }
    }

    /// Asks for one of them.
    ///
    /// # Errors
    /// The prompt means nothing; the engine takes no more; or, for the first, the queue is full. A prompt that does
    /// not fit is told as the stream's first item.
    pub fn submit(&mut self, prompt: Prompt) -> Result<RequestStream, SubmitError> {
        let LastHandle {
            tokenizer,
            vocab_size,
            clock,
            ..
        } = &*self.handle.last;
        let ids = prompt
            .into_token_ids(tokenizer)
            .map_err(SubmitError::refused)?;
        sampling_check::check_ids("the prompt", &ids, *vocab_size).map_err(SubmitError::refused)?;
        let more = Ahead {
            num_prompt_tokens: ids.len(),
            num_seq_steps: self.wish.num_seq_steps(),
        };
        let mailbox = &self.handle.mailbox;
        let now = clock.now();
        let stream = mailbox.submit(ids, self.wish.clone(), self.first, self.taken, now)?;
        self.first.get_or_insert(stream.id());
        self.taken += more;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SubmitError;
    use super::super::fake_engine::*;
    use super::*;
    use crate::engine::handle::Turn;
    use crate::types::StructuredOutput;
    use pollster::block_on;

    fn submit_all(handle: &EngineHandle, num_prompts: usize) -> Vec<RequestStream> {
        let mut together = handle.together(request(0).1).unwrap();
        let submit = |index| {
            let (prompt, _) = request(index % 6);
            together.submit(prompt).expect("the first had room")
        };
        (0..num_prompts).map(submit).collect()
    }

    /// More than the queue holds would else never be taken, and nobody beside them.
    #[test]
    fn what_comes_as_one_stands_in_the_queue_as_one() {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut streams = submit_all(&handle, 20);
        // Of eight places one is theirs.
        streams.extend((0..7).map(|index| submit(&handle, index % 6)));
        let (prompt, params) = request(0);
        let late = handle.submit(prompt, params);
        assert!(matches!(
            late,
            Err(SubmitError::QueueFull { waiting: 4, .. })
        ));
        assert_eq!(handle.load().num_requests, 27);
        // Theirs is free when the last of them is over, read or not.
        streams.drain(1..20);
        assert_eq!(block_on(driver.turn()), Turn::Stepped);
        let (prompt, params) = request(0);
        assert!(handle.submit(prompt, params).is_err());
        streams.remove(0);
        assert_eq!(block_on(driver.turn()), Turn::Stepped);
        streams.push(submit(&handle, 0));
        use_up(&mut driver, &mut streams);
        assert_eq!(handle.load().num_requests, 0);
    }

    /// It may take long to compile and much memory.
    #[test]
    fn a_form_is_there_once_for_all_that_wait() {
        let expected = plain();
        // The model knows no masks, so it must say by itself what may be said: no end of a generation.
        let free = |index: &usize| !expected[*index].ids.contains(&2);
        let index = (0..6).find(free).unwrap();
        let (mut driver, handle) = engine(&SharedFate::default());
        let (prompt, params) = request(index);
        let params = SamplingParams {
            structured_output: Some(StructuredOutput::Regex("([0-9]+ )*".into())),
            ..params
        };
        let mut together = handle.together(params).unwrap();
        let streams = (0..9).map(|_| together.submit(prompt.clone()).unwrap());
        let mut streams: Vec<_> = streams.collect();
        let Wish::Answers(_, Some(form)) = &together.wish else {
            panic!("no form");
        };
        let form = Arc::clone(form);
        drop(together);
        assert_eq!(Arc::strong_count(&form), 1 + 9);
        assert_eq!(block_on(driver.turn()), Turn::Stepped);
        // Those that have begun stand elsewhere.
        let num_begun = 1 + 9 - Arc::strong_count(&form);
        assert!((1..9).contains(&num_begun), "{num_begun} have begun");
        for answer in use_up(&mut driver, &mut streams) {
            assert_eq!(answer, expected[index]);
        }
        assert_eq!(Arc::strong_count(&form), 1);
    }

    /// What is set aside until somebody reads it has no place, and takes it again.
    #[test]
    fn a_place_is_for_those_that_are_read() {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut unread = submit_all(&handle, 6);
        while block_on(driver.turn()) == Turn::Stepped {}
        assert_eq!(handle.load().num_unread, 6);
        let mut streams: Vec<_> = (0..7).map(|index| submit(&handle, index % 6)).collect();
        for stream in &mut unread[..2] {
            assert!(read(stream).is_some());
        }
        assert_eq!(block_on(driver.turn()), Turn::Stepped);
        // Two of them have one place beside those seven.
        assert_eq!(handle.load().num_unread, 4);
        let (prompt, params) = request(0);
        assert!(handle.submit(prompt, params).is_err());
        use_up(&mut driver, &mut streams);
        drop(unread);
        assert_eq!(block_on(driver.turn()), Turn::Idle);
        assert_eq!(
            (handle.load().num_requests, handle.load().num_unread),
            (0, 0)
        );
    }

    /// Who comes while many that came as one are computed waits for few of them.
    #[test]
    fn who_comes_later_does_not_wait_for_all_of_them() {
        let (mut driver, handle) = engine(&SharedFate::default());
        let mut streams = submit_all(&handle, 60);
        for _ in 0..3 {
            assert_eq!(block_on(driver.turn()), Turn::Stepped);
        }
        streams.push(submit(&handle, 1));
        let mut is_over = vec![false; streams.len()];
        while !is_over[60] {
            assert_eq!(block_on(driver.turn()), Turn::Stepped);
            for (stream, is_over) in streams.iter_mut().zip(&mut is_over) {
                *is_over |= read(stream).is_none_or(|pieces| {
                    pieces.iter().flatten().any(|p| p.output.finished.is_some())
                });
            }
        }
        let before = is_over.iter().filter(|is_over| **is_over).count() - 1;
        assert!(before < 12, "{before} of 60 came before it");
        use_up(&mut driver, &mut streams);
    }
}
