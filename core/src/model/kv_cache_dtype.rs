//! Which type of cached keys and values is asked for, and what that comes to. Knows no layout.

use super::NumericsClass;
use std::str::FromStr;
use twoclock_shaders::kernels::kv::KvDtype;

/// Type of cached keys and values, as asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCacheDtype {
    /// What suits the numerics class: f32 for the exact one, else f16.
    #[default]
    Auto,
    /// This one.
    Of(KvDtype),
}

impl KvCacheDtype {
    /// The type it comes to.
    pub fn resolve(self, numerics: NumericsClass) -> KvDtype {
        match self {
            Self::Auto => match numerics {
                NumericsClass::F32 => KvDtype::F32,
                NumericsClass::F16 | NumericsClass::Int8 | NumericsClass::Coop => KvDtype::F16,
            },
            Self::Of(dtype) => dtype,
        }
    }
}

impl FromStr for KvCacheDtype {
    type Err = String;

    /// `auto`, or a type's name.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        KvDtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .map(Self::Of)
            .ok_or_else(|| {
                format!("{text:?} is no type of keys and values: give auto, f16, f32 or int8")
            })
    }
}
