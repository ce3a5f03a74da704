//! The rotary tables on a device, f32 `[positions][pairs][cos, sin]` each: in the arena, behind the other
//! constants, where one binding holds them together, else in buffers of their own.

use super::arena::{Arena, ArenaBuilder};
use super::rope;
use crate::config::{LayerRope, ModelConfig};
use crate::error::Result;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::executor::Executor;
use twoclock_shaders::program::Slice;

/// Where they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ropes {
    global: Slice,
    local: Option<Slice>,
}

/// Whether so many bytes of tables lie in the arena.
fn joins(caps: &Caps, arena: &ArenaBuilder, tables: u64) -> bool {
    arena.bytes() + arena.bytes_of(tables) <= caps.max_binding_bytes
}

impl Ropes {
    /// Bytes they add to those of an arena of all other constants.
    pub(super) fn bytes(
        config: &ModelConfig,
        positions: usize,
        caps: &Caps,
        arena: &ArenaBuilder,
    ) -> u64 {
        let each = rope::table_bytes(config, positions).next_multiple_of(caps.binding_alignment);
        let tables = each * (1 + u64::from(config.rope_local.is_some()));
        match joins(caps, arena, tables) {
            true => arena.bytes_of(tables),
            false => tables,
        }
    }

    /// Computes them, and makes the arena.
    ///
    /// # Errors
    /// A device without room.
    pub(super) fn load(
        executor: &mut impl Executor,
        config: &ModelConfig,
        positions: usize,
        mut arena: ArenaBuilder,
    ) -> Result<(Arena, Self)> {
        let caps = executor.caps().clone();
        // One after the other, each where a binding may begin.
        let (mut tables, mut starts) = (Vec::new(), Vec::new());
        for rope in std::iter::once(&config.rope).chain(&config.rope_local) {
            starts.push(4 * tables.len() as u64);
            tables.extend(rope::table(rope, config.rotary_dim, positions));
            let end = tables
                .len()
                .next_multiple_of(caps.binding_alignment as usize / 4);
            tables.resize(end, 0.0);
        }
        let bytes = 4 * tables.len() as u64;
        let joined = joins(&caps, &arena, bytes).then(|| arena.push(&tables));
        let arena = arena.upload(executor)?;
        let all = match joined {
            Some(at) => arena.slice(at),
            None => {
                let buffer = executor.create_buffer("rope", bytes)?;
                executor.write(buffer, 0, bytemuck::cast_slice(&tables))?;
                Slice::whole(buffer, bytes)
            }
        };
        let table = |start: u64| Slice {
            offset: all.offset + start,
            bytes: bytes / starts.len() as u64,
            ..all
        };
        let ropes = Self {
            global: table(0),
            local: starts.get(1).map(|&start| table(start)),
        };
        Ok((arena, ropes))
    }

    /// That of a layer.
    pub(super) fn of(self, rope: LayerRope) -> Option<Slice> {
        match rope {
            LayerRope::None => None,
            LayerRope::Global => Some(self.global),
            LayerRope::Local => self.local,
        }
    }
}
