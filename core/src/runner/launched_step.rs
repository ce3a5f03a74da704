//! A launched step's read-backs, and how they become its outputs: ids and, where asked for,
//! log-probabilities. Knows rows and vocabulary, no device.

use super::input_batch::{LogitsRow, RowPurpose};
use super::pool_rows::StepPools;
use crate::error::Result;
use crate::sample::token_logprobs;
use crate::sched::{
    ModelRunnerOutput, RequestError, ScheduledSequence, SchedulerOutput, SequenceOutput,
};
use crate::types::{RequestId, TokenId, TokenLogprobs};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use twoclock_shaders::executor::ExecutorError;

/// Bytes that are on their way back.
pub(super) type ReadBack = Pin<Box<dyn Future<Output = Result<Vec<u8>, ExecutorError>>>>;

/// What a sequence of the step gets.
struct Sequence {
    request_id: RequestId,
    /// Best tokens that are reported with a drawn one's log-probability.
    top: Option<usize>,
    /// Those that are with a prompt token's.
    prompt_top: usize,
    prompt_logprob_targets: Vec<TokenId>,
    prompt_logprobs: Vec<TokenLogprobs>,
    /// Logits that a drawn token's log-probability is taken of, once its id is there.
    drawn_logits: Option<Vec<f32>>,
    pooled: Option<Vec<f32>>,
    error: Option<RequestError>,
}

/// A step that was launched.
pub struct LaunchedStep {
    vocab: usize,
    sequences: Vec<Sequence>,
    rows: Vec<LogitsRow>,
    /// Drawn ids, one a row.
    ids: Option<ReadBack>,
    /// Logits of rows, in the order they were launched.
    logits: Vec<(Range<usize>, ReadBack)>,
    /// Sums of final hidden states, and of which sequences.
    sums: Option<(Vec<usize>, ReadBack)>,
    /// Of a step that brings nothing back: something that is there when it has ended.
    end: Option<ReadBack>,
}

impl fmt::Debug for LaunchedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchedStep")
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl LaunchedStep {
    /// A step with these rows, of which nothing is on its way yet.
    pub(super) fn new(output: &SchedulerOutput, rows: Vec<LogitsRow>, vocab: usize) -> Self {
        let sequence = |scheduled: &ScheduledSequence| Sequence {
            request_id: scheduled.request_id,
            top: scheduled.sampling.params.logprobs,
            prompt_top: scheduled.sampling.params.prompt_logprobs.unwrap_or(0),
            prompt_logprob_targets: scheduled.prompt_logprob_targets.clone(),
            prompt_logprobs: Vec::new(),
            drawn_logits: None,
            pooled: None,
            error: None,
        };
        Self {
            vocab,
            sequences: output.scheduled.iter().map(sequence).collect(),
            rows,
            ids: None,
            logits: Vec::new(),
            sums: None,
            end: None,
        }
    }

    /// The rows.
    pub(super) fn rows(&self) -> &[LogitsRow] {
        &self.rows
    }

    /// Whether the logits of one of these rows are reported on.
    pub(super) fn wants_logits(&self, rows: Range<usize>) -> bool {
        self.rows[rows].iter().any(|row| match row.purpose {
            RowPurpose::PromptLogprob(_) => true,
            RowPurpose::Sample => self.sequences[row.sequence].top.is_some(),
        })
    }

    /// Whether a token is drawn at all.
    pub(super) fn draws(&self) -> bool {
        self.rows
            .iter()
            .any(|row| row.purpose == RowPurpose::Sample)
    }

    /// Drawn ids are on their way.
    pub(super) fn expect_ids(&mut self, ids: ReadBack) {
        self.ids = Some(ids);
    }

    /// Nothing is drawn; this is there when the device is done.
    pub(super) fn expect_end(&mut self, end: ReadBack) {
        self.end = Some(end);
    }

    /// What is pooled: sums that end are on their way, and who failed is told.
    pub(super) fn expect_sums(&mut self, pools: StepPools, sums: Option<ReadBack>) {
        self.sums = sums.map(|sums| (pools.ends, sums));
        for (sequence, error) in pools.failed {
            self.sequences[sequence].error = Some(error);
        }
    }

    /// Logits of these rows are on their way.
    pub(super) fn expect_logits(&mut self, rows: Range<usize>, logits: ReadBack) {
        self.logits.push((rows, logits));
    }

    /// Waits until at most `most` read-backs of logits are on their way.
    pub(super) async fn take_logits(&mut self, most: usize) -> Result<()> {
        while self.logits.len() > most {
            let (rows, logits) = self.logits.remove(0);
            let logits: Vec<f32> = bytemuck::pod_collect_to_vec(&logits.await?);
            for (row, logits) in rows.zip(logits.chunks_exact(self.vocab)) {
                let LogitsRow { sequence, purpose } = self.rows[row];
                let sequence = &mut self.sequences[sequence];
                match purpose {
                    RowPurpose::PromptLogprob(target) => {
                        let id = sequence.prompt_logprob_targets[target];
                        let logprobs = token_logprobs(logits, id, sequence.prompt_top);
                        sequence.prompt_logprobs.push(logprobs);
                    }
                    RowPurpose::Sample if sequence.top.is_some() => {
                        sequence.drawn_logits = Some(logits.to_vec());
                    }
                    RowPurpose::Sample => {}
                }
            }
        }
        Ok(())
    }

    /// Waits for everything.
    pub(super) async fn finish(mut self) -> Result<ModelRunnerOutput> {
        self.take_logits(0).await?;
        let mut drawn: Vec<Option<TokenId>> = vec![None; self.sequences.len()];
        if let Some(ids) = self.ids.take() {
            let ids: Vec<TokenId> = bytemuck::pod_collect_to_vec(&ids.await?);
            for (row, id) in self.rows.iter().zip(ids) {
                if row.purpose == RowPurpose::Sample {
                    drawn[row.sequence] = Some(id);
                }
            }
        }
        if let Some((ends, sums)) = self.sums.take() {
            let sums: Vec<f32> = bytemuck::pod_collect_to_vec(&sums.await?);
            let rows = sums.chunks_exact(sums.len() / ends.len());
            for (sequence, sum) in ends.into_iter().zip(rows) {
                self.sequences[sequence].pooled = Some(sum.to_vec());
            }
        }
        if let Some(end) = self.end.take() {
            end.await?;
        }
        let output = |(sequence, token_id): (Sequence, Option<TokenId>)| SequenceOutput {
            request_id: sequence.request_id,
            token_id,
            logprobs: token_id
                .zip(sequence.drawn_logits)
                .map(|(id, logits)| token_logprobs(&logits, id, sequence.top.unwrap_or(0))),
            prompt_logprobs: sequence.prompt_logprobs,
            pooled: sequence.pooled,
            error: sequence.error,
        };
        let sequences = self.sequences.into_iter().zip(drawn);
        Ok(ModelRunnerOutput {
            sequences: sequences.map(output).collect(),
        })
    }
}
