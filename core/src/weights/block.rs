//! What the bytes of a stored block mean: codes and scales by groups of 32, and the values they
//! stand for, exactly as ggml decodes them. Knows no file and no device.
//!
//! Formats: ggml's `ggml-quants.c` and `ggml-common.h`; MXFP4: OCP Microscaling Formats v1.0.

use super::DType;
use half::{bf16, f16};

/// Elements of a group: what one set of codes covers.
pub(super) const GROUP: usize = 32;

/// Values of the 4-bit indices of `IQ4_NL` and `IQ4_XS`.
const IQ4: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Twice the values of E2M1 floats.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The f16 at byte `at` of a block, as bits.
pub(super) fn half_bits(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_bits(half_bits(block, at)).to_f32()
}

/// Codes of group `group` of a quantized block, without their offset.
pub(super) fn group_codes(dtype: DType, block: &[u8], group: usize) -> [u8; GROUP] {
    let mut codes = [0; GROUP];
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => {}
        DType::Q8_0 => codes.copy_from_slice(&block[2..34]),
        DType::Q4_0 | DType::Iq4Nl => halves(&mut codes, &block[2..18]),
        DType::Q4_1 => halves(&mut codes, &block[4..20]),
        DType::Mxfp4 => halves(&mut codes, &block[1..17]),
        DType::Iq4Xs => halves(&mut codes, &block[8 + 16 * group..][..16]),
        DType::Q5_0 | DType::Q5_1 => {
            let at = if dtype == DType::Q5_0 { 2 } else { 4 };
            halves(&mut codes, &block[at + 4..][..16]);
            let high = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
            for (i, code) in codes.iter_mut().enumerate() {
                *code |= ((high >> i & 1) as u8) << 4;
            }
        }
        DType::Q2K => pairs(&mut codes, &block[16..80], group),
        DType::Q3K => {
            pairs(&mut codes, &block[32..96], group);
            bits(&mut codes, &block[..32], group, 2);
        }
        DType::Q4K => nibbles(&mut codes, &block[16..144], group),
        DType::Q5K => {
            nibbles(&mut codes, &block[48..176], group);
            bits(&mut codes, &block[16..48], group, 4);
        }
        DType::Q6K => {
            // Halves of 128 elements: four groups share 64 bytes of nibbles and 32 of pairs.
            let (half, quarter) = (group / 4, group % 4);
            let low = &block[64 * half + 32 * (quarter % 2)..][..32];
            let high = &block[128 + 32 * half..][..32];
            for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
                *code = (low >> (4 * (quarter / 2)) & 15) | (high >> (2 * quarter) & 3) << 4;
            }
        }
    }
    codes
}

/// 16 bytes: low nibbles, then high nibbles.
fn halves(codes: &mut [u8; GROUP], bytes: &[u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// 32 bytes for two groups, a nibble each.
fn nibbles(codes: &mut [u8; GROUP], bytes: &[u8], group: usize) {
    for (code, byte) in codes.iter_mut().zip(&bytes[GROUP * (group / 2)..]) {
        *code = byte >> (4 * (group % 2)) & 15;
    }
}

/// 32 bytes for four groups, two bits each.
fn pairs(codes: &mut [u8; GROUP], bytes: &[u8], group: usize) {
    for (code, byte) in codes.iter_mut().zip(&bytes[GROUP * (group / 4)..]) {
        *code = byte >> (2 * (group % 4)) & 3;
    }
}

/// 32 bytes for eight groups, a bit each, which comes to stand at `place`.
fn bits(codes: &mut [u8; GROUP], bytes: &[u8], group: usize, place: u32) {
    for (code, byte) in codes.iter_mut().zip(bytes) {
        *code |= (byte >> group & 1) << place;
    }
}

/// Scale and minimum of group `group` of `Q4_K` and `Q5_K`, six bits each.
pub(super) fn k_scale(block: &[u8], group: usize) -> (u8, u8) {
    let s = &block[4..16];
    if group < 4 {
        (s[group] & 63, s[group + 4] & 63)
    } else {
        (
            s[group + 4] & 15 | s[group - 4] >> 6 << 4,
            s[group + 4] >> 4 | s[group] >> 6 << 4,
        )
    }
}

/// Signed scales of the halves of group `group` of `Q3_K` and `Q6_K`.
pub(super) fn half_scales(dtype: DType, block: &[u8], group: usize) -> [i8; 2] {
    [2 * group, 2 * group + 1].map(|i| {
        if dtype == DType::Q6K {
            return block[192 + i].cast_signed();
        }
        let s = &block[96..108];
        let low = s[i % 8] >> (4 * (i / 8)) & 15;
        let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
        (low | high << 4).cast_signed() - 32
    })
}

/// Signed scale of group `group` of `IQ4_XS`.
pub(super) fn iq4_xs_scale(block: &[u8], group: usize) -> i8 {
    let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
    let high = half_bits(block, 2) >> (2 * group) & 3;
    (low | (high as u8) << 4).cast_signed() - 32
}

/// Half of a power of two with the biased exponent `e`.
fn half_power(e: u8) -> f32 {
    f32::from_bits(match e {
        0 | 1 => 0x0020_0000 << e,
        _ => u32::from(e - 1) << 23,
    })
}

/// Values of whole blocks (or elements, where there are no blocks), bit for bit as ggml decodes
/// them.
///
/// # Panics
/// When `bytes` and `out` are not the same number of whole blocks; a reader of a file checked it.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let (elements, size) = (dtype.block_elements(), dtype.block_bytes());
    assert!(
        bytes.len().is_multiple_of(size) && bytes.len() / size * elements == out.len(),
        "{} bytes of {dtype} are not {} elements",
        bytes.len(),
        out.len()
    );
    match dtype {
        DType::F32 => {
            for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = f32::from_le_bytes(bytes);
            }
        }
        DType::F16 => {
            for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = f16::from_le_bytes(bytes).to_f32();
            }
        }
        DType::BF16 => {
            for (out, &bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = bf16::from_le_bytes(bytes).to_f32();
            }
        }
        _ => {
            for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(elements)) {
                for (group, out) in out.chunks_exact_mut(GROUP).enumerate() {
                    let codes = group_codes(dtype, block, group);
                    for (half, (out, codes)) in out.chunks_mut(16).zip(codes.chunks(16)).enumerate()
                    {
                        decode_half(dtype, block, group, half, codes, out);
                    }
                }
            }
        }
    }
}

/// Values of 16 elements, which share every scale.
fn decode_half(
    dtype: DType,
    block: &[u8],
    group: usize,
    half_group: usize,
    codes: &[u8],
    out: &mut [f32],
) {
    let mut each = |value: &dyn Fn(u8) -> f32| {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = value(code);
        }
    };
    let signed = |code: u8, zero: i8| f32::from(code.cast_signed() - zero);
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => {}
        DType::Q8_0 => {
            let d = half(block, 0);
            each(&|q| d * signed(q, 0));
        }
        DType::Q4_0 | DType::Q5_0 => {
            let (d, zero) = (half(block, 0), if dtype == DType::Q4_0 { 8 } else { 16 });
            each(&|q| d * signed(q, zero));
        }
        DType::Q4_1 | DType::Q5_1 => {
            let (d, m) = (half(block, 0), half(block, 2));
            each(&|q| d * f32::from(q) + m);
        }
        DType::Q2K => {
            let scale = block[2 * group + half_group];
            let d = half(block, 80) * f32::from(scale & 15);
            let m = half(block, 82) * f32::from(scale >> 4);
            each(&|q| d * f32::from(q) - m);
        }
        DType::Q4K | DType::Q5K => {
            let (scale, min) = k_scale(block, group);
            let d = half(block, 0) * f32::from(scale);
            let m = half(block, 2) * f32::from(min);
            each(&|q| d * f32::from(q) - m);
        }
        DType::Q3K | DType::Q6K => {
            let (at, zero) = if dtype == DType::Q3K {
                (108, 4)
            } else {
                (208, 32)
            };
            let d = half(block, at) * f32::from(half_scales(dtype, block, group)[half_group]);
            each(&|q| d * signed(q, zero));
        }
        DType::Iq4Nl => {
            let d = half(block, 0);
            each(&|q| d * f32::from(IQ4[usize::from(q)]));
        }
        DType::Iq4Xs => {
            let d = half(block, 0) * f32::from(iq4_xs_scale(block, group));
            each(&|q| d * f32::from(IQ4[usize::from(q)]));
        }
        DType::Mxfp4 => {
            let d = half_power(block[0]);
            each(&|q| d * f32::from(E2M1[usize::from(q)]));
        }
    }
}
