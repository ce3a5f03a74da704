//! Everything a step needs besides weights: activations, scratch, the step buffer, and pages of keys
//! and values. Sized once for the longest step; programs bind its windows.

use super::TOKENS;
use crate::config::ModelConfig;
use crate::error::Result;
use crate::sched::{KvGroupSpec, SchedulerConfig};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::attention_decode;
use twoclock_shaders::kernels::kv::KvDtype;
use twoclock_shaders::kernels::moe_group::Pairs;
use twoclock_shaders::kernels::sample::candidates;
use twoclock_shaders::kernels::sample_mask::record_words;
use twoclock_shaders::kernels::weight::GROUP;
use twoclock_shaders::kernels::{sample_edit, sample_scan, step};
use twoclock_shaders::program::Slice;

/// Sizes that decide the workspace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceSizes {
    /// Most tokens in a step.
    pub tokens: u32,
    /// Most sequences that run, in a step or between steps.
    pub seqs: u32,
    /// Most rows of one group of the head.
    pub rows: u32,
    /// Most decode queries in a step.
    pub decodes: u32,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Words of the step buffer.
    pub step_words: u32,
    /// How inputs of matmuls are stored.
    pub act_format: ActFormat,
}

/// Buffers of a step.
#[derive(Clone, Copy, Debug)]
pub struct Workspace {
    /// What it was sized for.
    pub sizes: WorkspaceSizes,
    /// The step buffer.
    pub step: Slice,
    /// Residual stream, f32 `[tokens][hidden]`.
    pub x: Slice,
    /// Matmul input of width hidden, or singles of that width.
    pub act_hidden: Slice,
    /// Matmul input of width heads · `head_dim`.
    pub act_heads: Slice,
    /// Matmul input of width intermediate, or one for each chosen expert of a token.
    pub act_ffn: Slice,
    /// f32 `[tokens]`.
    pub rstd: Slice,
    /// f32 `[tokens][q, k, v]`.
    pub qkv: Slice,
    /// Output of a sublayer, f32 `[tokens][hidden]`.
    pub sublayer: Slice,
    /// f32 `[tokens][gate, up]`, or one pair for each chosen expert of a token.
    pub gate_up: Slice,
    /// Attention's parts, f32 `[decodes][heads][parts][m, l, o …]`.
    pub parts: Slice,
    /// Rows the head computes, f32 `[rows][hidden]`.
    pub row_x: Slice,
    /// Matmul input of the head.
    pub row_act: Slice,
    /// f32 `[rows]`.
    pub row_rstd: Slice,
    /// f32 `[rows][vocab]`.
    pub logits: Slice,
    /// Edits of single logits, [`MAX_EDITS`] at a time.
    pub edits: Slice,
    /// Masks of the rows that have one.
    pub masks: Slice,
    /// Where the cuts of the rows are looked for.
    pub cut: Slice,
    /// Attention's output in singles, where groups of 32 straddle heads; else next to nothing.
    pub heads: Slice,
    /// Candidates of the sampler.
    pub best: Slice,
    /// Drawn ids, one for each of the step's rows, u32 `[tokens]`.
    pub ids: Slice,
    /// States of running sequences, u32 `[seqs][last token, context, tokens left, active]`.
    pub state: Slice,
    /// What a mixture of experts needs beyond.
    pub mixture: Option<MixtureBuffers>,
}

/// Buffers of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub struct MixtureBuffers {
    /// Of the router, f32 `[tokens][experts]`.
    pub logits: Slice,
    /// Chosen experts and their weights, u32 `[tokens][chosen][2]`.
    pub route: Slice,
    /// Outputs of the chosen experts, f32 `[tokens][chosen][hidden]`.
    pub out: Slice,
    /// Pairs of tokens and experts by expert (`moe_group`).
    pub pairs: Slice,
}

/// Edits of logits that are applied at a time; there may be any number.
pub const MAX_EDITS: usize = (8 << 10) - 1;

/// Tokens a matmul's or norm's tile may reach past the last one: buffers have room for whole tiles.
const TILE: u32 = 64;

impl WorkspaceSizes {
    /// The head's rows in one group: as many as the step may have, while their logits fit one
    /// binding and stay moderate.
    pub fn head_rows(config: &ModelConfig, caps: &Caps, tokens: u32) -> u32 {
        let fit = caps.max_binding_bytes / (4 * config.vocab_size as u64);
        tokens.min(64).min(fit.max(1) as u32)
    }

    /// Most parts of one query; `window` 0 sees all.
    pub fn max_parts(&self, window: u32) -> u32 {
        attention_decode::max_parts(self.max_model_len, window)
    }

    /// Scratch of the decode queries' parts, in the layers that take most, bytes.
    pub fn parts_bytes(&self, config: &ModelConfig) -> u64 {
        let groups = KvGroupSpec::of(config);
        let most = groups
            .iter()
            .map(|group| self.max_parts(kernel_window(group)));
        attention_decode::parts_bytes(
            self.decodes,
            config.num_attention_heads as u32,
            most.max().unwrap_or(0),
            config.head_dim as u32,
        )
    }
}

/// Name and bytes of every buffer, in the order of [`Workspace::create`].
pub fn buffers(config: &ModelConfig, sizes: &WorkspaceSizes) -> Vec<(&'static str, u64)> {
    let tokens = u64::from(sizes.tokens.next_multiple_of(TILE));
    let rows = u64::from(sizes.rows.next_multiple_of(TILE));
    let padded = |k: usize| k.next_multiple_of(GROUP as usize) as u64;
    let act = |k: u64| sizes.act_format.row_bytes(k as u32);
    let straddled = !sizes.act_format.holds_heads(config.head_dim as u32);
    let hidden = config.hidden_size as u64;
    // Dense layers and experts take turns in the same buffers.
    let dense = config.layers.iter().any(|layer| !layer.moe);
    let mut ffn = [0; 2];
    if dense || config.moe.is_none() {
        ffn = [
            config.intermediate_size as u64,
            padded(config.intermediate_size),
        ];
    }
    if let Some(moe) = &config.moe {
        let (chosen, dim) = (moe.num_experts_per_tok as u64, moe.moe_intermediate_size);
        ffn = [
            ffn[0].max(chosen * dim as u64),
            ffn[1].max(chosen * padded(dim)),
        ];
    }
    let heads = config.num_attention_heads * config.head_dim;
    let kv = config.num_key_value_heads * config.head_dim;
    let vocab = config.vocab_size as u64;
    let mut buffers = vec![
        ("step", 4 * u64::from(sizes.step_words)),
        ("x", 4 * tokens * hidden),
        ("act_hidden", 4 * tokens * padded(config.hidden_size)),
        ("act_heads", tokens * act(heads as u64)),
        ("act_ffn", tokens * act(ffn[1])),
        ("rstd", 4 * tokens),
        ("qkv", 4 * tokens * (heads + 2 * kv) as u64),
        ("sublayer", 4 * tokens * hidden),
        ("gate_up", 8 * tokens * ffn[0]),
        ("parts", sizes.parts_bytes(config)),
        ("row_x", 4 * rows * hidden),
        ("row_act", rows * act(hidden)),
        ("row_rstd", 4 * rows),
        ("logits", 4 * u64::from(sizes.rows) * vocab),
        (
            "edits",
            4 * (sample_edit::EDIT_WORDS * (MAX_EDITS + 1)) as u64,
        ),
        (
            "masks",
            4 * u64::from(sizes.rows) * u64::from(record_words(config.vocab_size as u32)),
        ),
        (
            "cut",
            4 * u64::from(sizes.rows) * sample_scan::ROW_WORDS as u64,
        ),
        (
            "heads",
            4 * tokens * if straddled { heads as u64 } else { 1 },
        ),
        (
            "best",
            8 * u64::from(sizes.rows) * u64::from(candidates(config.vocab_size as u32)),
        ),
        ("ids", 4 * tokens),
        (
            "state",
            4 * u64::from(sizes.seqs) * step::STATE_WORDS as u64,
        ),
    ];
    if let Some(moe) = &config.moe {
        let chosen = moe.num_experts_per_tok as u64;
        let pairs = Pairs {
            tokens: TOKENS,
            room: tokens as u32,
            chosen: chosen as u32,
            experts: moe.num_experts as u32,
        };
        buffers.extend([
            ("router_logits", 4 * tokens * moe.num_experts as u64),
            ("route", 8 * tokens * chosen),
            ("expert_out", 4 * tokens * chosen * hidden),
            ("expert_pairs", pairs.bytes()),
        ]);
    }
    for (_, bytes) in &mut buffers {
        *bytes = bytes.next_multiple_of(16);
    }
    buffers
}

impl Workspace {
    /// Makes the buffers.
    ///
    /// # Errors
    /// A device without room.
    pub fn create(
        executor: &mut impl Executor,
        config: &ModelConfig,
        sizes: WorkspaceSizes,
    ) -> Result<Self> {
        let mut slices = Vec::new();
        for (label, bytes) in buffers(config, &sizes) {
            slices.push(Slice::whole(executor.create_buffer(label, bytes)?, bytes));
        }
        let [
            step,
            x,
            act_hidden,
            act_heads,
            act_ffn,
            rstd,
            qkv,
            sublayer,
            gate_up,
            parts,
            row_x,
            row_act,
            row_rstd,
            logits,
            edits,
            masks,
            cut,
            heads,
            best,
            ids,
            state,
            ref mixture @ ..,
        ] = slices[..]
        else {
            unreachable!("one slice for each buffer");
        };
        let mixture = match *mixture {
            [logits, route, out, pairs] => Some(MixtureBuffers {
                logits,
                route,
                out,
                pairs,
            }),
            _ => None,
        };
        Ok(Self {
            sizes,
            step,
            x,
            act_hidden,
            act_heads,
            act_ffn,
            rstd,
            qkv,
            sublayer,
            gate_up,
            parts,
            row_x,
            row_act,
            row_rstd,
            logits,
            edits,
            masks,
            cut,
            heads,
            best,
            ids,
            state,
            mixture,
        })
    }
}

/// A group's window as kernels take it: keys a query sees, 0 for all.
pub fn kernel_window(group: &KvGroupSpec) -> u32 {
    match group.window {
        None => 0,
        // No sequence is so long that a longer window would show more of it.
        Some(window) => u32::try_from(window).unwrap_or(u32::MAX),
    }
}

/// Pages of keys and values: a pair of buffers a layer.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Tokens a page.
    pub block_size: u32,
    /// By layer.
    pub layers: Vec<LayerPages>,
}

/// One layer's pages.
#[derive(Clone, Copy, Debug)]
pub struct LayerPages {
    /// Of keys.
    pub keys: Slice,
    /// Of values.
    pub values: Slice,
    /// What they hold.
    pub dtype: KvDtype,
    /// Bytes a page of keys, and of values.
    pub page_bytes: u64,
    /// The KV group whose block tables say which page is whose.
    pub group: usize,
    /// Keys a query sees, its own included; 0 for all.
    pub window: u32,
}

impl LayerPages {
    /// A block's page of keys and its page of values.
    pub fn page(&self, block: u32) -> [Slice; 2] {
        [self.keys, self.values].map(|pages| Slice {
            buffer: pages.buffer,
            offset: pages.offset + u64::from(block) * self.page_bytes,
            bytes: self.page_bytes,
        })
    }
}

impl Pages {
    /// Bytes of one page of keys in one layer.
    pub fn page_bytes(config: &ModelConfig, dtype: KvDtype, block_size: usize) -> u64 {
        let (heads, dim) = (config.num_key_value_heads, config.head_dim);
        dtype.page_bytes(heads as u32, dim as u32, block_size as u32)
    }

    /// Makes every layer's pages, as many as its group has blocks.
    ///
    /// # Errors
    /// A device without room.
    pub fn create(
        executor: &mut impl Executor,
        config: &ModelConfig,
        dtype: KvDtype,
        sched: &SchedulerConfig,
    ) -> Result<Self> {
        let page_bytes = Self::page_bytes(config, dtype, sched.block_size);
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for (number, group) in KvGroupSpec::of(config).iter().enumerate() {
            let blocks = group.num_blocks(sched) as u64;
            let bytes = page_bytes * blocks;
            for &layer in &group.layers {
                let keys = executor.create_buffer("keys", bytes)?;
                let values = executor.create_buffer("values", bytes)?;
                let pages = LayerPages {
                    keys: Slice::whole(keys, bytes),
                    values: Slice::whole(values, bytes),
                    dtype,
                    page_bytes,
                    group: number,
                    window: kernel_window(group),
                };
                layers.push((layer, pages));
            }
        }
        layers.sort_unstable_by_key(|&(layer, _)| layer);
        Ok(Self {
            block_size: sched.block_size as u32,
            layers: layers.into_iter().map(|(_, pages)| pages).collect(),
        })
    }
}
