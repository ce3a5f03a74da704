//! Which numerics class is asked for, and what that comes to on a device. Knows no kernel's variants.

use std::str::FromStr;
use thiserror::Error;
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
    /// Halves, multiplied by cooperative matrices, weights as halves too; experts as in
    /// [`F16`](Self::F16).
    Coop,
}

impl NumericsClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Int8, Self::Coop];

    /// Name, as `--compute-dtype` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Coop => "coop",
        }
    }

    /// What programs of this class use of a device: its cooperative matrices are a class of their own.
    pub fn caps(self, caps: &Caps) -> Caps {
        Caps {
            coop: caps.coop.filter(|_| self == Self::Coop),
            ..caps.clone()
        }
    }

    /// How the inputs of its matmuls are stored.
    pub fn act_format(self) -> ActFormat {
        match self {
            Self::F32 => ActFormat::F32,
            Self::F16 | Self::Coop => ActFormat::F16,
            Self::Int8 => ActFormat::Int8,
        }
    }
}

/// A class that a device cannot compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the device has no cooperative matrices of 16 × 16 × 16 halves in subgroups of one size, which \
     --compute-dtype coop is for; choose auto, f32, f16 or int8"
)]
pub struct NoCoop;

/// Numerics class, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeDtype {
    /// What suits the device: int8 on processors, f16 on GPUs. Cooperative matrices must be asked for.
    #[default]
    Auto,
    /// This one.
    Of(NumericsClass),
}

impl ComputeDtype {
    /// What [`from_str`](Self::from_str) takes.
    pub const NAMES: &str = "auto|f32|f16|int8|coop";

    /// A GPU that offers no more than every one does, or than every one with cooperative matrices where the
    /// class is theirs.
    pub fn portable_gpu(self) -> Caps {
        match self {
            Self::Of(NumericsClass::Coop) => Caps::portable_coop(),
            _ => Caps::portable_gpu(),
        }
    }

    /// The class it comes to on a device.
    ///
    /// # Errors
    /// A class that the device cannot compute.
    pub fn resolve(self, caps: &Caps) -> Result<NumericsClass, NoCoop> {
        match self {
            Self::Auto => Ok(match caps.kind {
                DeviceKind::Cpu => NumericsClass::Int8,
                DeviceKind::Gpu => NumericsClass::F16,
            }),
            Self::Of(NumericsClass::Coop) if caps.coop.is_none() => Err(NoCoop),
            Self::Of(class) => Ok(class),
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
                let names = Self::NAMES;
                format!("{text:?} is no precision of arithmetic: give one of {names}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_that_is_taken_and_a_device_that_has_it() {
        let classes = NumericsClass::ALL.map(NumericsClass::name).join("|");
        assert_eq!(ComputeDtype::NAMES, format!("auto|{classes}"));
        for name in ComputeDtype::NAMES.split('|') {
            let class: ComputeDtype = name.parse().expect("a name");
            let resolved = class.resolve(&class.portable_gpu());
            assert_eq!(
                resolved.map(NumericsClass::name).ok(),
                Some(match name {
                    "auto" => "f16",
                    name => name,
                })
            );
        }
        let other: Result<ComputeDtype, _> = "f64".parse();
        assert!(other.is_err_and(|said| said.contains(ComputeDtype::NAMES)));
    }
}
