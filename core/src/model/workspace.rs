//! Everything a step needs besides weights: activations, scratch, the step buffer, and pages of keys
//! and values. Sized once for the longest step; programs bind its windows.

use crate::config::ModelConfig;
use crate::error::Result;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::attention_decode;
use twoclock_shaders::kernels::sample::candidates;
use twoclock_shaders::kernels::step::PART_KEYS;
use twoclock_shaders::kernels::weight::GROUP;
use twoclock_shaders::program::Slice;

/// Sizes that decide the workspace's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceSizes {
    /// Most tokens in a step.
    pub tokens: u32,
    /// Most rows of one group of the head.
    pub rows: u32,
    /// Most decode queries in a step.
    pub decodes: u32,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Words of the step buffer.
    pub step_words: u32,
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
    /// Matmul input of width hidden.
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
    /// Candidates of the sampler.
    pub best: Slice,
    /// Drawn ids, one for each of the step's rows, u32 `[tokens]`.
    pub ids: Slice,
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
}

/// Tokens a matmul's or norm's tile may reach past the last one: buffers have room for whole tiles.
const TILE: u32 = 64;

impl WorkspaceSizes {
    /// The head's rows in one group: as many as the step may have, while their logits fit one
    /// binding and stay moderate.
    pub fn head_rows(config: &ModelConfig, caps: &Caps, tokens: u32) -> u32 {
        let fit = caps.max_binding_bytes / (4 * config.vocab_size as u64);
        tokens.min(64).min(fit.max(1) as u32)
    }

    /// Parts of the longest context.
    pub fn max_parts(&self) -> u32 {
        self.max_model_len.div_ceil(PART_KEYS)
    }

    /// Scratch of the decode queries' parts, bytes.
    pub fn parts_bytes(&self, config: &ModelConfig) -> u64 {
        attention_decode::parts_bytes(
            self.decodes,
            config.num_attention_heads as u32,
            self.max_parts(),
            config.head_dim as u32,
        )
    }
}

/// Name and bytes of every buffer, in the order of [`Workspace::create`].
pub fn buffers(config: &ModelConfig, sizes: &WorkspaceSizes) -> Vec<(&'static str, u64)> {
    let tokens = u64::from(sizes.tokens.next_multiple_of(TILE));
    let rows = u64::from(sizes.rows.next_multiple_of(TILE));
    let padded = |k: usize| k.next_multiple_of(GROUP as usize) as u64;
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
        ("act_heads", 4 * tokens * padded(heads)),
        ("act_ffn", 4 * tokens * ffn[1]),
        ("rstd", 4 * tokens),
        ("qkv", 4 * tokens * (heads + 2 * kv) as u64),
        ("sublayer", 4 * tokens * hidden),
        ("gate_up", 8 * tokens * ffn[0]),
        ("parts", sizes.parts_bytes(config)),
        ("row_x", 4 * rows * hidden),
        ("row_act", 4 * rows * padded(config.hidden_size)),
        ("row_rstd", 4 * rows),
        ("logits", 4 * u64::from(sizes.rows) * vocab),
        (
            "best",
            8 * u64::from(sizes.rows) * u64::from(candidates(config.vocab_size as u32)),
        ),
        ("ids", 4 * tokens),
    ];
    if let Some(moe) = &config.moe {
        let chosen = moe.num_experts_per_tok as u64;
        buffers.extend([
            ("router_logits", 4 * tokens * moe.num_experts as u64),
            ("route", 8 * tokens * chosen),
            ("expert_out", 4 * tokens * chosen * hidden),
        ]);
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
            let bytes = bytes.next_multiple_of(16);
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
            best,
            ids,
            ref mixture @ ..,
        ] = slices[..]
        else {
            unreachable!("one slice for each buffer");
        };
        let mixture = match *mixture {
            [logits, route, out] => Some(MixtureBuffers { logits, route, out }),
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
            best,
            ids,
            mixture,
        })
    }
}

/// Pages of keys and values, f32 `[page][kv_head][token][dim]`, a pair of buffers a layer.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Tokens a page.
    pub block_size: u32,
    /// (keys, values) by layer.
    pub layers: Vec<(Slice, Slice)>,
}

impl Pages {
    /// Bytes of one page of keys in one layer.
    pub fn page_bytes(config: &ModelConfig, block_size: u32) -> u64 {
        4 * (config.num_key_value_heads * config.head_dim) as u64 * u64::from(block_size)
    }

    /// Makes `num_blocks` pages in every layer.
    ///
    /// # Errors
    /// A device without room.
    pub fn create(
        executor: &mut impl Executor,
        config: &ModelConfig,
        block_size: u32,
        num_blocks: u32,
    ) -> Result<Self> {
        let bytes = Self::page_bytes(config, block_size) * u64::from(num_blocks);
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for _ in 0..config.num_hidden_layers {
            let keys = executor.create_buffer("keys", bytes)?;
            let values = executor.create_buffer("values", bytes)?;
            layers.push((Slice::whole(keys, bytes), Slice::whole(values, bytes)));
        }
        Ok(Self { block_size, layers })
    }
}
