//! Which neighbours in a block become one dispatch on processors, in steps of one token: a matrix into the
//! residual stream makes what the norm behind it gives the next matrix, and that does what follows it. The
//! kernels give the bits of the dispatches they stand for, so that decides nothing but speed.
//!
//! Matrices have one format and one window, the widths of the residual stream and of a network are whole groups of
//! 32, and nothing stands between: no norms of heads, none before the residual stream, no experts; pages are not
//! of bytes, and rotary pairs even in number. Before the first layer there is no matrix, behind the last no such
//! norm. Where one of two neighbours cannot, both are as they are without.

use super::TOKENS;
use super::body::Body;
use super::decoder::{DecoderLayer, Projection};
use super::fusion::{activation, heads};
use super::workspace::LayerPages;
use crate::config::ModelConfig;
use twoclock_shaders::kernels::fused_row::{self, RowMatrix, squared_bytes};
use twoclock_shaders::kernels::{fused_row_glu, fused_row_join, fused_row_qkv};
use twoclock_shaders::program::{Command, Slice};

/// What the residual stream comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Nothing: a norm reads it.
    Bare,
    /// The product of the next norm, and its squares, in the matmul input of width hidden.
    Gained,
}

impl Body<'_> {
    /// A matrix of one format and one window behind an input.
    fn row_matrix(&self, projection: &Projection, act: Slice) -> Option<RowMatrix> {
        let constants = self.constants;
        let bound = constants.bytes <= self.caps.max_binding_bytes;
        let [part] = projection.linear.parts[..] else {
            return None;
        };
        let offered = fused_row::offered(self.caps, self.act_format, self.room);
        (bound && offered).then_some(RowMatrix {
            act,
            w: part.w,
            ws: part.ws,
            constants,
            bias: projection.bias,
            act_format: self.act_format,
            format: part.format,
            rows: part.rows,
            groups: projection.linear.groups(),
        })
    }

    /// Inputs of width hidden with their squares.
    fn squared(&self, config: &ModelConfig) -> Option<Slice> {
        let hidden = config.hidden_size as u32;
        let slice = Slice {
            bytes: squared_bytes(self.act_format, hidden / 32),
            ..self.ws.act_hidden
        };
        let whole = hidden.is_multiple_of(32) && slice.bytes <= self.ws.act_hidden.bytes;
        whole.then_some(slice)
    }

    /// From [`Stream::Gained`] to queries, and to keys and values in their pages.
    pub(super) fn row_qkv(
        &self,
        layer: &DecoderLayer,
        kv: &LayerPages,
        block_size: u32,
        config: &ModelConfig,
    ) -> Option<Command> {
        let heads = heads(layer, config, self.constants)?;
        let matrix = self.row_matrix(&layer.qkv, self.squared(config)?)?;
        let buffers = self.pages(kv, block_size);
        let eps = config.rms_norm_eps;
        Some(fused_row_qkv::dispatch(&matrix, &heads, eps, TOKENS, buffers)?.into())
    }

    /// From [`Stream::Gained`] to what the last matrix of a dense network takes.
    pub(super) fn row_glu(&self, gate_up: &Projection, config: &ModelConfig) -> Option<Command> {
        let matrix = self.row_matrix(gate_up, self.squared(config)?)?;
        let (eps, out) = (config.rms_norm_eps, self.ws.act_ffn);
        Some(fused_row_glu::dispatch(activation(config), &matrix, eps, TOKENS, out)?.into())
    }

    /// The residual stream takes `act Wᵀ + bias`, and is normed by these gains.
    pub(super) fn row_join(
        &self,
        projection: &Projection,
        act: Slice,
        gains: Slice,
        config: &ModelConfig,
    ) -> Option<Command> {
        let matrix = self.row_matrix(projection, act)?;
        let buffers = fused_row_join::Buffers {
            x: self.ws.x,
            gains,
            out: self.squared(config)?,
        };
        Some(fused_row_join::dispatch(&matrix, TOKENS, buffers)?.into())
    }
}
