//! A linear layer: one or more tensors of a file, stacked by rows, in whatever formats they have,
//! split so that every window fits a binding. The one place that knows quantization.

use crate::error::Result;
use crate::weights::TensorInfo;
use crate::weights::repack::{PackedRows, format_of, groups, pack_rows};
use std::ops::Range;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::{self, MatmulParams};
use twoclock_shaders::kernels::matmul_coop;
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

/// Rows of one tensor that go into a part.
struct Segment<'a> {
    tensor: &'a TensorInfo,
    rows: Range<usize>,
}

/// Where a part's rows come from and how large it is, decided before any byte is read.
struct PartPlan<'a> {
    format: WeightFormat,
    segments: Vec<Segment<'a>>,
    rows: usize,
    groups: u32,
}

impl PartPlan<'_> {
    fn quant_bytes(&self) -> u64 {
        4 * u64::from(self.format.row_words(self.groups)) * self.rows as u64
    }

    fn scale_bytes(&self) -> u64 {
        4 * u64::from(self.format.row_scale_words(self.groups)) * self.rows as u64
    }

    fn scales_at(&self, caps: &Caps) -> u64 {
        self.quant_bytes().next_multiple_of(caps.binding_alignment)
    }

    fn bytes(&self, caps: &Caps) -> u64 {
        self.scales_at(caps) + self.scale_bytes()
    }
}

/// Most rows of one window, in multiples of `multiple`: what a binding and a buffer hold, and what a
/// grid reaches when a workgroup has no more than [`matmul::LEAST_ROWS`].
fn most_rows(caps: &Caps, format: WeightFormat, groups: u32, multiple: u64) -> usize {
    let words = format.row_words(groups).max(format.row_scale_words(groups));
    let buffer = caps.max_buffer_bytes - caps.binding_alignment;
    let rows = (caps.max_binding_bytes / (4 * u64::from(words)))
        .min(buffer / format.row_bytes(groups))
        .min(u64::from(caps.max_workgroups) * u64::from(matmul::LEAST_ROWS));
    let whole = rows / multiple * multiple;
    // Where a window has no room for so many, it takes what it can.
    if whole > 0 {
        whole as usize
    } else {
        rows.max(1) as usize
    }
}

/// Neighbours of equal format share a part; a part that is full has a multiple of `multiple` rows.
fn plan<'a>(caps: &Caps, tensors: &[&'a TensorInfo], multiple: u64) -> Vec<PartPlan<'a>> {
    let mut parts: Vec<PartPlan<'a>> = Vec::new();
    for &tensor in tensors {
        let format = format_of(tensor.loaded_dtype());
        let groups = groups(tensor.cols());
        let most = most_rows(caps, format, groups, multiple);
        let mut row = 0;
        while row < tensor.rows() {
            let open = parts
                .last()
                .is_some_and(|part| part.format == format && part.rows < most);
            if !open {
                parts.push(PartPlan {
                    format,
                    segments: Vec::new(),
                    rows: 0,
                    groups,
                });
            }
            let Some(part) = parts.last_mut() else {
                unreachable!("one was just pushed");
            };
            let rows = (most - part.rows).min(tensor.rows() - row);
            part.segments.push(Segment {
                tensor,
                rows: row..row + rows,
            });
            part.rows += rows;
            row += rows;
        }
    }
    parts
}

/// Bytes these tensors take on a device, stacked or alone.
pub fn device_bytes(caps: &Caps, tensors: &[&TensorInfo]) -> u64 {
    device_bytes_by(caps, tensors, ROW_MULTIPLE)
}

/// As [`device_bytes`], with windows of whole multiples of so many rows.
pub(super) fn device_bytes_by(caps: &Caps, tensors: &[&TensorInfo], multiple: u64) -> u64 {
    plan(caps, tensors, multiple)
        .iter()
        .map(|part| part.bytes(caps))
        .sum()
}

/// Rows of such a tensor that one window holds.
pub(super) fn most_rows_of(caps: &Caps, tensor: &TensorInfo) -> u64 {
    let format = format_of(tensor.loaded_dtype());
    most_rows(caps, format, groups(tensor.cols()), 1) as u64
}

impl Linear {
    /// Loads tensors of equal width, stacked in this order.
    ///
    /// # Errors
    /// A file that cannot be read, or a device without room.
    pub fn load(executor: &mut impl Executor, tensors: &[&TensorInfo]) -> Result<Self> {
        Self::load_by(executor, tensors, ROW_MULTIPLE)
    }

    /// As [`load`](Self::load), with windows of whole multiples of so many rows.
    pub(super) fn load_by(
        executor: &mut impl Executor,
        tensors: &[&TensorInfo],
        multiple: u64,
    ) -> Result<Self> {
        let caps = executor.caps().clone();
        let mut linear = Self {
            parts: Vec::new(),
            in_features: tensors.first().map_or(0, |t| t.cols()) as u32,
            out_features: 0,
        };
        for part in plan(&caps, tensors, multiple) {
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

    /// `y = x Wᵀ + bias` (times `rstd` a token before the bias, where the input is the product of a
    /// norm), or `y += x Wᵀ + bias`.
    ///
    /// Cooperative matrices compute it where `caps` has them: those of a class are
    /// [`NumericsClass::caps`](super::NumericsClass::caps).
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
                    act_stride: io.act_format.stride(GROUP * self.groups()),
                    y_stride: io.y_stride,
                    y_offset: part.first_row,
                    norm: 0,
                    bias: 0,
                    add: u32::from(io.add),
                };
                let buffers = matmul::Buffers {
                    act: io.act,
                    w: part.w,
                    ws: part.ws,
                    rstd: io.rstd,
                    bias: io.bias,
                    y: io.y,
                };
                let (format, act_format) = (part.format, io.act_format);
                matmul_coop::dispatch(caps, format, params, io.count, buffers)
                    .unwrap_or_else(|| {
                        matmul::dispatch(caps, format, act_format, params, io.count, buffers)
                    })
                    .into()
            })
            .collect()
    }
}

/// What a linear layer reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct LinearIo {
    /// Layout of the input.
    pub act_format: ActFormat,
    /// Tokens the buffers have room for.
    pub room: u32,
    /// The step's count of tokens.
    pub count: CountId,
    /// Input.
    pub act: Slice,
    /// Reciprocal root mean squares, after a norm.
    pub rstd: Option<Slice>,
    /// f32 `[out_features]`.
    pub bias: Option<Slice>,
    /// Whether the output is added to what y holds.
    pub add: bool,
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
    let caps = executor.caps().clone();
    let label = part.segments.first().map_or("", |s| &s.tensor.name);
    let buffer = executor.create_buffer(label, part.bytes(&caps))?;
    let (mut quants_at, mut scales_at) = (0, part.scales_at(&caps));
    let segments = part.segments.iter().filter(|_| executor.keeps_data());
    for Segment { tensor, rows } in segments.collect::<Vec<_>>() {
        let row_bytes = (tensor.bytes / tensor.rows() as u64).max(1) as usize;
        let step = (CHUNK / row_bytes).max(1);
        for row in rows.clone().step_by(step) {
            let raw = tensor.load_rows(row..rows.end.min(row + step))?;
            let dtype = tensor.loaded_dtype();
            let PackedRows { quants, scales } = pack_rows(dtype, tensor.cols(), &raw);
            executor.write(buffer, quants_at, bytemuck::cast_slice(&quants))?;
            quants_at += 4 * quants.len() as u64;
            if !scales.is_empty() {
                executor.write(buffer, scales_at, bytemuck::cast_slice(&scales))?;
                scales_at += 4 * scales.len() as u64;
            }
        }
    }
    Ok(LinearPart {
        format: part.format,
        w: Slice {
            buffer,
            offset: 0,
            bytes: part.quant_bytes(),
        },
        ws: (part.scale_bytes() > 0).then_some(Slice {
            buffer,
            offset: part.scales_at(&caps),
            bytes: part.scale_bytes(),
        }),
        first_row,
        rows: part.rows as u32,
    })
}
