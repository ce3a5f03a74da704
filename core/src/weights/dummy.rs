//! Checkpoints of random weights, of any published shape and in any type: for measuring what a model
//! would cost, and for holding kernels against their references, where its files are not. No tensor is
//! ever whole in memory: all of one type read the same few blocks over and over.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use half::f16;

use super::block::dequantize;
use super::checkpoint::{Checkpoint, Format};
use super::names::{expected_tensors, num_expected_tensors};
use super::source::ByteSource;
use super::{DType, TensorInfo, WeightsError};
use crate::config::{ConfigError, ModelConfig, TextAssets};

/// What the weights spread by, about that of trained ones.
const STANDARD_DEVIATION: f32 = 0.02;

/// Bytes that repeat, about.
const CHUNK: usize = 1 << 20;

/// Most tensors: published models have up to some 70,000, while 1024 layers of 1024 experts each would take
/// a gigabyte only to be named.
const MOST_TENSORS: usize = 1 << 17;

/// As far as a tensor of random weights may begin: nothing is there to end.
const ENDLESS: u64 = 1 << 60;

/// Random bits: a counter through the finalizer of `splitmix64` (Steele, Lea, Flood 2014), so that one
/// seed gives the same weights everywhere.
#[derive(Clone, Debug)]
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}

/// Uniform in [-1, 1).
fn unit(bits: u32) -> f32 {
    (bits >> 8) as f32 / (1u32 << 23) as f32 - 1.0
}

/// Whole blocks of random codes, as a file would hold them: their scales are those of `spread` 1 times
/// `spread`. Of 1, weights of small types are up to some tenths, of K types up to some units.
///
/// `bits` gives 32 random bits each time.
///
/// # Panics
/// When `bytes` are no whole blocks.
pub fn random_blocks(
    dtype: DType,
    bytes: usize,
    spread: f32,
    mut bits: impl FnMut() -> u32,
) -> Vec<u8> {
    assert!(bytes.is_multiple_of(dtype.block_bytes()), "whole blocks");
    let mut raw: Vec<u8> = (0..bytes).map(|_| (bits() >> 24) as u8).collect();
    // Where a block has its scale, and its minimum.
    let (d, m) = match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::Mxfp4 => (None, None),
        DType::Q8_0 | DType::Q4_0 | DType::Q5_0 | DType::Iq4Nl | DType::Iq4Xs => (Some(0), None),
        DType::Q4_1 | DType::Q5_1 | DType::Q4K | DType::Q5K => (Some(0), Some(2)),
        DType::Q2K => (Some(80), Some(82)),
        DType::Q3K => (Some(108), None),
        DType::Q6K => (Some(208), None),
    };
    // Of powers of two one is as good as the next lower.
    let power = spread.log2().floor().clamp(-64.0, 0.0) as i32;
    for block in raw.chunks_exact_mut(dtype.block_bytes()) {
        let mut value = || spread * unit(bits());
        match dtype {
            DType::F32 => block.copy_from_slice(&value().to_le_bytes()),
            DType::F16 => block.copy_from_slice(&f16::from_f32(value()).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&value().to_le_bytes()[2..]),
            DType::Mxfp4 => block[0] = (118 + i32::from(block[0] % 10) + power) as u8,
            _ => {}
        }
        let scale = 0.01 * spread + 0.01 * value().abs();
        for (at, value) in [(d, scale), (m, 0.1 * value())] {
            if let Some(at) = at {
                block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
            }
        }
    }
    raw
}

/// Blocks of a type whose weights spread as trained ones do.
fn trained(dtype: DType, seed: u64) -> Vec<u8> {
    let blocks = |n: usize, spread| {
        let mut bits = Bits(seed);
        random_blocks(dtype, n * dtype.block_bytes(), spread, || bits.next())
    };
    const TRIED: usize = 512;
    let mut values = vec![0.0; TRIED * dtype.block_elements()];
    dequantize(dtype, &blocks(TRIED, 1.0), &mut values);
    let squares: f32 = values.iter().map(|v| v * v).sum();
    let deviation = (squares / values.len() as f32).sqrt();
    blocks(CHUNK / dtype.block_bytes(), STANDARD_DEVIATION / deviation)
}

/// The same bytes over and over.
struct Repeated {
    name: String,
    bytes: Vec<u8>,
}

impl ByteSource for Repeated {
    fn len(&self) -> u64 {
        ENDLESS
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = (offset % self.bytes.len() as u64) as usize;
        let mut left = buf;
        while !left.is_empty() {
            let n = left.len().min(self.bytes.len() - at);
            let (now, later) = left.split_at_mut(n);
            now.copy_from_slice(&self.bytes[at..at + n]);
            (left, at) = (later, 0);
        }
        Ok(())
    }
}

/// The type that rows of `cols` elements can have: the one asked for; where they are no whole blocks
/// of it, 8 bits, else halves.
fn fitting(dtype: DType, cols: usize) -> DType {
    [dtype, DType::Q8_0]
        .into_iter()
        .find(|dtype| dtype.row_bytes(cols).is_some())
        .unwrap_or(DType::F16)
}

/// Refuses a shape of more tensors than there may be. Only experts make so many.
fn check_number(config: &ModelConfig) -> Result<(), ConfigError> {
    let tensors = num_expected_tensors(config);
    if tensors <= MOST_TENSORS {
        return Ok(());
    }
    let experts = config.moe.map_or(0, |moe| moe.num_experts);
    let layers = config.num_hidden_layers;
    Err(ConfigError {
        field: "num_experts",
        found: format!("{experts} in each of {layers} layers, which makes {tensors} tensors"),
        expected: format!("so small that there are at most {MOST_TENSORS}"),
    })
}

impl Checkpoint {
    /// A model of this shape with random weights: matrices of the type that `dtype` names for each
    /// (by Hugging Face name), or of the nearest that their rows can have; norms and biases in singles.
    /// The same shape and types give the same weights. There is no text.
    ///
    /// # Errors
    /// [`WeightsError::Config`] for a shape that cannot be, that has more than 131,072 tensors, or of which
    /// one would have more bytes than can be counted.
    pub fn dummy(
        config: ModelConfig,
        name: &str,
        dtype: impl Fn(&str) -> DType,
    ) -> Result<Self, WeightsError> {
        let wrong = |source| WeightsError::Config {
            file: name.to_owned(),
            source,
        };
        config.check().map_err(wrong)?;
        check_number(&config).map_err(wrong)?;
        let mut sources: BTreeMap<DType, Arc<dyn ByteSource>> = BTreeMap::new();
        // Gains are about 1 as they multiply.
        let mut bits = Bits(1);
        let gains = (0..CHUNK / 4).map(|_| 1.0 - config.norm_offset + 0.1 * unit(bits.next()));
        let gains: Arc<dyn ByteSource> = Arc::new(Repeated {
            name: name.to_owned(),
            bytes: gains.flat_map(f32::to_le_bytes).collect(),
        });
        let mut tensors = BTreeMap::new();
        for (number, (tensor, shape)) in expected_tensors(&config).enumerate() {
            let cols = shape.last().copied().unwrap_or(1);
            let dtype = match shape.len() > 1 {
                true => fitting(dtype(&tensor), cols),
                false => DType::F32,
            };
            let source = match shape.len() == 1 && tensor.ends_with("norm.weight") {
                true => Arc::clone(&gains),
                false => Arc::clone(sources.entry(dtype).or_insert_with(|| {
                    Arc::new(Repeated {
                        name: name.to_owned(),
                        bytes: trained(dtype, dtype as u64),
                    })
                })),
            };
            let rows: usize = shape.iter().rev().skip(1).product();
            let bytes = dtype
                .row_bytes(cols)
                .and_then(|row| u64::try_from(row.checked_mul(rows)?).ok())
                .filter(|&bytes| bytes < ENDLESS / 2)
                .ok_or_else(|| {
                    wrong(ConfigError {
                        field: "vocab_size",
                        found: config.vocab_size.to_string(),
                        expected: "so small that a tensor's bytes can be counted".into(),
                    })
                })?;
            // Each begins at another block.
            let offset = (number as u64 * 7919 % 4096) * dtype.block_bytes() as u64;
            let info = TensorInfo {
                name: tensor.clone(),
                dtype,
                shape,
                source,
                offset,
                bytes,
                quantization: None,
            };
            tensors.insert(tensor, info);
        }
        let file_bytes = tensors.values().map(|t| t.bytes).sum();
        let architecture = format!("{:?}", config.architecture).to_lowercase();
        Self::new(
            name,
            config,
            tensors,
            TextAssets::default(),
            Format::Dummy,
            file_bytes,
            [Some(architecture), Some(name.to_owned()), None],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::model_config_of_json;

    fn shape() -> ModelConfig {
        let json = serde_json::json!({
            "model_type": "llama", "vocab_size": 100, "hidden_size": 320, "intermediate_size": 512,
            "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1,
        });
        model_config_of_json(&json).expect("a shape")
    }

    #[test]
    fn weights_spread_as_trained_ones_do() {
        for dtype in DType::ALL {
            let bytes = trained(dtype, 3);
            let elements = bytes.len() / dtype.block_bytes() * dtype.block_elements();
            let mut values = vec![0.0; elements];
            dequantize(dtype, &bytes, &mut values);
            let squares: f64 = values.iter().map(|v| f64::from(v * v)).sum();
            let deviation = (squares / values.len() as f64).sqrt() as f32;
            let off = deviation / STANDARD_DEVIATION;
            // A power of two is rounded down.
            assert!((0.45..1.1).contains(&off), "{dtype}: {deviation}");
        }
    }

    #[test]
    fn a_model_of_random_weights_has_its_types_and_is_the_same_each_time() {
        let model = || Checkpoint::dummy(shape(), "dummy", |_| DType::Q4K).expect("a shape");
        let model = (model(), model());
        let down = "model.layers.1.mlp.down_proj.weight";
        let dtypes = [down, "model.layers.0.self_attn.q_proj.weight"]
            .map(|name| model.0.tensor(name).expect("it is there").dtype);
        // Rows of 320 are no whole blocks of 256.
        assert_eq!(dtypes, [DType::Q4K, DType::Q8_0]);
        let rows = |model: &Checkpoint| {
            let tensor = model.tensor(down).expect("it is there");
            tensor.read_rows(300..320).expect("rows")
        };
        assert_eq!(rows(&model.0), rows(&model.1));
        let norm = model.0.tensor("model.norm.weight").expect("it is there");
        let gains = norm.read_f32().expect("gains");
        assert!(gains.iter().all(|g| (0.9..=1.1).contains(g)));
        assert_eq!(model.0.metadata.format.to_string(), "random weights");
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let config = ModelConfig {
            num_key_value_heads: 2,
            ..shape()
        };
        assert!(Checkpoint::dummy(config, "dummy", |_| DType::F16).is_err());
        // Of more tensors than could be listed in reasonable time.
        let json = serde_json::json!({
            "model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 1024,
            "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 64,
            "num_experts": 1024, "num_experts_per_tok": 1, "moe_intermediate_size": 32,
        });
        let vast = model_config_of_json(&json).expect("a shape");
        let refused = Checkpoint::dummy(vast, "dummy", |tensor| panic!("{tensor} was listed"));
        let refused = refused.map(|_| ()).expect_err("too many").to_string();
        assert!(refused.contains("1024 in each of 1024 layers"), "{refused}");
    }
}
