//! From a checkpoint to a [`Decoder`] on a device: which tensors each part of a block takes, and what
//! the kernels ask of a model's shape. Knows no family: all follows from the configuration.

use super::NumericsClass;
use super::arena::{Arena, ArenaBuilder, ArenaRef};
use super::decoder::{Decoder, DecoderLayer, Projection};
use super::experts::Experts;
use super::feed_forward::{FeedForward, Mixture};
use super::linear::{self, Linear};
use super::rope_tables::Ropes;
use crate::config::{ConfigError, ModelConfig};
use crate::error::Result;
use crate::weights::names::NormNames;
use crate::weights::{Checkpoint, TensorInfo, WeightsError};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::attention::MAX_HEAD_DIM;
use twoclock_shaders::kernels::rms_norm::MAX_DIM;

/// Queries, keys and values, stacked into one linear layer.
const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
const O: [&str; 1] = ["self_attn.o_proj"];
/// Gate and up, stacked.
const GATE_UP: [&str; 2] = ["mlp.gate_proj", "mlp.up_proj"];
const DOWN: [&str; 1] = ["mlp.down_proj"];
/// Chooses the experts.
const ROUTER: &str = "mlp.gate";
/// The projections of an expert.
const EXPERT: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

/// Checks what the kernels ask of a model's shape.
///
/// # Errors
/// The first number no kernel computes.
pub fn check(checkpoint: &Checkpoint) -> Result<(), WeightsError> {
    let table = checkpoint.tensor("model.embed_tokens.weight")?;
    check_shape(&checkpoint.config).map_err(|source| WeightsError::Config {
        file: table.source.name().to_owned(),
        source,
    })
}

fn check_shape(config: &ModelConfig) -> Result<(), ConfigError> {
    let most = |field, found: usize, most: usize| {
        if found.is_multiple_of(4) && found <= most {
            return Ok(());
        }
        Err(ConfigError {
            field,
            found: found.to_string(),
            expected: format!("a multiple of 4 up to {most} to be computed here"),
        })
    };
    most("head_dim", config.head_dim, MAX_HEAD_DIM as usize)?;
    most("hidden_size", config.hidden_size, MAX_DIM as usize)?;
    most("intermediate_size", config.intermediate_size, 1 << 20)?;
    if let Some(moe) = &config.moe {
        most("moe_intermediate_size", moe.moe_intermediate_size, 1 << 20)?;
    }
    Ok(())
}

/// A checkpoint, layer by layer.
#[derive(Clone, Copy)]
struct Source<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a ModelConfig,
}

impl<'a> Source<'a> {
    fn weight(self, layer: usize, name: &str) -> Result<&'a TensorInfo, WeightsError> {
        let name = format!("model.layers.{layer}.{name}.weight");
        self.checkpoint.tensor(&name)
    }

    fn stack(self, layer: usize, names: &[&str]) -> Result<Vec<&'a TensorInfo>, WeightsError> {
        names.iter().map(|name| self.weight(layer, name)).collect()
    }

    /// One projection of all experts.
    fn experts(self, layer: usize, name: &str) -> Result<Vec<&'a TensorInfo>, WeightsError> {
        let experts = self.config.experts(layer).map_or(0, |moe| moe.num_experts);
        (0..experts)
            .map(|expert| self.weight(layer, &format!("mlp.experts.{expert}.{name}")))
            .collect()
    }

    /// Bytes of a layer on a device.
    fn layer_bytes(self, caps: &Caps, layer: usize) -> Result<u64> {
        let mut stacks = vec![self.stack(layer, &QKV)?, self.stack(layer, &O)?];
        let mut bytes = 0;
        if self.config.experts(layer).is_some() {
            stacks.push(self.stack(layer, &[ROUTER])?);
            for name in EXPERT {
                bytes += super::experts::device_bytes(caps, &self.experts(layer, name)?)?;
            }
        } else {
            stacks.push(self.stack(layer, &GATE_UP)?);
            stacks.push(self.stack(layer, &DOWN)?);
        }
        let stacks = stacks.iter().map(|stack| linear::device_bytes(caps, stack));
        Ok(bytes + stacks.sum::<u64>())
    }
}

/// Bytes the weights, norms and biases take on a device, and those of rotary tables of `positions`,
/// without loading them.
///
/// # Errors
/// A tensor that is missing, an expert that no buffer holds.
pub fn device_bytes(caps: &Caps, checkpoint: &Checkpoint, positions: usize) -> Result<(u64, u64)> {
    let config = &checkpoint.config;
    let source = Source { checkpoint, config };
    let mut bytes = linear::device_bytes(caps, &[checkpoint.tensor("model.embed_tokens.weight")?]);
    if !config.tie_word_embeddings {
        bytes += linear::device_bytes(caps, &[checkpoint.tensor("lm_head.weight")?]);
    }
    for layer in 0..config.num_hidden_layers {
        bytes += source.layer_bytes(caps, layer)?;
    }
    let mut reader = VectorReader::new(source, caps, false);
    reader.all()?;
    let tables = Ropes::bytes(config, positions, caps, &reader.arena);
    Ok((bytes + reader.arena.bytes(), tables))
}

/// The vectors of a layer, on their way to the arena.
struct Vectors {
    input_norm: ArenaRef,
    qk_norm: Option<ArenaRef>,
    post_attention_norm: Option<ArenaRef>,
    ffn_norm: ArenaRef,
    post_ffn_norm: Option<ArenaRef>,
    qkv: Option<ArenaRef>,
    o: Option<ArenaRef>,
    gate_up: Option<ArenaRef>,
    down: Option<ArenaRef>,
}

/// Fills the arena.
struct VectorReader<'a> {
    source: Source<'a>,
    arena: ArenaBuilder,
    /// Read the files; else only see how much there is.
    read: bool,
}

impl<'a> VectorReader<'a> {
    fn new(source: Source<'a>, caps: &Caps, read: bool) -> Self {
        let arena = ArenaBuilder::new(caps.binding_alignment);
        Self {
            source,
            arena,
            read,
        }
    }

    /// The last norm, and the vectors of every layer.
    fn all(&mut self) -> Result<(ArenaRef, Vec<Vectors>), WeightsError> {
        let norm = self.norm("model.norm.weight")?;
        let layers = 0..self.source.config.num_hidden_layers;
        let layers = layers.map(|layer| self.layer(layer));
        Ok((norm, layers.collect::<Result<_, _>>()?))
    }

    fn values(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.source.checkpoint.tensor(name)?;
        if self.read {
            return tensor.read_f32();
        }
        Ok(vec![0.0; tensor.shape.iter().product()])
    }

    /// Gains of a norm, as they multiply.
    fn gains(&self, name: &str) -> Result<Vec<f32>, WeightsError> {
        let mut gains = self.values(name)?;
        let offset = self.source.config.norm_offset;
        if offset != 0.0 {
            gains.iter_mut().for_each(|g| *g += offset);
        }
        Ok(gains)
    }

    fn norm(&mut self, name: &str) -> Result<ArenaRef, WeightsError> {
        let gains = self.gains(name)?;
        Ok(self.arena.push(&gains))
    }

    fn layer_norm(&mut self, layer: usize, name: &str) -> Result<ArenaRef, WeightsError> {
        self.norm(&format!("model.layers.{layer}.{name}.weight"))
    }

    fn bias(
        &mut self,
        layer: usize,
        names: &[&str],
        has: bool,
    ) -> Result<Option<ArenaRef>, WeightsError> {
        if !has {
            return Ok(None);
        }
        let mut bias = Vec::new();
        for name in names {
            let name = format!("model.layers.{layer}.{name}.bias");
            bias.extend(self.values(&name)?);
        }
        Ok(Some(self.arena.push(&bias)))
    }

    fn layer(&mut self, layer: usize) -> Result<Vectors, WeightsError> {
        let config = self.source.config;
        let dense = config.experts(layer).is_none();
        let names = NormNames::of(config);
        let qk_norm = if config.qk_norm {
            let mut gains = Vec::new();
            for name in ["q_norm", "k_norm"] {
                let name = format!("model.layers.{layer}.self_attn.{name}.weight");
                gains.extend(self.gains(&name)?);
            }
            Some(self.arena.push(&gains))
        } else {
            None
        };
        let mut post =
            |name: Option<&str>| name.map(|name| self.layer_norm(layer, name)).transpose();
        let post_attention_norm = post(names.post_attention)?;
        let post_ffn_norm = post(names.after)?;
        Ok(Vectors {
            input_norm: self.layer_norm(layer, "input_layernorm")?,
            qk_norm,
            post_attention_norm,
            ffn_norm: self.layer_norm(layer, names.before)?,
            post_ffn_norm,
            qkv: self.bias(layer, &QKV, config.qkv_bias)?,
            o: self.bias(layer, &O, config.o_bias)?,
            gate_up: self.bias(layer, &GATE_UP, config.mlp_bias && dense)?,
            down: self.bias(layer, &DOWN, config.mlp_bias && dense)?,
        })
    }
}

/// Loads a checkpoint to compute so, with rotary tables of `positions`. `progress` is told the share that is
/// done, 0 to 1.
///
/// # Errors
/// A shape no kernel computes, a file that cannot be read, or a device without room.
pub fn load(
    executor: &mut impl Executor,
    checkpoint: &Checkpoint,
    numerics: NumericsClass,
    positions: usize,
    mut progress: impl FnMut(f32),
) -> Result<Decoder> {
    check(checkpoint)?;
    let config = checkpoint.config.clone();
    let table = checkpoint.tensor("model.embed_tokens.weight")?;
    let source = Source {
        checkpoint,
        config: &config,
    };
    let steps = (config.num_hidden_layers + 2) as f32;

    // Vectors first: the arena is one buffer.
    let mut reader = VectorReader::new(source, executor.caps(), true);
    let (norm, vectors) = reader.all()?;
    let arena = reader.arena;
    let (arena, ropes) = Ropes::load(executor, &config, positions, arena)?;

    let embedding = Linear::load(executor, &[table])?;
    progress(1.0 / steps);
    let mut layers = Vec::with_capacity(config.num_hidden_layers);
    for (layer, vectors) in vectors.into_iter().enumerate() {
        layers.push(load_layer(executor, source, layer, &vectors, arena, ropes)?);
        progress((layer + 2) as f32 / steps);
    }
    let head = if config.tie_word_embeddings {
        embedding.clone()
    } else {
        Linear::load(executor, &[checkpoint.tensor("lm_head.weight")?])?
    };
    progress(1.0);
    Ok(Decoder {
        norm: arena.slice(norm),
        constants: arena.whole(),
        embedding,
        layers,
        head,
        config,
        numerics,
    })
}

fn load_layer(
    executor: &mut impl Executor,
    source: Source<'_>,
    layer: usize,
    vectors: &Vectors,
    arena: Arena,
    ropes: Ropes,
) -> Result<DecoderLayer> {
    let config = source.config;
    let slice = |at: Option<ArenaRef>| at.map(|at| arena.slice(at));
    let mut projection = |names: &[&str], bias: Option<ArenaRef>| -> Result<Projection> {
        Ok(Projection {
            linear: Linear::load(executor, &source.stack(layer, names)?)?,
            bias: slice(bias),
        })
    };
    let qkv = projection(&QKV, vectors.qkv)?;
    let o = projection(&O, vectors.o)?;
    let feed_forward = match config.experts(layer) {
        None => FeedForward::Dense {
            gate_up: projection(&GATE_UP, vectors.gate_up)?,
            down: projection(&DOWN, vectors.down)?,
        },
        Some(&moe) => {
            let router = projection(&[ROUTER], None)?;
            let mut experts = |name| Experts::load(executor, &source.experts(layer, name)?);
            FeedForward::Mixture(Mixture {
                moe,
                router,
                gate: experts(EXPERT[0])?,
                up: experts(EXPERT[1])?,
                down: experts(EXPERT[2])?,
            })
        }
    };
    Ok(DecoderLayer {
        input_norm: arena.slice(vectors.input_norm),
        qkv,
        qk_norm: slice(vectors.qk_norm),
        rope_table: ropes.of(config.layers[layer].rope),
        o,
        post_attention_norm: slice(vectors.post_attention_norm),
        ffn_norm: arena.slice(vectors.ffn_norm),
        feed_forward,
        post_ffn_norm: slice(vectors.post_ffn_norm),
    })
}
