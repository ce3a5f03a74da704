//! The embedding table: a weight matrix used by rows.

use super::linear::Linear;
use super::{TOKENS, Workspace};
use twoclock_shaders::kernels::embed;
use twoclock_shaders::program::Command;

/// Fills the residual stream with the rows of the step's token ids, scaled.
pub fn commands(table: &Linear, scale: f32, ws: &Workspace) -> Vec<Command> {
    table
        .parts
        .iter()
        .map(|part| {
            let params = embed::EmbedParams {
                dim4: table.in_features / 4,
                groups: table.groups(),
                first_row: part.first_row,
                rows: part.rows,
                scale,
            };
            let buffers = embed::Buffers {
                w: part.w,
                ws: part.ws,
                step: ws.step,
                x: ws.x,
            };
            embed::dispatch(part.format, params, TOKENS, buffers).into()
        })
        .collect()
}
