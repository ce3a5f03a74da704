//! Pooling on the device: the last norm of a step's tokens, and sums of final hidden states over its
//! sequences' shares. Knows which rows sums lie in, and not whose they are.

use super::body::Body;
use super::decoder::Decoder;
use super::{TapBuffers, Workspace};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::sched::SchedulerConfig;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::kernels::act::ActFormat;
use twoclock_shaders::kernels::pool_sum::{self, POOL_WORDS};
use twoclock_shaders::program::{CountId, Program, Slice};

/// Of a program that pools, beside [`TOKENS`](super::TOKENS): shares that are pooled.
const POOLS: CountId = CountId(1);

/// Buffers of pooling.
#[derive(Clone, Copy, Debug)]
pub struct PoolBuffers {
    /// Most sequences of a step, and of those whose sums go on.
    pub sequences: u32,
    /// Sums of one sequence that are kept: as many steps may be in flight, and be computed again, and one
    /// before them.
    pub kept: u32,
    /// The step's shares, u32 `[sequences][POOL_WORDS]`.
    pub pools: Slice,
    /// f32 `[rows][hidden]`: sums that end in a step, one for each of `sequences`; then, for each of
    /// them, those that go on.
    pub sums: Slice,
}

/// Name and bytes of every buffer, in the order of [`PoolBuffers::create`].
pub fn buffers(config: &ModelConfig, sched: &SchedulerConfig) -> [(&'static str, u64); 2] {
    let (sequences, row) = (sched.max_num_seqs as u64, 4 * config.hidden_size as u64);
    [
        ("pools", sequences.saturating_mul(4 * POOL_WORDS as u64)),
        (
            "pooled sums",
            u64::from(1 + kept(sched))
                .saturating_mul(sequences)
                .saturating_mul(row),
        ),
    ]
}

fn kept(sched: &SchedulerConfig) -> u32 {
    2u32.saturating_add(sched.run_ahead.min(u32::MAX as usize) as u32)
}

impl PoolBuffers {
    /// Makes the buffers.
    ///
    /// # Errors
    /// A device without room.
    pub fn create(
        executor: &mut impl Executor,
        config: &ModelConfig,
        sched: &SchedulerConfig,
    ) -> Result<Self> {
        let [pools, sums] = buffers(config, sched);
        let mut create = |(label, bytes)| -> Result<Slice> {
            Ok(Slice::whole(executor.create_buffer(label, bytes)?, bytes))
        };
        Ok(Self {
            sequences: sched.max_num_seqs as u32,
            kept: kept(sched),
            pools: create(pools)?,
            sums: create(sums)?,
        })
    }

    /// Rows of the sums of one sequence that goes on, sequence `place` of them.
    pub fn kept_rows(&self, place: u32) -> std::ops::Range<u32> {
        let first = self.sequences + place * self.kept;
        first..first + self.kept
    }
}

impl Decoder {
    /// Sums of final hidden states of a step of up to `room` tokens, after its body.
    pub fn pool(&self, caps: &Caps, ws: &Workspace, pool: &PoolBuffers, room: u32) -> Program {
        let body = Body {
            caps,
            ws,
            constants: self.constants,
            act_format: ActFormat::F32,
            room,
            taps: &TapBuffers::default(),
        };
        let mut commands = Vec::new();
        body.norm(self.norm, &self.config, &mut commands);
        let params = pool_sum::PoolSumParams {
            dim4: self.config.hidden_size as u32 / 4,
            act_stride: body.hidden_stride(&self.config),
        };
        let buffers = pool_sum::Buffers {
            x: ws.act_hidden,
            rstd: ws.rstd,
            pools: pool.pools,
            sums: pool.sums,
        };
        commands.push(pool_sum::dispatch(params, POOLS, buffers).into());
        Program::new(format!("pooling of {room} tokens"), commands)
    }
}
