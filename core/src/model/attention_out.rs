//! Where attention leaves its output: as the input of the projection behind it, or, where groups of 32
//! straddle heads, as singles that are rounded afterwards. Knows nothing of attention.

use super::TOKENS;
use super::body::Body;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::quantize::{self, QuantizeParams};
use twoclock_shaders::program::{Command, Slice};

/// What attention's kernels are told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionOut {
    pub(super) format: ActFormat,
    pub(super) act_stride: u32,
    pub(super) out: Slice,
    dim: u32,
}

impl AttentionOut {
    pub(super) fn new(body: &Body<'_>, heads: u32, head_dim: u32) -> Self {
        let dim = heads * head_dim;
        if body.act_format.holds_heads(head_dim) {
            return Self {
                format: body.act_format,
                act_stride: body.act_format.stride(dim),
                out: body.ws.act_heads,
                dim,
            };
        }
        Self {
            format: ActFormat::F32,
            // Rows that only `quantize` reads are not padded.
            act_stride: dim / 4,
            out: body.ws.heads,
            dim,
        }
    }

    /// Rounds what could not be stored so at once.
    pub(super) fn finish(&self, body: &Body<'_>, commands: &mut Vec<Command>) {
        if self.format == body.act_format {
            return;
        }
        let params = QuantizeParams {
            dim4: self.dim / 4,
            act_stride: body.act_format.stride(self.dim),
        };
        let to = body.ws.act_heads;
        commands.push(quantize::dispatch(body.act_format, params, TOKENS, self.out, to).into());
    }
}
