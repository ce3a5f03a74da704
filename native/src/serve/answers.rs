//! The streams of one request's prompts as one stream, each piece with its prompt's place. Dropping it
//! gives up all of them; one that may call once is given up behind its call. What an engine gives up before its
//! end is no answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use twoclock_core::chat::{AnswerFormat, AnswerSplitter};
use twoclock_core::engine::RequestOutput;
use twoclock_core::engine::handle::{RequestStream, StreamError};
use twoclock_core::types::FinishReason;

/// A piece: whose, and what it gained.
pub type Piece = (usize, Result<RequestOutput, StreamError>);

/// Streams that are not over, in the order of their prompts.
#[derive(Debug)]
pub struct Answers {
    streams: Vec<Option<RequestStream>>,
    /// Who is looked at first, so that none waits behind the others.
    next: usize,
    /// Watches those that may call once, where there are such.
    only_calls: Option<OnlyCalls>,
}

impl Answers {
    /// These streams.
    pub fn new(streams: Vec<RequestStream>) -> Self {
        Self {
            streams: streams.into_iter().map(Some).collect(),
            next: 0,
            only_calls: None,
        }
    }

    /// These streams, each with `n` answers of this form.
    pub fn of_format(streams: Vec<RequestStream>, n: usize, format: &AnswerFormat) -> Self {
        let calls_once = format.tools.as_ref().is_some_and(|tools| !tools.parallel);
        let only_calls = calls_once.then(|| OnlyCalls::new(format, streams.len(), n));
        Self {
            only_calls,
            ..Self::new(streams)
        }
    }

    /// A piece as it is told; none of an answer that has ended.
    fn told(
        &mut self,
        place: usize,
        piece: Result<RequestOutput, StreamError>,
    ) -> Option<Result<RequestOutput, StreamError>> {
        let piece = piece.and_then(|gained| match gained.output.finished {
            // Nobody here asks for that: the engine ends.
            Some(Ok(FinishReason::Abort)) => Err(StreamError::Gone),
            _ => Ok(gained),
        });
        match (&mut self.only_calls, piece) {
            (Some(only_calls), Ok(gained)) => {
                let told = only_calls.see(place, gained);
                if only_calls.are_over(place)
                    && let Some(stream) = self.streams[place].take()
                {
                    // What it would go on to say is not wanted.
                    stream.stop();
                }
                told.map(Ok)
            }
            (_, piece) => Some(piece),
        }
    }

    /// The next piece of any of them; `None` when all are over.
    pub async fn next(&mut self) -> Option<Piece> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Answers {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let this = &mut *self;
        let len = this.streams.len();
        'pieces: loop {
            let mut is_over = true;
            for step in 0..len {
                let place = (this.next + step) % len;
                let Some(stream) = &mut this.streams[place] else {
                    continue;
                };
                match Pin::new(stream).poll_next(cx) {
                    Poll::Ready(Some(piece)) => {
                        this.next = (place + 1) % len;
                        match this.told(place, piece) {
                            Some(told) => return Poll::Ready(Some((place, told))),
                            None => continue 'pieces,
                        }
                    }
                    Poll::Ready(None) => this.streams[place] = None,
                    Poll::Pending => is_over = false,
                }
            }
            return match is_over {
                true => Poll::Ready(None),
                false => Poll::Pending,
            };
        }
    }
}

/// Ends answers that may call once where their call ends, as styles without a mark behind it give the engine nothing
/// to stop at.
#[derive(Debug)]
struct OnlyCalls {
    /// Of each prompt its answers; none for those that have ended.
    splitters: Vec<Vec<Option<AnswerSplitter>>>,
}

impl OnlyCalls {
    fn new(format: &AnswerFormat, num_prompts: usize, n: usize) -> Self {
        let splitter = || Some(AnswerSplitter::new(format.clone()));
        let of_prompt = || (0..n).map(|_| splitter()).collect();
        Self {
            splitters: (0..num_prompts).map(|_| of_prompt()).collect(),
        }
    }

    /// A piece as it is told; none of an answer that has ended.
    fn see(&mut self, prompt: usize, mut gained: RequestOutput) -> Option<RequestOutput> {
        let place = self.splitters[prompt].get_mut(gained.output.index)?;
        let splitter = place.as_mut()?;
        splitter.push(&gained.text);
        if gained.output.finished.is_none() && splitter.is_over() {
            gained.output.finished = Some(Ok(FinishReason::Stop));
        }
        if gained.output.finished.is_some() {
            *place = None;
        }
        Some(gained)
    }

    /// Whether all answers to this prompt have ended.
    fn are_over(&self, prompt: usize) -> bool {
        self.splitters[prompt].iter().all(Option::is_none)
    }
}
