//! Links a body and the modules that fill its slots into one WGSL text.
//!
//! A body is plain WGSL with one comment line `// use: slot, slot`. The linked text is: the
//! `enable` lines the target needs, the key's constants, one module a slot, the body. WGSL allows
//! use before declaration, so order is free; there is no preprocessor and no template.

use crate::caps::Dialect;
use crate::kernel::{Kernel, KernelKey};
use std::fmt::Write as _;
use thiserror::Error;

/// Why a key has no text.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LinkError {
    /// The kernel has no such body.
    #[error("kernel {kernel} has no body {body}")]
    NoBody {
        /// Kernel asked for.
        kernel: String,
        /// Body asked for.
        body: String,
    },
    /// The body names a slot the key does not fill.
    #[error("{key}: slot {slot} is not filled")]
    UnfilledSlot {
        /// The key.
        key: String,
        /// The empty slot.
        slot: String,
    },
    /// The key fills a slot the body does not name.
    #[error("{key}: the body has no slot {slot}")]
    UnknownSlot {
        /// The key.
        key: String,
        /// The slot nobody asked for.
        slot: String,
    },
    /// There is no such module.
    #[error("{key}: there is no module {module}")]
    NoModule {
        /// The key.
        key: String,
        /// The missing module.
        module: String,
    },
}

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Every module, by file name without `.wgsl`.
        pub const MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../wgsl/modules/", $name, ".wgsl")))),*];
    };
}

modules![
    "act_f16",
    "act_f32",
    "act_int8",
    "act_two_f16",
    "act_two_f32",
    "activation_gelu_tanh",
    "activation_silu",
    "attention",
    "attention_part_lane",
    "attention_part_workgroup",
    "chunk_f32",
    "chunk_int8",
    "close_f32",
    "close_int8",
    "close_int8_float",
    "close_int8_halves",
    "close_int8_q2_k",
    "codes_f32",
    "codes_halves",
    "codes_i8",
    "codes_i8_packed",
    "codes_q2_k",
    "codes_q2_k_packed",
    "codes_q2_k_scaled",
    "codes_q3_k",
    "codes_q3_k_packed",
    "codes_q6_k",
    "codes_q6_k_packed",
    "codes_table",
    "codes_table_packed",
    "codes_u4",
    "codes_u4_packed",
    "codes_u5",
    "codes_u5_packed",
    "coop_tiles",
    "cut",
    "cut_walk",
    "epilogue_join",
    "epilogue_store",
    "gemv_norm",
    "halves",
    "heads",
    "input_f16_subgroup",
    "input_f16_uniform",
    "input_f32_subgroup4",
    "input_f32_subgroup8",
    "input_f32_uniform",
    "input_int8_subgroup",
    "input_int8_subgroup8",
    "input_int8_uniform",
    "kv_f16",
    "kv_f32",
    "kv_int8",
    "kv_pair_f16",
    "kv_pair_f32",
    "kv_rows",
    "kv_rows_scaled",
    "kv_store_f16",
    "kv_store_f32",
    "kv_store_int8",
    "norm_f16",
    "norm_f32",
    "norm_slot",
    "order_key",
    "order_span",
    "paging",
    "pairing_halves",
    "pairing_interleaved",
    "partial_packed",
    "partial_packed_halves",
    "partial_singles",
    "pieces_packed",
    "pieces_singles",
    "rng",
    "row_groups",
    "row_products",
    "row_rstd_f32",
    "row_rstd_int8",
    "scale_d",
    "scale_d_super",
    "scale_d_zero",
    "scale_dm",
    "scale_dm_super",
    "scale_halves",
    "scale_halves_apart",
    "scale_none",
    "scale_none_bf16",
    "scale_none_f16",
    "scale_power",
    "scale_q2_k",
    "softcap",
    "span_lane",
    "span_quad",
    "squares",
    "step",
    "store_rows",
    "sums_f32",
    "sums_int8",
    "tile_expert",
    "tile_pair",
    "tile_tokens",
    "two_rows_quad",
    "two_rows_subgroup8",
    "two_rows_uniform",
];

/// Slots a body names in its `// use:` line.
pub fn slots(source: &str) -> impl Iterator<Item = &str> {
    directive(source, "// use:")
}

fn directive<'a>(source: &'a str, prefix: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    source
        .lines()
        .find_map(|line| line.strip_prefix(prefix))
        .unwrap_or("")
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// The WGSL text of one variant for one reader.
///
/// # Errors
/// When the key names a body, module or slot that does not exist, or leaves a slot empty.
pub fn link(kernel: &Kernel, key: &KernelKey, dialect: Dialect) -> Result<String, LinkError> {
    let body = kernel.body(key.body).ok_or_else(|| LinkError::NoBody {
        kernel: key.kernel.into(),
        body: key.body.into(),
    })?;
    let wanted: Vec<&str> = slots(body.source).collect();
    if let Some((slot, _)) = key.modules.iter().find(|(slot, _)| !wanted.contains(slot)) {
        return Err(LinkError::UnknownSlot {
            key: key.to_string(),
            slot: (*slot).into(),
        });
    }
    let mut parts = Vec::with_capacity(wanted.len() + 1);
    for slot in wanted {
        let module = key.slot(slot).ok_or_else(|| LinkError::UnfilledSlot {
            key: key.to_string(),
            slot: slot.into(),
        })?;
        let &(_, text) = MODULES
            .iter()
            .find(|(name, _)| *name == module)
            .ok_or_else(|| LinkError::NoModule {
                key: key.to_string(),
                module: module.into(),
            })?;
        parts.push(text);
    }
    parts.push(body.source);

    let mut text = String::new();
    let mut enables: Vec<&str> = parts
        .iter()
        .flat_map(|part| directive(part, "// enable:"))
        // naga rejects `enable subgroups`, browsers require it.
        .filter(|&name| name != "subgroups" || dialect == Dialect::Browser)
        .collect();
    enables.sort_unstable();
    enables.dedup();
    for name in enables {
        let _ = writeln!(text, "enable {name};");
    }
    for (name, value) in &key.consts {
        let _ = writeln!(text, "const {name}: u32 = {value}u;");
    }
    for part in parts {
        text.push_str(part);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Body;

    const TOY: Kernel = Kernel {
        name: "toy",
        bodies: &[Body {
            name: "toy",
            source: "// use: act\nfn main() {}\n",
        }],
        bindings: &[],
        params: &[],
        variants: Vec::new,
    };

    #[test]
    fn a_slot_must_be_filled_and_wanted() {
        let key = KernelKey::plain("toy", "toy");
        assert!(matches!(
            link(&TOY, &key, Dialect::Native),
            Err(LinkError::UnfilledSlot { .. })
        ));
        let key = key.module("act", "act_f32").constant("TILE", 4);
        let text = link(&TOY, &key, Dialect::Native).expect("links");
        assert!(text.starts_with("const TILE: u32 = 4u;\n"));
        let key = key.module("codes", "act_f32");
        assert!(matches!(
            link(&TOY, &key, Dialect::Native),
            Err(LinkError::UnknownSlot { .. })
        ));
    }
}
