//! The llama family: Llama 2 and 3, SmolLM2 and everything shaped like them. Owns which tensors a
//! block takes and what the kernels ask of its shape.

use super::arena::{ArenaBuilder, ArenaRef};
use super::decoder::{Decoder, DecoderLayer, Projection};
use super::linear::{self, Linear};
use super::rope;
use crate::config::{ConfigError, ModelConfig};
use crate::error::Result;
use crate::weights::{Checkpoint, TensorInfo, WeightsError};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::attention::MAX_HEAD_DIM;
use twoclock_shaders::kernels::rms_norm::MAX_DIM;
use twoclock_shaders::program::Slice;

/// The tensors stacked into each linear layer of a block, in its order of loading.
const STACKS: [&[&str]; 4] = [
    &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    &["self_attn.o_proj"],
    &["mlp.gate_proj", "mlp.up_proj"],
    &["mlp.down_proj"],
];

/// Checks what the kernels ask of a shape.
///
/// # Errors
/// The first number no kernel computes.
pub fn check(config: &ModelConfig) -> Result<(), ConfigError> {
    let fail = |field, found: usize, expected: String| {
        Err(ConfigError {
            field,
            found: found.to_string(),
            expected,
        })
    };
    if !config.head_dim.is_multiple_of(4) || config.head_dim > MAX_HEAD_DIM as usize {
        let expected = format!("a multiple of 4 up to {MAX_HEAD_DIM} to be computed here");
        return fail("head_dim", config.head_dim, expected);
    }
    if !config.hidden_size.is_multiple_of(4) || config.hidden_size > MAX_DIM as usize {
        let expected = format!("a multiple of 4 up to {MAX_DIM} to be computed here");
        return fail("hidden_size", config.hidden_size, expected);
    }
    if !config.intermediate_size.is_multiple_of(4) {
        let expected = "a multiple of 4 to be computed here".to_owned();
        return fail("intermediate_size", config.intermediate_size, expected);
    }
    Ok(())
}

fn stack<'a>(
    checkpoint: &'a Checkpoint,
    layer: usize,
    names: &[&str],
) -> Result<Vec<&'a TensorInfo>, WeightsError> {
    names
        .iter()
        .map(|name| checkpoint.tensor(&format!("model.layers.{layer}.{name}.weight")))
        .collect()
}

/// Bytes the weights take on a device, without loading them.
///
/// # Errors
/// A tensor that is missing.
pub fn device_bytes(caps: &Caps, checkpoint: &Checkpoint) -> Result<u64> {
    let mut bytes = linear::device_bytes(caps, &[checkpoint.tensor("model.embed_tokens.weight")?]);
    if !checkpoint.config.tie_word_embeddings {
        bytes += linear::device_bytes(caps, &[checkpoint.tensor("lm_head.weight")?]);
    }
    for layer in 0..checkpoint.config.num_hidden_layers {
        for names in STACKS {
            bytes += linear::device_bytes(caps, &stack(checkpoint, layer, names)?);
        }
    }
    Ok(bytes)
}

/// Loads a checkpoint, with a rotary table of `positions`. `progress` is told the share that is
/// done, 0 to 1.
///
/// # Errors
/// A shape no kernel computes, a file that cannot be read, or a device without room.
pub fn load(
    executor: &mut impl Executor,
    checkpoint: &Checkpoint,
    positions: usize,
    mut progress: impl FnMut(f32),
) -> Result<Decoder> {
    let config = checkpoint.config.clone();
    let table = checkpoint.tensor("model.embed_tokens.weight")?;
    check(&config).map_err(|source| WeightsError::Config {
        file: table.source.name().to_owned(),
        source,
    })?;
    let steps = (config.num_hidden_layers + 2) as f32;
    let mut arena = ArenaBuilder::new(executor.caps().binding_alignment);
    let mut vector = |name: String| -> Result<ArenaRef, WeightsError> {
        Ok(arena.push(&checkpoint.tensor(&name)?.read_f32()?))
    };

    // Vectors first: the arena is one buffer.
    let norm = vector("model.norm.weight".into())?;
    let mut norms = Vec::with_capacity(config.num_hidden_layers);
    for layer in 0..config.num_hidden_layers {
        norms.push([
            vector(format!("model.layers.{layer}.input_layernorm.weight"))?,
            vector(format!(
                "model.layers.{layer}.post_attention_layernorm.weight"
            ))?,
        ]);
    }
    let mut biases = Vec::with_capacity(config.num_hidden_layers);
    for layer in 0..config.num_hidden_layers {
        let mut of_layer = [None; 4];
        for (bias, names) in of_layer.iter_mut().zip(STACKS) {
            *bias = stacked_bias(checkpoint, &config, layer, names)?.map(|b| arena.push(&b));
        }
        biases.push(of_layer);
    }
    let arena = arena.upload(executor)?;

    let embedding = Linear::load(executor, &[table])?;
    progress(1.0 / steps);
    let mut layers = Vec::with_capacity(config.num_hidden_layers);
    for (layer, ([input_norm, post_norm], biases)) in norms.into_iter().zip(biases).enumerate() {
        let mut projections = Vec::with_capacity(4);
        for (names, bias) in STACKS.iter().zip(biases) {
            projections.push(Projection {
                linear: Linear::load(executor, &stack(checkpoint, layer, names)?)?,
                bias: bias.map(|bias| arena.slice(bias)),
            });
        }
        let Ok([qkv, o, gate_up, down]) = <[Projection; 4]>::try_from(projections) else {
            unreachable!("one projection for each of 4 stacks");
        };
        layers.push(DecoderLayer {
            input_norm: arena.slice(input_norm),
            qkv,
            o,
            post_attention_norm: arena.slice(post_norm),
            gate_up,
            down,
        });
        progress((layer + 2) as f32 / steps);
    }
    let head = if config.tie_word_embeddings {
        embedding.clone()
    } else {
        Linear::load(executor, &[checkpoint.tensor("lm_head.weight")?])?
    };
    let table = rope::table(&config.rope, config.rotary_dim, positions);
    let bytes: &[u8] = bytemuck::cast_slice(&table);
    let rope_table = executor.create_buffer("rope", bytes.len() as u64)?;
    executor.write(rope_table, 0, bytes)?;
    progress(1.0);
    Ok(Decoder {
        norm: arena.slice(norm),
        embedding,
        layers,
        head,
        rope_table: Slice::whole(rope_table, bytes.len() as u64),
        config,
    })
}

fn stacked_bias(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    layer: usize,
    names: &[&str],
) -> Result<Option<Vec<f32>>, WeightsError> {
    let has = match names[0] {
        "self_attn.q_proj" => config.qkv_bias,
        "self_attn.o_proj" => config.o_bias,
        _ => config.mlp_bias,
    };
    if !has {
        return Ok(None);
    }
    let mut bias = Vec::new();
    for name in names {
        let tensor = checkpoint.tensor(&format!("model.layers.{layer}.{name}.bias"))?;
        bias.extend(tensor.read_f32()?);
    }
    Ok(Some(bias))
}
