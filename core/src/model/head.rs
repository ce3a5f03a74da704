//! The head: the last norm and the output projection of the rows that want logits, and the draw.

use super::linear::{Linear, LinearIo};
use super::{ROWS, Workspace};
use crate::config::ModelConfig;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::act::ActLayout;
use twoclock_shaders::kernels::{gather_rows, rms_norm, sample, sample_pick, softcap};
use twoclock_shaders::program::{Command, Slice};

/// Logits and drawn ids of one group of the step's rows, `first_row` on, with room for `room`.
pub fn commands(
    caps: &Caps,
    config: &ModelConfig,
    norm: Slice,
    projection: &Linear,
    ws: &Workspace,
    first_row: u32,
    room: u32,
) -> Vec<Command> {
    let layout = ActLayout::Rows;
    let dim4 = config.hidden_size as u32 / 4;
    let vocab = config.vocab_size as u32;
    let gather = gather_rows::GatherRowsParams { dim4, first_row };
    let norm_params = rms_norm::RmsNormParams {
        dim4,
        act_stride: layout.stride(32 * projection.groups(), room),
        eps: config.rms_norm_eps,
    };
    let norm_buffers = rms_norm::Buffers {
        x: ws.row_x,
        g: norm,
        out: ws.row_act,
        rstd: ws.row_rstd,
    };
    let io = LinearIo {
        layout,
        room,
        count: ROWS,
        act: ws.row_act,
        rstd: Some(ws.row_rstd),
        y: ws.logits,
        y_stride: vocab,
    };
    let draw = sample::SampleParams { vocab, first_row };
    let pick = sample_pick::SamplePickParams {
        candidates: sample::candidates(vocab),
        first_row,
    };
    let mut commands: Vec<Command> = [
        gather_rows::dispatch(gather, ROWS, ws.x, ws.step, ws.row_x),
        rms_norm::dispatch(caps, layout, norm_params, ROWS, norm_buffers),
    ]
    .map(Command::from)
    .into();
    for window in projection.commands(caps, &io) {
        commands.extend([window, Command::Cut]);
    }
    if let Some(cap) = config.final_logit_softcapping {
        let params = softcap::SoftcapParams { dim: vocab, cap };
        commands.push(softcap::dispatch(params, ROWS, ws.logits).into());
    }
    commands.extend(
        [
            sample::dispatch(draw, ROWS, ws.logits, ws.step, ws.best),
            sample_pick::dispatch(caps, pick, ROWS, ws.best, ws.ids),
        ]
        .map(Command::from),
    );
    commands
}
