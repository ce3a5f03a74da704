//! Gemma 3 270M from its real file on the device under test, held against llama.cpp's float32 run of
//! the same weights: windows, two rotary bases, norms around everything, and a table of 262144 rows
//! that takes more than one binding.
//!
//! The model's path comes from `TWOCLOCK_GEMMA3`; `tests/run.sh` fetches it and sets that.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use twoclock_core::weights::Checkpoint;
use twoclock_tests::{Reference, Share, gpu, model_of_variable};

/// llama.cpp takes GELU from a table of halves, even where all else is float32: with such a GELU this
/// engine's own log-probabilities move by up to 0.007 in these prompts, where two devices differ by
/// 0.00002. The longest prompt differs by 0.03 at most.
const TOLERANCE: f64 = 0.04;

fn checkpoint() -> Checkpoint {
    model_of_variable("TWOCLOCK_GEMMA3", "twoclock pull gemma3-270m")
}

/// A part of the reference, to be quick.
#[test]
fn agrees_with_the_float32_reference() {
    let share = Share {
        prompts: 3,
        tokens: 8,
        text: 96,
    };
    let reference = Reference::read("gemma3.json");
    reference.assert_agrees(&mut *gpu(), &checkpoint(), share, TOLERANCE);
}

#[test]
#[ignore = "takes minutes on a processor"]
fn agrees_with_the_whole_float32_reference() {
    let reference = Reference::read("gemma3.json");
    reference.assert_agrees(&mut *gpu(), &checkpoint(), Share::ALL, TOLERANCE);
}
