//! A linear layer: one or more tensors of a file, stacked by rows, in whatever formats they have,
//! split so that every window fits a binding. The one place that knows quantization.

use crate::error::Result;
use crate::weights::TensorInfo;
use crate::weights::repack::{PackedRows, format_of, groups, pack_rows};
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActLayout;
use twoclock_shaders::kernels::matmul::{self, MatmulParams};
use twoclock_shaders::kernels::weight::{GROUP, WeightFormat};
use twoclock_shaders::program::{Command, CountId, Slice};

/// Bytes of a file read and repacked at once.
const CHUNK: usize = 8 << 20;

/// Rows of a window start at multiples of this, so that no tile straddles two.
const ROW_MULTIPLE: u64 = 64;

/// Some rows in one format: quants and scales, each its own window of one buffer.
#[derive(Clone, Copy, Debug)]
pub struct LinearPart {
    /// Layout of the rows.
    pub format: WeightFormat,
    /// Quants.
    pub w: Slice,
    /// Scales, for the formats that have them.
    pub ws: Option<Slice>,
    /// First row of the layer.
    pub first_row: u32,
    /// Rows.
    pub rows: u32,
}

/// A weight matrix `[out_features][in_features]` on a device.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Its rows, in order.
    pub parts: Vec<LinearPart>,
    /// Columns.
    pub in_features: u32,
    /// Rows.
    pub out_features: u32,
}

/// Where a part's rows come from and how large it is, decided before any byte is read.
struct PartPlan<'a> {
    tensor: &'a TensorInfo,
    tensor_row: usize,
    rows: usize,
    scales_at: u64,
    bytes: u64,
}

fn plan<'a>(caps: &Caps, tensors: &[&'a TensorInfo]) -> Vec<PartPlan<'a>> {
    let mut parts = Vec::new();
    for &tensor in tensors {
        let format = format_of(tensor.dtype);
        let groups = groups(tensor.cols());
        let quant_bytes = 4 * u64::from(format.row_words(groups));
        let scale_bytes = 4 * u64::from(format.row_scale_words(groups));
        let most = (caps.max_binding_bytes / quant_bytes)
            .min((caps.max_buffer_bytes - caps.binding_alignment) / (quant_bytes + scale_bytes));
        let most = (most / ROW_MULTIPLE * ROW_MULTIPLE).max(1) as usize;
        let mut row = 0;
        while row < tensor.rows() {
            let rows = most.min(tensor.rows() - row);
            let scales_at = (quant_bytes * rows as u64).next_multiple_of(caps.binding_alignment);
            parts.push(PartPlan {
                tensor,
                tensor_row: row,
                rows,
                scales_at,
                bytes: scales_at + scale_bytes * rows as u64,
            });
            row += rows;
        }
    }
    parts
}

/// Bytes these tensors take on a device, stacked or alone.
pub fn device_bytes(caps: &Caps, tensors: &[&TensorInfo]) -> u64 {
    plan(caps, tensors).iter().map(|part| part.bytes).sum()
}

impl Linear {
    /// Loads tensors of equal width, stacked in this order.
    ///
    /// # Errors
    /// A file that cannot be read, or a device without room.
    pub fn load(executor: &mut impl Executor, tensors: &[&TensorInfo]) -> Result<Self> {
        let caps = executor.caps().clone();
        let mut linear = Self {
            parts: Vec::new(),
            in_features: tensors.first().map_or(0, |t| t.cols()) as u32,
            out_features: 0,
        };
        for part in plan(&caps, tensors) {
            let loaded = load_part(executor, &part, linear.out_features)?;
            linear.out_features += loaded.rows;
            linear.parts.push(loaded);
        }
        Ok(linear)
    }

    /// Groups of 32 a row, the padding counted.
    pub fn groups(&self) -> u32 {
        self.in_features.div_ceil(GROUP)
    }

    /// `y = x Wᵀ` (times `rstd` a token, where the input is the product of a norm).
    ///
    /// `act` and `y` have room for `room` tokens; `y_stride` is the elements from row to row of y.
    pub fn commands(&self, caps: &Caps, io: &LinearIo) -> Vec<Command> {
        self.parts
            .iter()
            .map(|part| {
                let params = MatmulParams {
                    rows: part.rows,
                    groups: self.groups(),
                    tokens: io.room,
                    act_stride: io.layout.stride(GROUP * self.groups(), io.room),
                    y_stride: io.y_stride,
                    y_offset: part.first_row,
                    norm: 0,
                };
                let buffers = matmul::Buffers {
                    act: io.act,
                    w: part.w,
                    ws: part.ws,
                    rstd: io.rstd,
                    y: io.y,
                };
                let dispatch =
                    matmul::dispatch(caps, part.format, io.layout, params, io.count, buffers);
                Command::Dispatch(Box::new(dispatch))
            })
            .collect()
    }
}

/// What a linear layer reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct LinearIo {
    /// Layout of the input.
    pub layout: ActLayout,
    /// Tokens the buffers have room for.
    pub room: u32,
    /// The step's count of tokens.
    pub count: CountId,
    /// Input.
    pub act: Slice,
    /// Reciprocal root mean squares, after a norm.
    pub rstd: Option<Slice>,
    /// Output.
    pub y: Slice,
    /// Elements from row to row of the output.
    pub y_stride: u32,
}

fn load_part(
    executor: &mut impl Executor,
    part: &PartPlan<'_>,
    first_row: u32,
) -> Result<LinearPart> {
    let tensor = part.tensor;
    let buffer = executor.create_buffer(&tensor.name, part.bytes)?;
    let row_bytes = (tensor.bytes / tensor.rows() as u64).max(1) as usize;
    let step = (CHUNK / row_bytes).max(1);
    let (mut quants_at, mut scales_at) = (0, part.scales_at);
    let end = part.tensor_row + part.rows;
    for row in (part.tensor_row..end).step_by(step) {
        let raw = tensor.read_rows(row..end.min(row + step))?;
        let PackedRows { quants, scales } = pack_rows(tensor.dtype, tensor.cols(), &raw);
        executor.write(buffer, quants_at, bytemuck::cast_slice(&quants))?;
        quants_at += 4 * quants.len() as u64;
        if !scales.is_empty() {
            executor.write(buffer, scales_at, bytemuck::cast_slice(&scales))?;
            scales_at += 4 * scales.len() as u64;
        }
    }
    Ok(LinearPart {
        format: format_of(tensor.dtype),
        w: Slice {
            buffer,
            offset: 0,
            bytes: quants_at,
        },
        ws: (scales_at > part.scales_at).then_some(Slice {
            buffer,
            offset: part.scales_at,
            bytes: scales_at - part.scales_at,
        }),
        first_row,
        rows: part.rows as u32,
    })
}
