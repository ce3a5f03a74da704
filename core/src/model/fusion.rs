//! From the residual stream to queries and pages, and which neighbours in a block become one dispatch: on
//! GPUs, for steps of few tokens, a norm joins the matrix behind it, and what follows that joins too. The
//! kernels give the bits of the dispatches they stand for, so that decides nothing but speed.

use super::TOKENS;
use super::body::Body;
use super::decoder::{DecoderLayer, Projection};
use super::row_fusion::Stream;
use super::workspace::LayerPages;
use crate::config::{Activation, ModelConfig, RopePairing};
use twoclock_shaders::kernels::fused::{NormedMatrix, lane_packs, offered};
use twoclock_shaders::kernels::{fused_glu, fused_qkv, glu, head_norm, rope_kv};
use twoclock_shaders::program::{Command, Slice};

/// How a configuration's rotary pairs lie, as kernels take it.
pub(super) fn pairing(config: &ModelConfig) -> rope_kv::Pairing {
    match config.rope_pairing {
        RopePairing::Halves => rope_kv::Pairing::Halves,
        RopePairing::Interleaved => rope_kv::Pairing::Interleaved,
    }
}

/// What gates, as kernels take it.
pub(super) fn activation(config: &ModelConfig) -> glu::Activation {
    match config.hidden_act {
        Activation::Silu => glu::Activation::Silu,
        Activation::GeluTanh => glu::Activation::GeluTanh,
    }
}

/// How the heads of a block lie and turn, where nothing stands between their matrix and their turning, and the
/// table is among the constants.
pub(super) fn heads(
    layer: &DecoderLayer,
    config: &ModelConfig,
    constants: Slice,
) -> Option<fused_qkv::Heads> {
    let table = layer.rope_table;
    let apart = table.is_some_and(|table| table.buffer != constants.buffer);
    if layer.qk_norm.is_some() || apart {
        return None;
    }
    Some(fused_qkv::Heads {
        heads: config.num_attention_heads as u32,
        kv_heads: config.num_key_value_heads as u32,
        head_dim: config.head_dim as u32,
        pairs: table.map_or(0, |_| config.rotary_dim as u32 / 2),
        pairing: pairing(config),
        table,
    })
}

impl Body<'_> {
    /// Where queries, keys and values of a block go.
    pub(super) fn pages(&self, kv: &LayerPages, block_size: u32) -> fused_qkv::Buffers {
        fused_qkv::Buffers {
            step: self.ws.step,
            qkv: self.ws.qkv,
            kcache: kv.keys,
            vcache: kv.values,
            dtype: kv.dtype,
            block_size,
            group: kv.group as u32,
        }
    }

    /// A norm and the matrix behind it as one, where the device and the step are such, and the matrix has
    /// one format and one window.
    fn normed(
        &self,
        gains: Slice,
        projection: &Projection,
        config: &ModelConfig,
    ) -> Option<NormedMatrix> {
        let hidden = config.hidden_size as u32;
        let constants = self.constants;
        let bound = constants.bytes <= self.caps.max_binding_bytes;
        let [part] = projection.linear.parts[..] else {
            return None;
        };
        (bound && offered(self.caps, self.act_format, self.room, hidden)).then_some(NormedMatrix {
            x: self.ws.x,
            w: part.w,
            ws: part.ws,
            constants,
            gains,
            bias: projection.bias,
            act_format: self.act_format,
            format: part.format,
            groups: projection.linear.groups(),
            tokens: self.room,
            lane_packs: lane_packs(part.rows, projection.linear.groups()),
            eps: config.rms_norm_eps,
        })
    }

    /// From the residual stream to queries, and to keys and values in their pages.
    pub(super) fn queries_and_pages(
        &self,
        layer: &DecoderLayer,
        kv: &LayerPages,
        block_size: u32,
        config: &ModelConfig,
        stream: Stream,
        commands: &mut Vec<Command>,
    ) {
        if stream == Stream::Gained {
            let fused = self.row_qkv(layer, kv, block_size, config);
            commands.extend([
                fused.expect("offered before the stream was gained"),
                Command::Cut,
            ]);
            return;
        }
        if let Some(fused) = self.fused_qkv(layer, kv, block_size, config) {
            commands.extend(fused);
            return;
        }
        let (caps, ws) = (self.caps, self.ws);
        let head_dim = config.head_dim as u32;
        let heads = config.num_attention_heads as u32;
        let kv_heads = config.num_key_value_heads as u32;
        let stride = (heads + 2 * kv_heads) * head_dim;
        self.norm(layer.input_norm, config, commands);
        self.project(&layer.qkv, ws.act_hidden, true, ws.qkv, commands);
        if let Some(gains) = layer.qk_norm {
            let params = head_norm::HeadNormParams {
                heads,
                kv_heads,
                head_dim4: head_dim / 4,
                stride4: stride / 4,
                eps: config.rms_norm_eps,
            };
            commands.push(head_norm::dispatch(caps, params, TOKENS, gains, ws.qkv).into());
        }
        let pairing = pairing(config);
        let turn = rope_kv::RopeKvParams {
            heads,
            kv_heads,
            pairs: layer.rope_table.map_or(0, |_| config.rotary_dim as u32 / 2),
            stride4: stride / 4,
            block_size,
            group: kv.group as u32,
        };
        let turn_buffers = rope_kv::Buffers {
            table: layer.rope_table,
            step: ws.step,
            qkv: ws.qkv,
            kcache: kv.keys,
            vcache: kv.values,
            dtype: kv.dtype,
        };
        commands.push(rope_kv::dispatch(pairing, head_dim, turn, TOKENS, turn_buffers).into());
    }

    /// That in one dispatch.
    fn fused_qkv(
        &self,
        layer: &DecoderLayer,
        kv: &LayerPages,
        block_size: u32,
        config: &ModelConfig,
    ) -> Option<[Command; 2]> {
        let heads = heads(layer, config, self.constants)?;
        let matrix = self.normed(layer.input_norm, &layer.qkv, config)?;
        let buffers = self.pages(kv, block_size);
        let dispatch = fused_qkv::dispatch(&matrix, &heads, TOKENS, buffers)?;
        Some([dispatch.into(), Command::Cut])
    }

    /// From the residual stream to what the last matrix of a dense network takes, in one dispatch.
    pub(super) fn fused_glu(
        &self,
        gains: Slice,
        gate_up: &Projection,
        config: &ModelConfig,
    ) -> Option<[Command; 2]> {
        let matrix = self.normed(gains, gate_up, config)?;
        let rows = config.intermediate_size as u32;
        let out = self.ws.act_ffn;
        let dispatch = fused_glu::dispatch(activation(config), &matrix, rows, TOKENS, out);
        Some([dispatch.into(), Command::Cut])
    }
}
