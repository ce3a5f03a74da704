//! The head: the last norm and the output projection of the rows that want logits, and the draw.

use super::decoder::Decoder;
use super::linear::LinearIo;
use super::{COUNT_ROWS, EDITS, FILTER_ROWS, MASKS, MASS_ROWS, ROWS, Workspace};
use crate::config::ModelConfig;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::kernels::{
    gather_rows, rms_norm, sample, sample_cut, sample_edit, sample_mask, sample_pick, sample_state,
    softcap,
};
use twoclock_shaders::program::{Command, Program};

/// How much of the head a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadPart {
    /// Logits and draw.
    Whole,
    /// The logits alone: something happens to them before the draw.
    Logits,
    /// The draw alone.
    Draw,
}

/// Logits of one group of the step's rows, `first_row` on, with room for `room`.
pub fn logits(
    caps: &Caps,
    model: &Decoder,
    ws: &Workspace,
    first_row: u32,
    room: u32,
) -> Vec<Command> {
    let (config, projection) = (&model.config, &model.head);
    let act_format = model.numerics.act_format();
    let caps = &model.numerics.caps(caps);
    let dim4 = config.hidden_size as u32 / 4;
    let vocab = config.vocab_size as u32;
    let gather = gather_rows::GatherRowsParams { dim4, first_row };
    let norm_params = rms_norm::RmsNormParams {
        dim4,
        act_stride: act_format.stride(32 * projection.groups()),
        eps: config.rms_norm_eps,
    };
    let norm_buffers = rms_norm::Buffers {
        x: ws.row_x,
        g: model.norm,
        out: ws.row_act,
        rstd: ws.row_rstd,
    };
    let io = LinearIo {
        act_format,
        room,
        count: ROWS,
        act: ws.row_act,
        rstd: (!act_format.takes_rstd()).then_some(ws.row_rstd),
        bias: None,
        add: false,
        y: ws.logits,
        y_stride: vocab,
    };
    let mut commands: Vec<Command> = [
        gather_rows::dispatch(gather, ROWS, ws.x, ws.step, ws.row_x),
        rms_norm::dispatch(caps, act_format, norm_params, ROWS, norm_buffers),
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
    commands
}

/// Changes logits of the group as the edits say.
pub fn edit(ws: &Workspace) -> Program {
    let edit = sample_edit::dispatch(EDITS, ws.edits, ws.logits);
    Program::new("edits of logits", vec![edit.into()])
}

/// Bans in rows of the group what their masks leave out.
pub fn mask(config: &ModelConfig, ws: &Workspace) -> Program {
    let vocab = config.vocab_size as u32;
    let mask = sample_mask::dispatch(vocab, MASKS, ws.masks, ws.logits);
    Program::new("masks of logits", vec![mask.into()])
}

/// Drawn ids of that group.
pub fn draw(caps: &Caps, config: &ModelConfig, ws: &Workspace, first_row: u32) -> Vec<Command> {
    let vocab = config.vocab_size as u32;
    let draw = sample::SampleParams { vocab, first_row };
    let pick = sample_pick::SamplePickParams {
        candidates: sample::candidates(vocab),
        first_row,
    };
    let stages = [FILTER_ROWS, COUNT_ROWS, MASS_ROWS];
    let mut dispatches =
        sample_cut::passes(caps, vocab, first_row, stages, ws.logits, ws.step, ws.cut);
    dispatches.push(sample::dispatch(
        draw, ROWS, ws.logits, ws.step, ws.cut, ws.best,
    ));
    dispatches.push(sample_pick::dispatch(caps, pick, ROWS, ws.best, ws.ids));
    let keep = sample_state::SampleStateParams { first_row };
    dispatches.push(sample_state::dispatch(
        keep, ROWS, ws.step, ws.ids, ws.state,
    ));
    dispatches.into_iter().map(Command::from).collect()
}
