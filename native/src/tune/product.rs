//! One matrix product to time, on buffers of its own. Knows no choice.

use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::{Executor, ExecutorError};
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::matmul::{self, Buffers, MatmulParams};
use twoclock_shaders::kernels::weight::WeightFormat;
use twoclock_shaders::program::{BufferId, CountId, Dispatch, Extent, Slice};

/// A product of a matrix, with room for the most tokens.
pub(super) struct Product {
    format: WeightFormat,
    act_format: ActFormat,
    rows: u32,
    groups: u32,
    weights: Slice,
    scales: Option<Slice>,
    act: Slice,
    rstd: Slice,
    /// Output.
    pub(super) y: BufferId,
    y_bytes: u64,
    buffers: Vec<BufferId>,
}

impl Product {
    pub(super) fn new<E: Executor>(
        executor: &mut E,
        format: WeightFormat,
        act_format: ActFormat,
        [rows, columns]: [u32; 2],
        most_tokens: u32,
    ) -> Result<Self, ExecutorError> {
        let groups = columns.div_ceil(32);
        let most = u64::from(most_tokens).next_multiple_of(64);
        let mut buffers = Vec::new();
        let mut buffer = |label: &str, bytes: u64| {
            let bytes = bytes.next_multiple_of(16);
            let buffer = executor.create_buffer(label, bytes)?;
            buffers.push(buffer);
            // Pages that were never written need not be there; and small numbers, whatever their type.
            let chunk = vec![0x11; bytes.min(1 << 20) as usize];
            for at in (0..bytes).step_by(1 << 20) {
                let n = (bytes - at).min(1 << 20) as usize;
                executor.write(buffer, at, &chunk[..n])?;
            }
            Ok::<_, ExecutorError>(Slice::whole(buffer, bytes))
        };
        let words = |n: u32| 4 * u64::from(n) * u64::from(rows);
        let y_bytes = 4 * u64::from(rows) * most;
        let weights = buffer("weights", words(format.row_words(groups)))?;
        let scales = match format.row_scale_words(groups) {
            0 => None,
            n => Some(buffer("scales", words(n))?),
        };
        let act = buffer("act", act_format.row_bytes(columns) * most)?;
        let rstd = buffer("rstd", 4 * most)?;
        let y = buffer("y", y_bytes)?;
        Ok(Self {
            format,
            act_format,
            rows,
            groups,
            weights,
            scales,
            act,
            rstd,
            y: y.buffer,
            y_bytes,
            buffers,
        })
    }

    pub(super) fn dispatch(&self, caps: &Caps, tokens: u32) -> Dispatch {
        let params = MatmulParams {
            rows: self.rows,
            groups: self.groups,
            tokens,
            act_stride: self.act_format.stride(32 * self.groups),
            y_stride: self.rows,
            y_offset: 0,
            norm: 0,
            bias: 0,
            add: 0,
        };
        let buffers = Buffers {
            act: self.act,
            w: self.weights,
            ws: self.scales,
            rstd: Some(self.rstd),
            bias: None,
            y: Slice::whole(self.y, self.y_bytes),
        };
        let dispatch = matmul::dispatch(
            caps,
            self.format,
            self.act_format,
            params,
            CountId(0),
            buffers,
        );
        let grid = dispatch.resolve_grid(&[tokens]).unwrap_or([1; 3]);
        Dispatch {
            grid: grid.map(Extent::Fixed),
            ..dispatch
        }
    }

    pub(super) fn destroy<E: Executor>(self, executor: &mut E) {
        for buffer in self.buffers {
            executor.destroy_buffer(buffer);
        }
    }
}
