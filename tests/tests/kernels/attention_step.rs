//! Steps of sequences for attention: their pages, queries and tables, and what a run of the kernels makes of
//! them. Knows no expected value.

use crate::attention_bodies::Bodies;
use crate::step::step_buffer;
use std::collections::BTreeMap;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::step::{self, TILE_QUERIES};
use twoclock_shaders::kernels::{attention_decode, attention_merge, attention_prefill, rope_kv};
use twoclock_shaders::program::{CountId, Dispatch, Slice};
use twoclock_tests::{Case, Noise};

pub(crate) const TILES: CountId = CountId(0);
pub(crate) const DECODES: CountId = CountId(1);
pub(crate) const PARTS: CountId = CountId(2);
pub(crate) const MERGES: CountId = CountId(3);
pub(crate) const MAX_PARTS: u32 = 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) dtype: KvDtype,
    pub(crate) act_format: ActFormat,
    pub(crate) head_dim: usize,
    pub(crate) kv_heads: usize,
    pub(crate) group: usize,
    pub(crate) block_size: usize,
    /// Keys a query sees; 0 for all.
    pub(crate) window: usize,
    pub(crate) softcap: f32,
}

/// A sequence of the step: who it is (its contents follow), its context, its last queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seq {
    pub(crate) seed: u64,
    pub(crate) context: usize,
    pub(crate) queries: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Regime {
    Prefill,
    Decode,
}

pub(crate) struct Step {
    pub(crate) qkv: Vec<f32>,
    pub(crate) kcache: Vec<u32>,
    pub(crate) vcache: Vec<u32>,
    pub(crate) words: Vec<u32>,
    pub(crate) counts: Vec<u32>,
    /// (seed, position) of every token.
    pub(crate) tokens: Vec<(u64, usize)>,
}

/// The page of what no query of a step sees: other sequences' leavings, perhaps.
pub(crate) const NULL_PAGE: u32 = 0;
/// Group of layers under test. The tables of the other lead to the null page.
pub(crate) const GROUP: u32 = 1;

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
    pub(crate) fn first_seen(&self, position: usize) -> usize {
        match self.window {
            0 => 0,
            window => (position + 1).saturating_sub(window),
        }
    }

    pub(crate) fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Elements of a row of qkv: four odd ones before the queries, and some after.
    pub(crate) fn stride(&self) -> usize {
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
        let queries = decodes.len() as u32 / 2;
        let merges = if most_parts > 1 { queries } else { 0 };
        step.counts = vec![tiles.len() as u32 / 2, queries, most_parts, merges];
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
    pub(crate) fn pages(&self, pages: usize, cached: &[f32], slots: &[u32]) -> [Vec<u32>; 2] {
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

    pub(crate) fn dispatches(
        &self,
        caps: &Caps,
        regime: Regime,
        context: u32,
        b: &[Slice],
    ) -> Vec<Dispatch> {
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
                    act_format,
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
                        act_stride,
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
                        out: b[4],
                        act_format,
                    },
                ),
                attention_merge::dispatch(
                    head_dim,
                    attention_merge::AttentionMergeParams {
                        heads,
                        max_parts: MAX_PARTS,
                        act_stride,
                        window,
                    },
                    MERGES,
                    context,
                    attention_merge::Buffers {
                        parts: b[5],
                        step: b[3],
                        out: b[4],
                        act_format,
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
    pub(crate) fn run(
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

pub(crate) type Rows = BTreeMap<(u64, usize), Vec<f32>>;

pub(crate) const REGIMES: [Regime; 2] = [Regime::Prefill, Regime::Decode];

pub(crate) const CONTEXTS: [usize; 8] = [1, 31, 32, 33, 255, 256, 257, 700];

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
