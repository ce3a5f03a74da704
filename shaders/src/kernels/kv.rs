//! The types that pages of keys and values come in: what a page holds, byte for byte, and how a value
//! is rounded into it. Knows no block table and no kernel's grid.
//!
//! A page of one layer's keys, or of its values, is `[kv_head][token][dim]`:
//!
//! - **f32**: as computed.
//! - **f16**: rounded to the nearest, ties to even; what is finite stays so (at most ±65504).
//! - **int8**: signed bytes, and behind them an f16 scale for each [`GROUP`] dims,
//!   `[kv_head][token][group]`; the last group of a head may be shorter. With m the largest |x| of a
//!   group, scale = f16(m · (1/127)), rounded as above, and a code is x · (1/scale), rounded to the
//!   nearest, ties to even, within ±127. A scale that rounds to zero makes the group zero; a group
//!   with a number that is not finite has a scale that is none.
//!
//! A cached vector is what attention calls *codes* times a *scale* a group: f32 and f16 values are
//! codes of scale 1. Each group is rounded by itself, so what is cached of a token depends on nothing
//! but the token's own key and value.
//!
//! Rounding the cache group by group: Sheng et al. 2023 (arXiv:2303.06865).

use crate::kernel::KernelKey;

/// Dims that share a scale.
pub const GROUP: u32 = 32;

/// Largest code.
pub const MAX_CODE: f32 = 127.0;

/// Type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Bytes with a half-precision scale for each 32 dims.
    Int8,
}

impl KvDtype {
    /// All of them, widest first.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Int8];

    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Int8 => "int8",
        }
    }

    /// Bytes of one token's keys, or values, of one head of `head_dim` dims (a multiple of 4).
    pub const fn row_bytes(self, head_dim: u32) -> u32 {
        match self {
            Self::F32 => 4 * head_dim,
            Self::F16 => 2 * head_dim,
            Self::Int8 => head_dim + 2 * head_dim.div_ceil(GROUP),
        }
    }

    /// Bytes of a page of `block_size` tokens (a multiple of 16): a multiple of 16.
    pub const fn page_bytes(self, kv_heads: u32, head_dim: u32, block_size: u32) -> u64 {
        self.row_bytes(head_dim) as u64 * kv_heads as u64 * block_size as u64
    }

    /// Vectors of four dims that an invocation of [`rope_kv`](super::rope_kv) stores.
    pub(crate) const fn store4(self) -> u32 {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Int8 => GROUP / 4,
        }
    }

    /// Fills the slots of a kernel that reads pages.
    pub(crate) fn reads(self, key: KernelKey) -> KernelKey {
        self.rows(key).module("kv", self.modules().0)
    }

    /// Fills the slots of the kernel that writes them.
    pub(crate) fn writes(self, key: KernelKey) -> KernelKey {
        self.rows(key).module("kv", self.modules().1)
    }

    fn rows(self, key: KernelKey) -> KernelKey {
        let rows = match self {
            Self::F32 | Self::F16 => "kv_rows",
            Self::Int8 => "kv_rows_scaled",
        };
        key.module("rows", rows)
    }

    /// Those that read and write.
    const fn modules(self) -> (&'static str, &'static str) {
        match self {
            Self::F32 => ("kv_f32", "kv_store_f32"),
            Self::F16 => ("kv_f16", "kv_store_f16"),
            Self::Int8 => ("kv_int8", "kv_store_int8"),
        }
    }

    /// The module that writes two neighbouring dimensions, where no scale binds them to others.
    pub(crate) const fn pair_module(self) -> Option<&'static str> {
        match self {
            Self::F32 => Some("kv_pair_f32"),
            Self::F16 => Some("kv_pair_f16"),
            Self::Int8 => None,
        }
    }

    /// The type that a variant with such a module writes.
    pub(crate) fn of_pairs(key: &KernelKey) -> Self {
        match key.slot("kv") == Self::F16.pair_module() {
            true => Self::F16,
            false => Self::F32,
        }
    }

    /// The type a variant reads or writes.
    ///
    /// # Panics
    /// When the key is of a kernel that does neither.
    pub(crate) fn of(key: &KernelKey) -> Self {
        let module = key.slot("kv");
        Self::ALL
            .into_iter()
            .find(|dtype| {
                let (read, write) = dtype.modules();
                module == Some(read) || module == Some(write)
            })
            .unwrap_or_else(|| panic!("{key} has no type of keys and values"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of 32 dims: 34 where halves take 64.
    #[test]
    fn int8_holds_so_many_times_the_tokens_of_f16() {
        for (head_dim, least) in [
            (64, 1.88),
            (128, 1.88),
            (256, 1.88),
            (96, 1.88),
            (32, 1.88),
            (80, 1.86),
            (72, 1.84),
            (40, 1.81),
            (20, 1.81),
            (16, 1.77),
        ] {
            let page = |dtype: KvDtype| dtype.page_bytes(3, head_dim, 16);
            let [f32, f16, int8] = KvDtype::ALL.map(page);
            assert_eq!(f32, 2 * f16);
            assert!(int8.is_multiple_of(16));
            let ratio = f16 as f64 / int8 as f64;
            assert!(
                (least..least + 0.01).contains(&ratio),
                "{head_dim}: {ratio}"
            );
        }
    }
}
