//! Programs by shape and by what they record. A shape is a bucket: programs are built once for powers
//! of two of tokens, and a step takes the smallest that holds it.

use crate::model::pooling::PoolBuffers;
use crate::model::{Decoder, HeadPart, Pages, Tap, TapBuffers, Workspace, head};
use std::collections::HashMap;
use twoclock_shaders::caps::Caps;
use twoclock_shaders::program::Program;

/// Programs of one model on one device.
#[derive(Debug, Default)]
pub struct ProgramCache {
    bodies: HashMap<(u32, Vec<Tap>), Program>,
    heads: HashMap<(u32, u32, HeadPart), Program>,
    pools: HashMap<u32, Program>,
    edit: Option<Program>,
    mask: Option<Program>,
}

/// The bucket of `n`, at most `most`.
pub fn bucket(n: u32, most: u32) -> u32 {
    n.next_power_of_two().min(most)
}

impl ProgramCache {
    /// The body for `tokens` tokens, which records these taps.
    pub fn body(
        &mut self,
        model: &Decoder,
        caps: &Caps,
        ws: &Workspace,
        pages: &Pages,
        taps: &TapBuffers,
        tokens: u32,
    ) -> &Program {
        let room = bucket(tokens, ws.sizes.tokens);
        self.bodies
            .entry((room, taps.taps()))
            .or_insert_with(|| model.body(caps, ws, pages, taps, room))
    }

    /// What pools a step of `tokens` tokens.
    pub fn pool(
        &mut self,
        model: &Decoder,
        caps: &Caps,
        ws: &Workspace,
        pool: &PoolBuffers,
        tokens: u32,
    ) -> &Program {
        let room = bucket(tokens, ws.sizes.tokens);
        self.pools
            .entry(room)
            .or_insert_with(|| model.pool(caps, ws, pool, room))
    }

    /// What changes single logits.
    pub fn edit(&mut self, ws: &Workspace) -> &Program {
        self.edit.get_or_insert_with(|| head::edit(ws))
    }

    /// What bans the tokens that masks leave out.
    pub fn mask(&mut self, model: &Decoder, ws: &Workspace) -> &Program {
        self.mask
            .get_or_insert_with(|| head::mask(&model.config, ws))
    }

    /// The head for `rows` rows from `first_row` on.
    pub fn head(
        &mut self,
        model: &Decoder,
        caps: &Caps,
        ws: &Workspace,
        first_row: u32,
        rows: u32,
        part: HeadPart,
    ) -> &Program {
        let room = bucket(rows, ws.sizes.rows);
        self.heads
            .entry((first_row, room, part))
            .or_insert_with(|| model.head(caps, ws, first_row, room, part))
    }
}
