//! The answers under way that have a form: each keeps its place in its grammar with its tokens, and
//! steps carry its mask. Those that stand where others do are one until their first token, since a place
//! takes memory. Knows requests by their ids alone.

use super::core::{EngineCore, EngineOutput};
use super::forms::FormCompiler;
use crate::clock::Clock;
use crate::runner::ExecuteModel;
use crate::sample::grammar::{Constraint, TokenText};
use crate::sched::{RequestUpdate, SchedulerOutput};
use crate::types::{FinishReason, RequestId, TokenId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Forms of answers.
#[derive(Debug, Default)]
pub(super) struct Constraints {
    pub(super) compiler: FormCompiler,
    answers: BTreeMap<RequestId, Arc<Constraint>>,
}

impl Constraints {
    /// Keeps an answer's form while it is under way.
    pub(super) fn keep(&mut self, id: RequestId, constraint: Arc<Constraint>) {
        self.answers.insert(id, constraint);
    }

    /// An answer under way goes on under another name.
    pub(super) fn rename(&mut self, old: RequestId, new: RequestId) {
        if let Some(constraint) = self.answers.remove(&old) {
            self.answers.insert(new, constraint);
        }
    }

    /// An answer is over.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.answers.remove(&id);
    }

    /// Gives a step the masks of the rows that draw.
    pub(super) fn mask(&self, step: &mut SchedulerOutput) {
        for share in step.scheduled.iter_mut().filter(|share| share.samples) {
            let constraint = self.answers.get(&share.request_id);
            share.sampling.mask = constraint.map(|constraint| constraint.mask().clone());
        }
    }

    /// Takes an answer's drawn token in. Says whether the answer ends by it that otherwise would go
    /// on; where it is whole the update says so, whatever it said before.
    fn advance(&mut self, update: &mut RequestUpdate) -> bool {
        let constraint = self.answers.get_mut(&update.request_id);
        let (Some(constraint), Some(id)) = (constraint, update.token_id) else {
            return false;
        };
        let goes_on = update.finished.is_none();
        match Arc::make_mut(constraint).accept(id) {
            Ok(true) => update.finished = Some(Ok(FinishReason::Stop)),
            Err(error) if goes_on => update.finished = Some(Err(error.into())),
            Ok(false) | Err(_) => {}
        }
        goes_on && update.finished.is_some()
    }
}

impl<R: ExecuteModel, C: Clock> EngineCore<R, C> {
    /// Says what the model's ids stand for, for answers that have a form
    /// ([`StructuredOutput`](crate::types::StructuredOutput)). Takes a tenth of a second or two.
    pub fn set_vocabulary<'a>(&mut self, token: impl Fn(TokenId) -> TokenText<'a>) {
        let eos = &self.eos_token_ids;
        self.constraints.compiler = FormCompiler::new(self.vocab_size, eos, token);
    }

    /// Moves an answer's form on by what a step brought, before that is recorded.
    pub(super) fn keep_form(&mut self, mut update: RequestUpdate) -> EngineOutput {
        if self.constraints.advance(&mut update) {
            self.scheduler.abort(update.request_id);
        }
        self.record(update)
    }
}
