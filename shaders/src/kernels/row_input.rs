//! How inputs reach the lanes of the matmul bodies for processors. Knows no chain.

use super::act::ActFormat;
use super::weight::Arithmetic;

/// How the inputs that all lanes share reach them in [`Regime::Row`](super::matmul::Regime::Row).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowInput {
    /// Each loads all.
    Uniform,
    /// Subgroups of 4: each loads a part and tells the others.
    Subgroup4,
    /// Subgroups of 8 or more.
    Subgroup8,
}

impl RowInput {
    /// Tokens that share a row's loads and unpacking. With broadcasts eight would gain a tenth over
    /// four, with loads four as much over two; either doubles the compile time, to a second.
    pub(super) fn most_tokens(self) -> u32 {
        match self {
            Self::Uniform => 2,
            Self::Subgroup4 | Self::Subgroup8 => 4,
        }
    }

    /// The module that gives a chain its inputs.
    pub(super) fn module(self, format: ActFormat, arithmetic: Arithmetic) -> &'static str {
        match (format, self) {
            (ActFormat::F32, Self::Uniform) => "input_f32_uniform",
            (ActFormat::F32, Self::Subgroup4) => "input_f32_subgroup4",
            (ActFormat::F32, Self::Subgroup8) => "input_f32_subgroup8",
            (ActFormat::F16, Self::Uniform) => "input_f16_uniform",
            (ActFormat::F16, _) => "input_f16_subgroup",
            (ActFormat::Int8, Self::Uniform) => "input_int8_uniform",
            // Words that stay as they are are told one by one.
            (ActFormat::Int8, Self::Subgroup8) if arithmetic == Arithmetic::Packed => {
                "input_int8_subgroup8"
            }
            (ActFormat::Int8, _) => "input_int8_subgroup",
        }
    }
}
