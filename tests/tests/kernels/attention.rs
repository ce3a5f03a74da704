//! The attention kernels against their references, and every body and regime against each other
//! bit for bit: prefill and decode, chunks, page sizes, batches.

use std::collections::BTreeMap;
use std::time::Instant;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::step::{self, TILE_QUERIES};
use twoclock_shaders::kernels::{attention_decode, attention_merge, attention_prefill, rope_kv};
use twoclock_shaders::program::{Command, CountId, Dispatch, Program, Slice, StepArgs};
use twoclock_tests::{Case, Noise, assert_close, gpu};

use crate::attention_bodies::{BODIES, Bodies, PLAIN};
use crate::step::step_buffer;

const TILES: CountId = CountId(0);
const DECODES: CountId = CountId(1);
const PARTS: CountId = CountId(2);
const MAX_PARTS: u32 = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    dtype: KvDtype,
    pub(crate) act_format: ActFormat,
    head_dim: usize,
    kv_heads: usize,
    group: usize,
    block_size: usize,
    /// Keys a query sees; 0 for all.
    window: usize,
    softcap: f32,
}

/// A sequence of the step: who it is (its contents follow), its context, its last queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seq {
    seed: u64,
    context: usize,
    queries: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Regime {
    Prefill,
    Decode,
}

pub(crate) struct Step {
    qkv: Vec<f32>,
    kcache: Vec<u32>,
    vcache: Vec<u32>,
    words: Vec<u32>,
    counts: Vec<u32>,
    /// (seed, position) of every token.
    tokens: Vec<(u64, usize)>,
}

/// The page of what no query of a step sees: other sequences' leavings, perhaps.
const NULL_PAGE: u32 = 0;
/// Group of layers under test. The tables of the other lead to the null page.
const GROUP: u32 = 1;

impl Shape {
    /// One in f32, without window or cap.
    pub(crate) fn new(head_dim: usize, kv_heads: usize, group: usize, block_size: usize) -> Self {
        Self {
            dtype: KvDtype::F32,
            act_format: ActFormat::F32,
            head_dim,
            kv_heads,
            group,
            block_size,
            window: 0,
            softcap: 0.0,
        }
    }

    /// First position that the query at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        match self.window {
            0 => 0,
            window => (position + 1).saturating_sub(window),
        }
    }

    fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Elements of a row of qkv: four odd ones before the queries, and some after.
    fn stride(&self) -> usize {
        4 + (self.heads() + 2 * self.kv_heads) * self.head_dim
    }

    pub(crate) fn step(&self, seqs: &[Seq]) -> Step {
        let (dim, size) = (self.head_dim, self.block_size);
        let all_pages: usize = seqs.iter().map(|s| s.context.div_ceil(size)).sum();
        // Pages in no order.
        let mut free: Vec<u32> = (NULL_PAGE + 1..=all_pages as u32).collect();
        let mut noise = Noise::new(3);
        for i in (1..free.len()).rev() {
            free.swap(i, noise.below(i as u32 + 1) as usize);
        }
        let (mut cached, mut slots) = (Vec::new(), Vec::new());
        let mut step = Step {
            qkv: Vec::new(),
            kcache: Vec::new(),
            vcache: Vec::new(),
            words: Vec::new(),
            counts: Vec::new(),
            tokens: Vec::new(),
        };
        let (mut records, mut tables, mut tiles, mut decodes) = (vec![], vec![], vec![], vec![]);
        let mut most_parts = 0;
        for (n, seq) in seqs.iter().enumerate() {
            let pages = seq.context.div_ceil(size);
            let record = [
                step.tokens.len(),
                seq.queries,
                seq.context,
                tables.len(),
                pages,
            ];
            records.extend(record.map(|x| x as u32));
            tables.extend(vec![NULL_PAGE; pages]);
            let table_at = tables.len();
            tables.extend(free.drain(..pages));
            let unseen = self.first_seen(seq.context - seq.queries) / size;
            tables[table_at..][..unseen].fill(NULL_PAGE);
            let mut noise = Noise::new(seq.seed);
            for position in 0..seq.context {
                let page = tables[table_at + position / size];
                cached.extend(noise.f32s(2 * self.kv_heads * dim));
                slots.push(match page {
                    NULL_PAGE => step::NO_SLOT,
                    _ => page * size as u32 + (position % size) as u32,
                });
                let mut row = noise.f32s(self.stride());
                row.iter_mut().for_each(|q| *q *= 3.0);
                if position >= seq.context - seq.queries {
                    step.qkv.extend(row);
                    step.tokens.push((seq.seed, position));
                }
            }
            for query in (0..seq.queries).step_by(TILE_QUERIES as usize) {
                tiles.extend([n as u32, query as u32]);
            }
            for query in 0..seq.queries {
                decodes.extend([n as u32, query as u32]);
                let keys = (seq.context - seq.queries + query + 1) as u32;
                let parts = attention_decode::parts_of(keys, self.window as u32);
                most_parts = most_parts.max(parts);
            }
        }
        [step.kcache, step.vcache] = self.pages(all_pages + 1, &cached, &slots);
        step.counts = vec![tiles.len() as u32 / 2, decodes.len() as u32 / 2, most_parts];
        // Tables lie first, so that the records can say where.
        for record in records.chunks_exact_mut(step::SEQ_WORDS) {
            record[3] += step::HEADER as u32;
        }
        step.words = step_buffer(&[
            (15, &tables),
            (step::SEQS, &records),
            (step::TILES, &tiles),
            (step::DECODES, &decodes),
        ]);
        step
    }

    /// Pages of keys and of values `[token][k, v][head][dim]` at their slots, written by the reference.
    fn pages(&self, pages: usize, cached: &[f32], slots: &[u32]) -> [Vec<u32>; 2] {
        let (dim, kv_heads) = (self.head_dim as u32, self.kv_heads as u32);
        let block_size = self.block_size as u32;
        let page = self.dtype.page_bytes(kv_heads, dim, block_size) as usize / 4;
        // What no token was written to must not matter: in any type these are no numbers.
        let empty = vec![0x7fff_ffff_u32; pages * page];
        let params = rope_kv::RopeKvParams {
            heads: 0,
            kv_heads,
            pairs: 0,
            stride4: kv_heads * dim / 2,
            block_size,
            group: 0,
        };
        let dtype = self.dtype;
        let case = Case {
            inputs: vec![
                cached.into(),
                step_buffer(&[(step::SLOTS, slots)]).into(),
                empty.clone().into(),
                empty.into(),
            ],
            dispatches: Box::new(move |b| {
                let buffers = rope_kv::Buffers {
                    table: None,
                    qkv: b[0],
                    step: b[1],
                    kcache: b[2],
                    vcache: b[3],
                    dtype,
                };
                let pairing = rope_kv::Pairing::Halves;
                vec![rope_kv::dispatch(pairing, dim, params, CountId(0), buffers)]
            }),
            counts: vec![slots.len() as u32],
        };
        let executor = &mut CpuExecutor::default();
        [2, 3].map(|output| {
            let words = case.run(executor, output).into_iter();
            words.map(f32::to_bits).collect()
        })
    }

    fn dispatches(&self, caps: &Caps, regime: Regime, context: u32, b: &[Slice]) -> Vec<Dispatch> {
        let head_dim = self.head_dim as u32;
        let (heads, kv_heads) = (self.heads() as u32, self.kv_heads as u32);
        let act_format = self.act_format;
        let act_stride = match act_format {
            ActFormat::F32 => heads * head_dim / 4,
            _ => act_format.stride(heads * head_dim),
        };
        let (stride4, q_at4) = (self.stride() as u32 / 4, 1);
        let block_size = self.block_size as u32;
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let (window, softcap, group) = (self.window as u32, self.softcap, GROUP);
        match regime {
            Regime::Prefill => vec![attention_prefill::dispatch(
                caps,
                act_format,
                head_dim,
                attention_prefill::AttentionPrefillParams {
                    stride4,
                    q_at4,
                    heads,
                    kv_heads,
                    block_size,
                    act_stride,
                    scale,
                    window,
                    softcap,
                    group,
                },
                TILES,
                context,
                attention_prefill::Buffers {
                    qkv: b[0],
                    kcache: b[1],
                    vcache: b[2],
                    dtype: self.dtype,
                    step: b[3],
                    out: b[4],
                },
            )],
            Regime::Decode => vec![
                attention_decode::dispatch(
                    caps,
                    head_dim,
                    self.group as u32,
                    attention_decode::AttentionDecodeParams {
                        stride4,
                        q_at4,
                        kv_heads,
                        block_size,
                        max_parts: MAX_PARTS,
                        scale,
                        window,
                        softcap,
                        group,
                    },
                    DECODES,
                    PARTS,
                    attention_decode::Buffers {
                        qkv: b[0],
                        kcache: b[1],
                        vcache: b[2],
                        dtype: self.dtype,
                        step: b[3],
                        parts: b[5],
                    },
                ),
                attention_merge::dispatch(
                    act_format,
                    head_dim,
                    attention_merge::AttentionMergeParams {
                        heads,
                        max_parts: MAX_PARTS,
                        act_stride,
                        window,
                    },
                    DECODES,
                    context,
                    attention_merge::Buffers {
                        parts: b[5],
                        step: b[3],
                        out: b[4],
                    },
                ),
            ],
        }
    }

    pub(crate) fn case(&self, caps: Caps, regime: Regime, step: &Step) -> Case<'_> {
        let tokens = step.tokens.len();
        let parts = attention_decode::parts_bytes(
            tokens as u32,
            self.heads() as u32,
            MAX_PARTS,
            self.head_dim as u32,
        );
        Case {
            inputs: vec![
                step.qkv.as_slice().into(),
                step.kcache.as_slice().into(),
                step.vcache.as_slice().into(),
                step.words.as_slice().into(),
                vec![f32::NAN; tokens * self.heads() * self.head_dim].into(),
                vec![f32::NAN; parts as usize / 4].into(),
            ],
            dispatches: Box::new(move |b| self.dispatches(&caps, regime, 512, b)),
            counts: step.counts.clone(),
        }
    }

    /// The attention of every token by (seed, position).
    fn run(
        &self,
        executor: &mut impl Executor,
        bodies: Bodies,
        regime: Regime,
        seqs: &[Seq],
    ) -> Rows {
        let step = self.step(seqs);
        let caps = bodies.caps(executor.caps());
        let out = self.case(caps, regime, &step).run(executor, 4);
        let width = self.heads() * self.head_dim;
        step.tokens
            .iter()
            .zip(out.chunks_exact(width))
            .map(|(&token, row)| (token, row.to_vec()))
            .collect()
    }
}

type Rows = BTreeMap<(u64, usize), Vec<f32>>;

pub(crate) const REGIMES: [Regime; 2] = [Regime::Prefill, Regime::Decode];

/// Asserts that the tokens both runs computed have the same bits.
fn assert_same_bits(what: &str, a: &Rows, b: &Rows) {
    let mut shared = 0;
    for (token, a) in a {
        let Some(b) = b.get(token) else { continue };
        shared += 1;
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert_eq!(
                a.to_bits(),
                b.to_bits(),
                "{what}: (seed, position) {token:?} at {i}: {a} and {b}"
            );
        }
    }
    assert!(shared > 0, "{what}: nothing to compare");
}

const CONTEXTS: [usize; 8] = [1, 31, 32, 33, 255, 256, 257, 700];

/// Every border of blocks, parts and tiles in one step.
pub(crate) fn borders(queries: usize) -> Vec<Seq> {
    CONTEXTS
        .into_iter()
        .enumerate()
        .map(|(i, context)| Seq {
            seed: i as u64,
            context,
            queries: context.min(queries),
        })
        .collect()
}

/// Every body, regime and page size gives the same bits, and the reference's values.
fn assert_agreement(shape: Shape, seqs: &[Seq]) {
    let paged = |block_size| Shape {
        block_size,
        ..shape
    };
    let on_cpu = |regime, block_size| {
        let executor = &mut CpuExecutor::default();
        paged(block_size).run(executor, PLAIN, regime, seqs)
    };
    let reference = on_cpu(Regime::Prefill, 16);
    let mut first: Option<Rows> = None;
    for regime in REGIMES {
        let what = format!("{shape:?}, {regime:?}, reference");
        assert_same_bits(&what, &reference, &on_cpu(regime, 32));
        for bodies in BODIES {
            for block_size in [16, 32] {
                let shape = paged(block_size);
                let what = format!("{shape:?}, {regime:?}, {bodies:?}");
                let rows = shape.run(&mut *gpu(), bodies, regime, seqs);
                for (token, row) in &rows {
                    assert_close(&format!("{what}: {token:?}"), row, &reference[token], 1e-5);
                }
                assert_same_bits(&what, first.get_or_insert_with(|| rows.clone()), &rows);
            }
        }
    }
}

#[test]
fn every_body_and_regime_agrees() {
    for (head_dim, group, kv_heads) in [
        (64, 3, 3),
        (16, 1, 2),
        (96, 4, 1),
        (128, 8, 1),
        (20, 12, 1),
        (256, 2, 1),
    ] {
        assert_agreement(Shape::new(head_dim, kv_heads, group, 16), &borders(11));
    }
}

/// Halves, and bytes with their scales: groups cut short, an odd number of them a row.
#[test]
fn every_type_of_pages_agrees() {
    for (dtype, head_dim, group, window, softcap) in [
        (KvDtype::F16, 64, 3, 0, 0.0),
        (KvDtype::F16, 20, 2, 33, 1.0),
        (KvDtype::Int8, 64, 3, 0, 0.0),
        (KvDtype::Int8, 20, 2, 33, 1.0),
        (KvDtype::Int8, 80, 12, 0, 0.0),
    ] {
        let shape = Shape {
            dtype,
            window,
            softcap,
            ..Shape::new(head_dim, 2, group, 16)
        };
        assert_agreement(shape, &borders(9));
    }
}

/// Windows of one key, under, of and over a page, a block and a part; with a cap that matters, one
/// that hardly does, and none.
#[test]
fn windows_and_caps_agree() {
    for (head_dim, group, window, softcap) in [
        (64, 3, 1, 0.0),
        (20, 2, 10, 1.0),
        (64, 3, 16, 0.0),
        (256, 2, 32, 50.0),
        (64, 3, 33, 1.0),
        (20, 2, 100, 0.0),
        (64, 3, 256, 0.0),
        (256, 2, 300, 1.0),
        (64, 3, 0, 2.0),
    ] {
        let shape = Shape {
            window,
            softcap,
            ..Shape::new(head_dim, 1, group, 16)
        };
        assert_agreement(shape, &borders(9));
    }
}

#[test]
fn chunks_and_company_change_no_bit() {
    let full = Shape::new(64, 1, 3, 32);
    chunks_change_no_bit(full);
    chunks_change_no_bit(Shape {
        dtype: KvDtype::Int8,
        ..full
    });
    chunks_change_no_bit(Shape {
        window: 40,
        softcap: 3.0,
        ..full
    });
}

fn chunks_change_no_bit(shape: Shape) {
    let seq = |context, queries| Seq {
        seed: 9,
        context,
        queries,
    };
    let company = |context, queries| Seq {
        seed: 10,
        context,
        queries,
    };
    let whole = shape.run(&mut *gpu(), PLAIN, Regime::Prefill, &[seq(300, 300)]);
    for bodies in BODIES {
        for chunk in [
            seq(1, 1),
            seq(37, 36),
            seq(250, 13),
            seq(263, 13),
            seq(300, 37),
        ] {
            for seqs in [vec![chunk], vec![company(77, 5), chunk, company(3, 3)]] {
                // Positions are drawn in order, so a prefix has the contents of the whole.
                let rows = shape.run(&mut *gpu(), bodies, Regime::Prefill, &seqs);
                assert_same_bits(&format!("{seqs:?} {bodies:?}"), &whole, &rows);
                let rows = shape.run(&mut *gpu(), bodies, Regime::Decode, &seqs);
                assert_same_bits(&format!("{seqs:?} {bodies:?} decode"), &whole, &rows);
            }
        }
    }
    let whole = shape.run(
        &mut CpuExecutor::default(),
        PLAIN,
        Regime::Prefill,
        &[seq(300, 300)],
    );
    let rows = shape.run(
        &mut CpuExecutor::default(),
        PLAIN,
        Regime::Decode,
        &[seq(290, 40)],
    );
    assert_same_bits("reference", &whole, &rows);
}

/// Against the softmax as written in a textbook, in f64: the reference's own check.
#[test]
fn the_reference_is_attention() {
    for (window, softcap) in [(0, 0.0), (50, 0.0), (0, 0.7), (290, 0.7)] {
        textbook(Shape {
            window,
            softcap,
            ..Shape::new(20, 2, 2, 16)
        });
    }
}

fn textbook(shape: Shape) {
    let seqs = [Seq {
        seed: 4,
        context: 300,
        queries: 1,
    }];
    let step = shape.step(&seqs);
    let rows = shape.run(&mut CpuExecutor::default(), PLAIN, Regime::Prefill, &seqs);
    let pages = 300usize.div_ceil(16);
    let table = &step.words[step::HEADER + GROUP as usize * pages..];
    let keys = || shape.first_seen(299)..300;
    let mut expected = Vec::new();
    for head in 0..shape.heads() {
        let q = &step.qkv[4 + head * 20..][..20];
        let row = |position: usize| {
            let page = table[position / 16] as usize;
            ((page * 2 + head / 2) * 16 + position % 16) * 20
        };
        let scores: Vec<f64> = keys()
            .map(|position| {
                let k: &[f32] = bytemuck::cast_slice(&step.kcache[row(position)..][..20]);
                let dot: f64 = q
                    .iter()
                    .zip(k)
                    .map(|(&q, &k)| f64::from(q) * f64::from(k))
                    .sum();
                match f64::from(shape.softcap) {
                    0.0 => dot / 20f64.sqrt(),
                    cap => cap * (dot / 20f64.sqrt() / cap).tanh(),
                }
            })
            .collect();
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        for d in 0..20 {
            let o: f64 = keys()
                .zip(&scores)
                .map(|(position, s)| {
                    s.exp() / sum * f64::from(f32::from_bits(step.vcache[row(position) + d]))
                })
                .sum();
            expected.push(o as f32);
        }
    }
    assert_close("textbook", &rows[&(4, 299)], &expected, 1e-5);
}

/// Prints compile time and speed of each body at the shapes of a small model.
/// `MESA_SHADER_CACHE_DISABLE=true cargo test --test kernels attention::speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut gpu = gpu();
    for (bodies, dtype) in BODIES
        .map(|bodies| KvDtype::ALL.map(|dtype| (bodies, dtype)))
        .concat()
    {
        for (regime, context, queries, window, softcap) in [
            (Regime::Prefill, 34, 34, 0, 0.0),
            (Regime::Prefill, 512, 512, 0, 0.0),
            (Regime::Decode, 128, 1, 0, 0.0),
            (Regime::Decode, 1200, 1, 0, 0.0),
            (Regime::Prefill, 512, 512, 128, 50.0),
            (Regime::Decode, 700, 1, 128, 50.0),
        ] {
            let shape = Shape {
                dtype,
                window,
                softcap,
                ..Shape::new(64, 3, 3, 32)
            };
            let step = shape.step(&[Seq {
                seed: 1,
                context,
                queries,
            }]);
            let caps = bodies.caps(gpu.caps());
            let case = shape.case(caps, regime, &step);
            let slices: Vec<Slice> = case
                .inputs
                .iter()
                .map(|input| {
                    let bytes = input.bytes();
                    let buffer = gpu.create_buffer("speed", bytes.len() as u64).unwrap();
                    gpu.write(buffer, 0, bytes).unwrap();
                    Slice::whole(buffer, bytes.len() as u64)
                })
                .collect();
            let commands = (case.dispatches)(&slices)
                .into_iter()
                .map(|d| Command::Dispatch(Box::new(d)))
                .collect();
            let program = Program::new("speed", commands);
            let args = StepArgs {
                upload: None,
                counts: case.counts.clone(),
            };
            let mut run = |times: usize| {
                let start = (Instant::now(), cpu_seconds());
                for _ in 0..times {
                    gpu.launch(&program, &args).unwrap();
                }
                pollster::block_on(gpu.read(slices[4].buffer, 0..4)).unwrap();
                (start.0.elapsed().as_secs_f64(), cpu_seconds() - start.1)
            };
            let cold = run(1);
            let warm = run(1);
            let times = ((0.3 / warm.0) as usize).clamp(1, 200);
            let (seconds, cpu) = (0..5)
                .map(|_| run(times))
                .fold((f64::INFINITY, f64::INFINITY), |a, b| {
                    (a.0.min(b.0 / times as f64), a.1.min(b.1 / times as f64))
                });
            let seen = |keys: usize| keys - shape.first_seen(keys - 1);
            let pairs: usize = (context - queries + 1..=context).map(seen).sum();
            let flops = (4 * pairs * shape.heads() * shape.head_dim) as f64;
            println!(
                "{dtype:?} {regime:?} {bodies:?}, context {context}, window {window}, cap {softcap}, {queries} queries: compile {:.0} ms ({:.0} CPU), run {:.1} µs ({:.1} CPU), {:.2} GFLOP/s ({:.2} a CPU second)",
                1e3 * (cold.0 - warm.0),
                1e3 * (cold.1 - warm.1),
                1e6 * seconds,
                1e6 * cpu,
                flops / seconds / 1e9,
                flops / cpu / 1e9
            );
        }
    }
}

/// Processor time of the process, which a busy machine does not stretch; zero where unknown.
fn cpu_seconds() -> f64 {
    // Fields 14 and 15 of `proc_pid_stat(5)`: user and system time in ticks of 10 ms.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}
