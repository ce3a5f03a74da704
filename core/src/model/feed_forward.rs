//! The feed-forward half of a block: dense, or a mixture of experts.

use super::body::Body;
use super::decoder::Projection;
use super::experts::{self, Experts, ExpertsIo};
use super::fusion::activation;
use super::row_fusion::Stream;
use super::{TOKENS, workspace::MixtureBuffers};
use crate::config::{ModelConfig, MoeConfig};
use twoclock_shaders::kernels::{glu, moe_group, moe_route, moe_sum};
use twoclock_shaders::program::{Command, Slice};

/// What a block computes between its second norm and the residual.
#[derive(Clone, Debug)]
pub enum FeedForward {
    /// One gated network.
    Dense {
        /// Gate and up, stacked.
        gate_up: Projection,
        /// Back to the residual stream.
        down: Projection,
    },
    /// Many, of which each token uses a few.
    Mixture(Mixture),
}

/// A mixture of experts.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// Its numbers.
    pub moe: MoeConfig,
    /// Logits of the experts.
    pub router: Projection,
    /// Gates of the experts.
    pub gate: Experts,
    /// Their ups.
    pub up: Experts,
    /// Back to the residual stream.
    pub down: Experts,
}

/// Gains of the norms around the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeedForwardNorms {
    /// Before it.
    pub(super) before: Slice,
    /// Of its output, where there is one.
    pub(super) after: Option<Slice>,
    /// Of what comes next, where that takes the norm's product with its squares.
    pub(super) next: Option<Slice>,
}

impl FeedForward {
    /// Whether it goes on from [`Stream::Gained`].
    pub(super) fn takes_gained(&self, body: &Body<'_>, config: &ModelConfig) -> bool {
        match self {
            Self::Dense { gate_up, .. } => body.row_glu(gate_up, config).is_some(),
            Self::Mixture(_) => false,
        }
    }

    /// From the residual stream through its first norm back to it, through the second where there is one.
    pub(super) fn commands(
        &self,
        body: &Body<'_>,
        config: &ModelConfig,
        norms: FeedForwardNorms,
        stream: Stream,
        commands: &mut Vec<Command>,
    ) -> Stream {
        let ws = body.ws;
        match self {
            Self::Dense { gate_up, down } => {
                if stream == Stream::Gained {
                    let fused = body.row_glu(gate_up, config);
                    commands.extend([
                        fused.expect("offered before the stream was gained"),
                        Command::Cut,
                    ]);
                } else if let Some(fused) = body.fused_glu(norms.before, gate_up, config) {
                    commands.extend(fused);
                } else {
                    body.norm(norms.before, config, commands);
                    body.project(gate_up, ws.act_hidden, true, ws.gate_up, commands);
                    body.gate(config, config.intermediate_size, 1, commands);
                }
                body.join(
                    down,
                    ws.act_ffn,
                    (norms.after, norms.next),
                    config,
                    commands,
                )
            }
            Self::Mixture(mixture) => {
                let Some(buffers) = ws.mixture else {
                    unreachable!("the workspace was made for a configuration with experts");
                };
                body.norm(norms.before, config, commands);
                mixture.commands(body, config, buffers, commands);
                body.residual(norms.after, config, commands);
                Stream::Bare
            }
        }
    }
}

impl Mixture {
    fn commands(
        &self,
        body: &Body<'_>,
        config: &ModelConfig,
        buffers: MixtureBuffers,
        commands: &mut Vec<Command>,
    ) {
        let ws = body.ws;
        let chosen = self.moe.num_experts_per_tok as u32;
        let hidden = config.hidden_size as u32;
        body.project(&self.router, ws.act_hidden, true, buffers.logits, commands);
        let route = moe_route::MoeRouteParams {
            experts: self.moe.num_experts as u32,
            chosen,
            tokens: body.room,
            norm: u32::from(self.moe.norm_topk_prob),
        };
        let MixtureBuffers { logits, .. } = buffers;
        commands.push(moe_route::dispatch(body.caps, route, TOKENS, logits, buffers.route).into());

        let pairs = moe_group::Pairs {
            tokens: TOKENS,
            room: body.room,
            chosen,
            experts: route.experts,
        };
        let to_group = moe_group::Buffers {
            step: ws.step,
            route: buffers.route,
            pairs: buffers.pairs,
        };
        let gated = ExpertsIo {
            act_format: body.act_format,
            pairs,
            share: chosen,
            act: ws.act_hidden,
            rstd: body.rstd(),
            grouped: experts::group(body.caps, pairs, to_group, commands),
            y: ws.gate_up,
            y_stride: 2 * self.gate.out_features,
            y_offset: 0,
        };
        commands.extend(self.gate.commands(body.caps, &gated));
        let up = ExpertsIo {
            y_offset: self.gate.out_features,
            ..gated
        };
        commands.extend(self.up.commands(body.caps, &up));
        body.gate(config, self.moe.moe_intermediate_size, chosen, commands);
        let down = ExpertsIo {
            share: 1,
            act: ws.act_ffn,
            rstd: None,
            y: buffers.out,
            y_stride: hidden,
            y_offset: 0,
            ..gated
        };
        commands.extend(self.down.commands(body.caps, &down));
        let sum = moe_sum::MoeSumParams {
            dim4: hidden / 4,
            chosen,
        };
        let sum_buffers = moe_sum::Buffers {
            y: buffers.out,
            route: buffers.route,
            out: ws.sublayer,
        };
        commands.push(moe_sum::dispatch(sum, TOKENS, sum_buffers).into());
    }
}

impl Body<'_> {
    /// `act_ffn = activation(gate) · up`, for rows of this width, `rows` a token.
    fn gate(&self, config: &ModelConfig, dim: usize, rows: u32, commands: &mut Vec<Command>) {
        let dim = dim as u32;
        let params = glu::GluParams {
            dim4: dim / 4,
            act_stride: self.act_format.stride(dim),
        };
        let (from, to) = (self.ws.gate_up, self.ws.act_ffn);
        let rows = (TOKENS, rows);
        commands.push(
            glu::dispatch(activation(config), self.act_format, params, rows, from, to).into(),
        );
    }
}
