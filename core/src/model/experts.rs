//! One projection of a layer's experts: their weights stacked by rows, in windows of whole experts.

use super::linear::{self, Linear};
use crate::error::{Error, Result};
use crate::weights::TensorInfo;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::moe_group::{self, Pairs};
use twoclock_shaders::kernels::moe_matmul::{self, MoeMatmulParams};
use twoclock_shaders::kernels::weight::GROUP;
use twoclock_shaders::program::{Command, Slice};

/// `[experts][out_features][in_features]` on a device.
#[derive(Clone, Debug)]
pub struct Experts {
    linear: Linear,
    /// Rows of one expert.
    pub out_features: u32,
}

/// What the product with chosen experts reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct ExpertsIo {
    /// Layout of the input.
    pub act_format: ActFormat,
    /// The step's tokens and their experts.
    pub pairs: Pairs,
    /// Pairs that share an input row.
    pub share: u32,
    /// Input.
    pub act: Slice,
    /// Reciprocal root mean squares, after a norm.
    pub rstd: Option<Slice>,
    /// Where the pairs are: the route, or tiles of it.
    pub grouped: Slice,
    /// Output.
    pub y: Slice,
    /// Elements from pair to pair of the output.
    pub y_stride: u32,
    /// First element of each.
    pub y_offset: u32,
}

/// Puts pairs into tiles of one expert's, where a tile is not a pair: gives what the products read of
/// them, which is the route or those tiles.
pub(super) fn group(
    caps: &Caps,
    pairs: Pairs,
    buffers: moe_group::Buffers,
    commands: &mut Vec<Command>,
) -> Slice {
    let regime = pairs.regime(caps);
    if regime.tokens() == 1 {
        return buffers.route;
    }
    commands.push(moe_group::dispatch(caps, pairs, regime, buffers).into());
    buffers.pairs
}

fn rows(tensors: &[&TensorInfo]) -> u64 {
    tensors.first().map_or(0, |t| t.rows() as u64)
}

/// Bytes these tensors, one an expert, take on a device.
///
/// # Errors
/// [`Error::DoesNotFit`] for an expert beyond one binding.
pub fn device_bytes(caps: &Caps, tensors: &[&TensorInfo]) -> Result<u64> {
    let rows = rows(tensors);
    if let Some(tensor) = tensors.first()
        && linear::most_rows_of(caps, tensor) < rows
    {
        return Err(Error::DoesNotFit(format!(
            "{} has {rows} rows of {} columns, more than one buffer of this device binds; use a \
             smaller quantization",
            tensor.name,
            tensor.cols()
        )));
    }
    Ok(linear::device_bytes_by(caps, tensors, rows))
}

impl Experts {
    /// Loads one tensor an expert, all of one shape.
    ///
    /// # Errors
    /// An expert beyond one binding, a file that cannot be read, or a device without room.
    pub fn load(executor: &mut impl Executor, tensors: &[&TensorInfo]) -> Result<Self> {
        device_bytes(executor.caps(), tensors)?;
        let rows = rows(tensors);
        Ok(Self {
            linear: Linear::load_by(executor, tensors, rows)?,
            out_features: rows as u32,
        })
    }

    /// Windows the experts lie in.
    pub fn num_windows(&self) -> usize {
        self.linear.parts.len()
    }

    /// `y = x Wᵀ` of each pair, with the weights of its expert.
    pub fn commands(&self, caps: &Caps, io: &ExpertsIo) -> Vec<Command> {
        let mut commands = Vec::new();
        let regime = io.pairs.regime(caps);
        for part in &self.linear.parts {
            let params = MoeMatmulParams {
                rows: self.out_features,
                groups: self.linear.groups(),
                first_expert: part.first_row / self.out_features,
                experts: part.rows / self.out_features,
                chosen: io.pairs.chosen,
                share: io.share,
                order: 0,
                act_stride: io.act_format.stride(GROUP * self.linear.groups()),
                y_stride: io.y_stride,
                y_offset: io.y_offset,
                norm: 0,
            };
            let buffers = moe_matmul::Buffers {
                act: io.act,
                w: part.w,
                ws: part.ws,
                rstd: io.rstd,
                pairs: io.grouped,
                y: io.y,
            };
            commands.push(
                moe_matmul::dispatch(
                    regime,
                    part.format,
                    io.act_format,
                    params,
                    io.pairs,
                    buffers,
                )
                .into(),
            );
            commands.push(Command::Cut);
        }
        commands
    }
}
