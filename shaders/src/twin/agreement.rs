//! How far what a device wrote of a window is from what the reference did, as a share of what is allowed:
//! said by what a variant's outputs hold. Knows no executor.

use crate::kernel::KernelKey;
use crate::kernels::sample_scan;

/// How a variant compared, over all that was launched of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Times it was launched.
    pub launches: u64,
    /// Words that the device or the reference wrote.
    pub words: u64,
    /// Of them, those that differ in a bit.
    pub unequal: u64,
    /// Largest difference, as a share of what the tolerance allows: more than 1 is a fault.
    pub largest: f32,
    /// The first difference beyond the tolerance.
    pub fault: Option<String>,
}

impl Agreement {
    /// Adds what was found of other launches, or of another window.
    pub fn add(&mut self, other: Self) {
        self.launches += other.launches;
        self.words += other.words;
        self.unequal += other.unequal;
        self.largest = self.largest.max(other.largest);
        self.fault = self.fault.take().or(other.fault);
    }
}

/// Largest difference of an element, relative to it or to what its window spreads by. WGSL lets a division, a square root
/// and the functions made of them be off by a few units in the last place, and `fma` be rounded twice
/// (WGSL §15.7.4).
pub const TOLERANCE: f32 = 2e-5;

/// As [`TOLERANCE`], of `sample`: its noise is a logarithm of a logarithm near 1, and those have an
/// absolute error there (2⁻²¹, WGSL §15.7.4).
const NOISE_TOLERANCE: f32 = 1e-3;

/// As [`TOLERANCE`], of a matrix that rounds its inputs to halves itself: where they differ in their last
/// bits, one of them may fall to the other side.
const ROUNDED_TOLERANCE: f32 = 1e-3;

/// What a word of an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    /// A number that decides what is read and written: equal, or wrong.
    Integer,
    /// A single or such a number, by place: no number is so large that it is read as one.
    Mixed,
    /// Two words a sum of masses in fixed point, low first: those of `exp`.
    Mass,
    /// A single.
    F32,
    /// Two scales in halves, or four codes, by place.
    Packed,
    /// Two halves.
    Halves,
    /// Groups of 12 words: codes, then scale and sums.
    Int8,
}

/// What a variant's outputs hold.
fn element(key: &KernelKey, binding: &str) -> Element {
    match key.kernel {
        "sample_scan" if sample_scan::Stage::of(key) == sample_scan::Stage::Mass => Element::Mass,
        "prepare" | "sample_state" | "sample_pick" | "sample_cut" | "sample_scan" | "kv_copy"
        | "moe_group" => Element::Integer,
        "sample" | "moe_route" => Element::Mixed,
        "fused_glu" if key.slot("act_two") == Some("act_two_f16") => Element::Halves,
        "fused_qkv" | "fused_row_qkv"
            if binding != "qkv" && key.slot("kv") == Some("kv_pair_f16") =>
        {
            Element::Halves
        }
        "rope_kv" if binding != "qkv" => match key.slot("kv") {
            Some("kv_store_f16") => Element::Halves,
            Some("kv_store_int8") => Element::Packed,
            _ => Element::F32,
        },
        _ => match key.slot("act").filter(|_| binding == "act_out") {
            Some("act_f16") => Element::Halves,
            Some("act_int8") => Element::Int8,
            _ => Element::F32,
        },
    }
}

fn tolerance(key: &KernelKey) -> f32 {
    match key.kernel {
        "sample" => NOISE_TOLERANCE,
        _ if key.slot("norm") == Some("norm_f16") => ROUNDED_TOLERANCE,
        _ => TOLERANCE,
    }
}

/// The halves of a word.
fn halves(word: u32) -> [f32; 2] {
    [word, word >> 16].map(|bits| half::f16::from_bits(bits as u16).to_f32())
}

/// How far two numbers are apart, as a share of what the tolerance allows; infinite where one alone is
/// no number.
fn apart(got: f32, expected: f32, spread: f32, tolerance: f32) -> f32 {
    if got.to_bits() == expected.to_bits() || got == expected || (got.is_nan() && expected.is_nan())
    {
        return 0.0;
    }
    let apart = (got - expected).abs() / (tolerance * expected.abs().max(spread));
    if apart.is_nan() { f32::INFINITY } else { apart }
}

/// Compares a written window, of which words that both left as they were say nothing.
pub(super) fn of_window(
    key: &KernelKey,
    binding: &str,
    before: &[u32],
    got: &[u32],
    expected: &[u32],
) -> Agreement {
    let element = element(key, binding);
    if key.kernel != "fused_row_join" || binding != "act_out" {
        return of_words(key, binding, element, [before, got, expected]);
    }
    // Behind the groups of an input, which is all that the window holds, lie four words for each: its squares.
    let group = match element {
        Element::Int8 => 12,
        _ => 32,
    };
    let at = got.len() / (group + 4) * group;
    let windows = [before, got, expected];
    let mut found = of_words(key, binding, element, windows.map(|words| &words[..at]));
    let squares = windows.map(|words| &words[at..]);
    found.add(of_words(key, "squares", Element::F32, squares));
    found
}

/// The same of words that are alike.
fn of_words(
    key: &KernelKey,
    binding: &str,
    element: Element,
    [before, got, expected]: [&[u32]; 3],
) -> Agreement {
    let mut found = Agreement::default();
    let all = || before.iter().zip(got).zip(expected).enumerate();
    let written = || all().filter(|(_, ((b, g), e))| b != g || b != e);
    let numbers = written().flat_map(|(_, (_, &e))| match element {
        Element::Halves => halves(e),
        _ => [f32::from_bits(e), f32::INFINITY],
    });
    let squares = numbers
        .map(f64::from)
        .filter(|v| v.is_finite())
        .map(|v| v * v);
    let (sum, n) = squares.fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
    let spread = (sum / f64::max(n, 1.0)).sqrt() as f32;
    let tolerance = tolerance(key);
    for (i, ((_, &g), &e)) in written() {
        found.words += 1;
        if g == e {
            continue;
        }
        found.unequal += 1;
        let apart = match element {
            Element::Integer => f32::INFINITY,
            // Small whole numbers are those singles that are not normal.
            Element::Mixed if !(f32::from_bits(g).is_normal() && f32::from_bits(e).is_normal()) => {
                f32::INFINITY
            }
            Element::F32 | Element::Mixed => {
                apart(f32::from_bits(g), f32::from_bits(e), spread, tolerance)
            }
            Element::Halves => {
                let both = halves(g).into_iter().zip(halves(e));
                both.map(|(g, e)| (g - e).abs() / (tolerance * spread).max(half_step(e)))
                    .fold(0.0, worst)
            }
            Element::Mass => {
                let sum = |words: &[u32]| {
                    let [low, high] = [i & !1, i | 1].map(|i| words.get(i).copied().unwrap_or(0));
                    u64::from(high) << 32 | u64::from(low)
                };
                let (got, expected) = (sum(got), sum(expected));
                let allowed = (f64::from(TOLERANCE) * expected as f64).max(f64::from(1 << 20));
                (got.abs_diff(expected) as f64 / allowed) as f32
            }
            Element::Packed => packed(g, e),
            Element::Int8 => int8(i % 12, &got[i - i % 12..], &expected[i - i % 12..]),
        };
        found.largest = found.largest.max(apart);
        if apart > 1.0 && found.fault.is_none() {
            found.fault = Some(match element {
                Element::F32 => format!(
                    "{binding}[{i}] is {:e}, expected {:e}",
                    f32::from_bits(g),
                    f32::from_bits(e)
                ),
                _ => format!("{binding}[{i}] is {g:#010x}, expected {e:#010x}"),
            });
        }
    }
    found
}

/// What two neighbouring halves are apart at the most: 2⁻¹⁰ of them, and 2⁻²⁴ at least.
fn half_step(v: f32) -> f32 {
    1.01 * v.abs().max(6.2e-5) * 9.8e-4
}

fn worst(a: f32, b: f32) -> f32 {
    if b.is_nan() { f32::INFINITY } else { a.max(b) }
}

/// Two words of a page of bytes: two scales or four codes, whichever is nearest. Rounding may fall to the
/// other side where what is rounded differs in its last bit.
fn packed(g: u32, e: u32) -> f32 {
    let halves = halves(g).into_iter().zip(halves(e));
    let halves = halves.map(|(g, e)| (g - e).abs() / half_step(e));
    let codes = (0..4).map(|i| {
        let code = |w: u32| f32::from((w >> (8 * i)) as u8 as i8);
        (code(g) - code(e)).abs()
    });
    halves.fold(0.0, worst).min(codes.fold(0.0, worst))
}

/// A word of a group of 8-bit codes: those may fall to the other side, and the sums with them.
fn int8(word: usize, got: &[u32], expected: &[u32]) -> f32 {
    let code = |w: u32, i: u32| i32::from((w >> (8 * i)) as u8 as i8);
    let apart = |w: usize| (0..4).map(move |i| code(got[w], i).abs_diff(code(expected[w], i)));
    if word < 8 {
        return apart(word).max().unwrap_or(0) as f32;
    }
    let moved: u32 = (0..8).flat_map(apart).sum();
    let single = |of: &[u32]| f32::from_bits(of[word]);
    let scale = f32::from_bits(expected[8]).abs();
    match word {
        8 => (single(got) - single(expected)).abs() / (TOLERANCE * scale),
        9 => {
            let allowed = TOLERANCE * single(expected).abs() + moved as f32 * 1.01 * scale;
            (single(got) - single(expected)).abs() / allowed
        }
        _ => {
            let half = |w: u32, i: u32| i32::from((w >> (16 * i)) as u16 as i16);
            let halves = (0..2).map(|i| half(got[word], i).abs_diff(half(expected[word], i)));
            halves.max().unwrap_or(0) as f32 / moved.max(1) as f32
        }
    }
}
