//! What deciding a step costs the host: the scheduler with many running sequences, and the block
//! pool below it. `cargo bench -p twoclock-tests --bench scheduler`. Knows no device: tokens are made
//! up.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use twoclock_core::sched::{
    BlockHash, BlockPool, KvGroupSpec, ModelRunnerOutput, Request, Scheduler, SchedulerConfig,
    SchedulerOutput, SequenceOutput,
};
use twoclock_core::types::{RequestId, SamplingParams};

const VOCAB: usize = 32000;
const CONTEXT: usize = 1000;

/// Every sequence draws the same harmless token.
fn computed(step: &SchedulerOutput) -> ModelRunnerOutput {
    let sequences = step.scheduled.iter().map(|share| SequenceOutput {
        request_id: share.request_id,
        token_id: share.samples.then_some(7),
        logprobs: None,
        prompt_logprobs: Vec::new(),
        pooled: None,
        error: None,
    });
    ModelRunnerOutput {
        sequences: sequences.collect(),
    }
}

fn config(num_seqs: usize) -> SchedulerConfig {
    SchedulerConfig {
        // Room for one that comes later.
        max_num_seqs: num_seqs + 1,
        max_num_batched_tokens: 8192,
        max_model_len: 8192,
        num_blocks: 1 + (num_seqs + 1) * 8192 / 32,
        ..SchedulerConfig::default()
    }
}

fn request(id: u64, len: usize) -> Request {
    let prompt = (0..len as u64).map(|i| ((id * 7919 + i * 31) % VOCAB as u64) as u32);
    let params = SamplingParams {
        max_tokens: 7000,
        ..SamplingParams::default()
    };
    Request::new(RequestId(id), prompt.collect(), params, &[2])
}

/// A scheduler whose sequences have all passed their prompts.
fn decoding(num_seqs: usize, windows: &[Option<usize>]) -> Scheduler {
    let groups = windows
        .iter()
        .enumerate()
        .map(|(layer, &window)| KvGroupSpec {
            layers: vec![layer],
            window,
        });
    let mut scheduler =
        Scheduler::new(config(num_seqs), groups.collect()).expect("the limits are sound");
    for id in 0..num_seqs as u64 {
        let added = scheduler.add_request(request(id, CONTEXT));
        added.expect("it fits");
    }
    loop {
        let step = scheduler.schedule();
        let all = step.scheduled.iter().filter(|share| share.samples).count();
        scheduler.update_from_output(&step, computed(&step), VOCAB);
        if all == num_seqs {
            return scheduler;
        }
    }
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("32 decode steps");
    for num_seqs in [1, 16, 64, 256] {
        for (name, windows) in [
            ("full", vec![None]),
            ("full and window", vec![None, Some(512)]),
        ] {
            let id = BenchmarkId::new(name, num_seqs);
            group.bench_function(id, |b| {
                b.iter_batched_ref(
                    || decoding(num_seqs, &windows),
                    |scheduler| {
                        // Each sequence passes the border of one block.
                        for _ in 0..32 {
                            let step = scheduler.schedule();
                            let output = computed(&step);
                            black_box(scheduler.update_from_output(&step, output, VOCAB));
                        }
                    },
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

fn admissions(c: &mut Criterion) {
    let mut group = c.benchmark_group("admission of a prompt of 4096");
    for (name, known) in [("nothing known", false), ("all known", true)] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    let mut scheduler = decoding(255, &[None]);
                    if known {
                        let added = scheduler.add_request(request(1000, 4096));
                        added.expect("it fits");
                        let step = scheduler.schedule();
                        scheduler.update_from_output(&step, computed(&step), VOCAB);
                        scheduler.abort(RequestId(1000));
                    }
                    let again = request(1000, 4096).token_ids().to_vec();
                    let params = SamplingParams::default();
                    (
                        scheduler,
                        Request::new(RequestId(5000), again, params, &[2]),
                    )
                },
                |(mut scheduler, request)| {
                    scheduler.add_request(request).expect("it fits");
                    black_box(scheduler.schedule())
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("block pool of 65536");
    group.bench_function("take and give back 128", |b| {
        let mut pool = BlockPool::new(65536);
        b.iter(|| {
            let taken = pool.allocate(128).expect("there are enough");
            pool.free(black_box(taken));
        });
    });
    group.bench_function("find and touch 128 by their hashes", |b| {
        let mut pool = BlockPool::new(65536);
        let taken = pool.allocate(128).expect("there are enough");
        let mut hash = BlockHash::root("", None);
        let hashes: Vec<_> = taken
            .iter()
            .map(|&block| {
                hash = hash.chain(&[block; 32]);
                pool.cache(block, hash);
                hash
            })
            .collect();
        b.iter(|| {
            let found: Vec<_> = hashes.iter().map_while(|hash| pool.cached(hash)).collect();
            for &block in &found {
                pool.touch(block);
            }
            pool.free(black_box(found));
        });
        pool.free(taken);
    });
    group.bench_function("hash a block of 32 tokens", |b| {
        let root = BlockHash::root("", None);
        b.iter(|| black_box(root.chain(&[5; 32])));
    });
    group.finish();
}

criterion_group!(benches, steps, admissions, blocks);
criterion_main!(benches);
