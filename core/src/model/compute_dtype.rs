//! Which numerics class is asked for, and what that comes to on a device. Knows no kernel's variants.

use std::str::FromStr;
use twoclock_shaders::caps::{Caps, DeviceKind};
use twoclock_shaders::kernels::act::ActFormat;

/// What matmuls see of activations. Inside a class every element is one written-down chain of
/// operations, however a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumericsClass {
    /// Singles: exact, the oracle.
    F32,
    /// Halves, multiplied and summed as singles.
    F16,
    /// Signed bytes with a scale a group of 32, multiplied as whole numbers, groups summed as singles.
    Int8,
}

impl NumericsClass {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    /// Name, as `--compute-dtype` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }

    /// How the inputs of its matmuls are stored.
    pub fn act_format(self) -> ActFormat {
        match self {
            Self::F32 => ActFormat::F32,
            Self::F16 => ActFormat::F16,
            Self::Int8 => ActFormat::Int8,
        }
    }
}

/// Numerics class, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeDtype {
    /// What suits the device: int8 on processors, f16 on GPUs.
    #[default]
    Auto,
    /// This one.
    Of(NumericsClass),
}

impl ComputeDtype {
    /// The class it comes to on a device.
    pub fn resolve(self, caps: &Caps) -> NumericsClass {
        match self {
            Self::Auto => match caps.kind {
                DeviceKind::Cpu => NumericsClass::Int8,
                DeviceKind::Gpu => NumericsClass::F16,
            },
            Self::Of(class) => class,
        }
    }
}

impl FromStr for ComputeDtype {
    type Err = String;

    /// `auto`, or a class's name.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        NumericsClass::ALL
            .into_iter()
            .find(|class| class.name() == text)
            .map(Self::Of)
            .ok_or_else(|| {
                format!("{text:?} is no precision of arithmetic: give auto, f32, f16 or int8")
            })
    }
}
