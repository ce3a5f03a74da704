//! What a step's program is built for, and the commands that every block has: norms, projections, joins with
//! the residual stream. Knows no block but how one projects.

use super::decoder::Projection;
use super::linear::LinearIo;
use super::row_fusion::Stream;
use super::{TOKENS, TapBuffers, Workspace};
use crate::config::ModelConfig;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::{residual, residual_norm, rms_norm};
use twoclock_shaders::program::{Command, Slice};

/// What a step's program is built for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a> {
    pub(super) caps: &'a Caps,
    pub(super) ws: &'a Workspace,
    pub(super) constants: Slice,
    pub(super) act_format: ActFormat,
    pub(super) room: u32,
    pub(super) taps: &'a TapBuffers,
}

impl Body<'_> {
    /// Stride of matmul inputs of width hidden.
    pub(super) fn hidden_stride(&self, config: &ModelConfig) -> u32 {
        self.act_format.stride(config.hidden_size as u32)
    }

    /// What a matmul behind a norm multiplies its result by.
    pub(super) fn rstd(&self) -> Option<Slice> {
        (!self.act_format.takes_rstd()).then_some(self.ws.rstd)
    }

    /// x ∘ gains into the matmul input of width hidden, and rstd.
    pub(super) fn norm(&self, gains: Slice, config: &ModelConfig, commands: &mut Vec<Command>) {
        let params = rms_norm::RmsNormParams {
            dim4: config.hidden_size as u32 / 4,
            act_stride: self.hidden_stride(config),
            eps: config.rms_norm_eps,
        };
        let buffers = rms_norm::Buffers {
            x: self.ws.x,
            g: gains,
            out: self.ws.act_hidden,
            rstd: self.ws.rstd,
        };
        commands
            .push(rms_norm::dispatch(self.caps, self.act_format, params, TOKENS, buffers).into());
    }

    /// `y = act Wᵀ + bias`, times rstd before the bias where the input came of a norm.
    pub(super) fn project(
        &self,
        projection: &Projection,
        act: Slice,
        normed: bool,
        y: Slice,
        commands: &mut Vec<Command>,
    ) {
        let rstd = self.rstd().filter(|_| normed);
        self.multiply(projection, act, rstd, (y, false), commands);
    }

    /// The residual stream takes `act Wᵀ + bias`: at once, or through a norm where there is one. What comes
    /// next may be another norm and something that takes its product with its squares.
    pub(super) fn join(
        &self,
        projection: &Projection,
        act: Slice,
        (norm, next): (Option<Slice>, Option<Slice>),
        config: &ModelConfig,
        commands: &mut Vec<Command>,
    ) -> Stream {
        if norm.is_some() {
            self.multiply(projection, act, None, (self.ws.sublayer, false), commands);
            self.residual(norm, config, commands);
            return Stream::Bare;
        }
        if let Some(fused) = next.and_then(|gains| self.row_join(projection, act, gains, config)) {
            commands.extend([fused, Command::Cut]);
            return Stream::Gained;
        }
        self.multiply(projection, act, None, (self.ws.x, true), commands);
        Stream::Bare
    }

    fn multiply(
        &self,
        projection: &Projection,
        act: Slice,
        rstd: Option<Slice>,
        (y, add): (Slice, bool),
        commands: &mut Vec<Command>,
    ) {
        let io = LinearIo {
            act_format: self.act_format,
            room: self.room,
            count: TOKENS,
            act,
            rstd,
            bias: projection.bias,
            add,
            y,
            y_stride: projection.linear.out_features,
        };
        commands.extend(projection.linear.commands(self.caps, &io));
        // A submit may end after the work of any matrix.
        commands.push(Command::Cut);
    }

    /// `x += y` of the sublayer, through a norm where there is one.
    pub(super) fn residual(
        &self,
        norm: Option<Slice>,
        config: &ModelConfig,
        commands: &mut Vec<Command>,
    ) {
        let dim4 = config.hidden_size as u32 / 4;
        let (x, y) = (self.ws.x, self.ws.sublayer);
        commands.push(match norm {
            None => residual::dispatch(residual::ResidualParams { dim4 }, TOKENS, y, x).into(),
            Some(g) => {
                let params = residual_norm::ResidualNormParams {
                    dim4,
                    tokens: self.room,
                    eps: config.rms_norm_eps,
                };
                let buffers = residual_norm::Buffers { y, g, x };
                residual_norm::dispatch(self.caps, params, TOKENS, buffers).into()
            }
        });
    }
}
