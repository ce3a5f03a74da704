//! How much of the cache lies idle in blocks that somebody holds, over a whole trace: a scheduler
//! under load, with lengths as conversations have them. Knows no content.

use super::fake_model::{EOS, VOCAB, scheduler};
use super::*;
use crate::types::{RequestId, SamplingParams};

/// Lengths that are log-normal, as those of prompts and answers are taken to be (Kwon et al. 2023,
/// arXiv:2309.06180 §6.1, show such histograms): many short ones, a long tail.
struct Lengths(u64);

impl Lengths {
    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }

    /// One of that mean, with a deviation of one in its logarithm.
    fn draw(&mut self, mean: f64) -> usize {
        // Twelve uniform numbers are normal enough.
        let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        (mean * (normal - 0.5).exp()).clamp(4.0, 1400.0) as usize
    }
}

/// Under 4 % of the slots in held blocks are behind the end of a sequence, on average over the steps.
#[test]
fn few_slots_are_wasted_over_a_trace() {
    let config = SchedulerConfig {
        max_num_seqs: 16,
        max_num_batched_tokens: 512,
        max_model_len: 2800,
        block_size: 32,
        num_blocks: 1 + 16 * 2800 / 32,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let mut s = scheduler(config);
    let (mut lengths, mut total) = (Lengths(1), 0);
    const REQUESTS: u64 = 200;
    for id in 0..REQUESTS {
        let (prompt, answer) = (lengths.draw(230.0), lengths.draw(340.0));
        total += prompt + answer;
        let params = SamplingParams {
            max_tokens: answer,
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let request = Request::new(RequestId(id), vec![1; prompt], params, &[EOS]);
        s.add_request(request).unwrap();
    }
    let mean = total as f64 / REQUESTS as f64;
    assert!((512.0..600.0).contains(&mean), "mean length {mean}");
    let (mut steps, mut waste) = (0, 0.0);
    while s.num_unfinished_requests() > 0 {
        let out = s.schedule();
        let usage = s.kv_usage();
        assert!(usage.unused_slots <= 31 * out.scheduled.len().max(1));
        waste += usage.unused_slots as f64 / usage.allocated_slots as f64;
        steps += 1;
        let sequences = out.scheduled.iter().map(|share| SequenceOutput {
            request_id: share.request_id,
            token_id: share.samples.then_some(1),
            logprobs: None,
            prompt_logprobs: Vec::new(),
            pooled: None,
            error: None,
        });
        let result = ModelRunnerOutput {
            sequences: sequences.collect(),
        };
        s.update_from_output(&out, result, VOCAB as usize);
    }
    s.check_integrity().unwrap();
    let waste = waste / f64::from(steps);
    println!(
        "{mean:.0} tokens a request, {steps} steps, {:.2} % wasted",
        100.0 * waste
    );
    assert!(waste < 0.04, "{waste}");
    // What is measured is there to be measured.
    assert!(waste > 0.01, "{waste}");
}
