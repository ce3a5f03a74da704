//! Quantizing weights as they are loaded: ggml's rounding of 32 values to a block, bit for bit that
//! of `quantize_row_q8_0_ref` and `quantize_row_q4_0_ref`. Knows no file and no device.

use super::DType;
use half::f16;
use std::str::FromStr;

/// What unquantized weights are turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantization {
    /// 8 bits an element; hardly to be told from the original.
    Q8_0,
    /// 4 bits an element.
    Q4_0,
}

impl Quantization {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Q8_0, Self::Q4_0];

    /// The type of the result.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Q8_0 => DType::Q8_0,
            Self::Q4_0 => DType::Q4_0,
        }
    }

    /// Blocks of these values, one after the other.
    ///
    /// # Panics
    /// When they are not whole blocks of 32.
    pub fn quantize(self, values: &[f32]) -> Vec<u8> {
        let (blocks, rest) = values.as_chunks::<32>();
        assert!(
            rest.is_empty(),
            "{} values are no whole blocks",
            values.len()
        );
        let mut out = Vec::with_capacity(blocks.len() * self.dtype().block_bytes());
        for block in blocks {
            match self {
                Self::Q8_0 => q8_0(block, &mut out),
                Self::Q4_0 => q4_0(block, &mut out),
            }
        }
        out
    }
}

impl FromStr for Quantization {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|q| q.dtype().name().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("{name:?} is not a quantization; there are q8_0 and q4_0"))
    }
}

/// Codes are x / d rounded to the nearest, halves away from zero; d itself is rounded only after.
fn q8_0(block: &[f32; 32], out: &mut Vec<u8>) {
    let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
    let d = most / 127.0;
    let inverse = inverse(d);
    out.extend(f16::from_f32(d).to_le_bytes());
    out.extend(block.map(|x| ((x * inverse).round() as i8).cast_unsigned()));
}

/// The value of the largest magnitude, the first of equals, becomes code 0, which stands for −8 d.
fn q4_0(block: &[f32; 32], out: &mut Vec<u8>) {
    let mut most = 0f32;
    for &x in block {
        if x.abs() > most.abs() {
            most = x;
        }
    }
    let d = most / -8.0;
    let inverse = inverse(d);
    out.extend(f16::from_f32(d).to_le_bytes());
    let codes = block.map(|x| ((x * inverse + 8.5) as i8).cast_unsigned().min(15));
    let (low, high) = codes.split_at(16);
    out.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::block::dequantize;

    #[test]
    fn values_that_are_codes_stay() {
        let mut values = [0f32; 32];
        for (i, value) in values.iter_mut().enumerate() {
            *value = 0.5 * (i as f32 - 8.0).min(7.0);
        }
        for quantization in Quantization::ALL {
            let dtype = quantization.dtype();
            let blocks = quantization.quantize(&values);
            assert_eq!(blocks.len(), dtype.block_bytes());
            let mut back = [1f32; 32];
            dequantize(dtype, &blocks, &mut back);
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 0.02;
            assert!(back.iter().zip(&values).all(close), "{dtype}: {back:?}");
        }
    }

    #[test]
    fn zeros_and_what_is_no_number_harm_nothing() {
        for quantization in Quantization::ALL {
            for value in [0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE] {
                let blocks = quantization.quantize(&[value; 64]);
                assert_eq!(blocks.len(), 2 * quantization.dtype().block_bytes());
            }
        }
    }

    #[test]
    fn names() {
        assert_eq!("q8_0".parse(), Ok(Quantization::Q8_0));
        assert_eq!("Q4_0".parse(), Ok(Quantization::Q4_0));
        assert!("q4_k".parse::<Quantization>().is_err());
    }
}
