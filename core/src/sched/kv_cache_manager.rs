//! Which blocks hold which sequence, and who writes where. Knows sequences by id and length only,
//! and blocks by number.

use super::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use super::computed_blocks::ComputedBlocks;
use super::config::SchedulerConfig;
use super::handed_out::HandedOut;
use super::kv_group::KvGroupSpec;
use super::output::BlockCopy;
use crate::types::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks of one sequence.
#[derive(Debug)]
pub(super) struct SequenceBlocks {
    /// One table a group.
    pub(super) tables: Vec<Vec<BlockId>>,
    /// Blocks of each table, from the first on, whose content was made known or need not be.
    pub(super) num_known: usize,
}

/// Block tables of every sequence that has any.
///
/// Tables only grow, but for blocks that no step has filled, all groups' alike: block `i` is that of positions `i · block_size ..`. What no
/// query of a coming step can see is the null block.
#[derive(Debug)]
pub struct KvCacheManager {
    pub(super) groups: Vec<KvGroupSpec>,
    /// One a group.
    pub(super) pools: Vec<BlockPool>,
    pub(super) block_size: usize,
    /// Most tokens of one sequence in the steps that are in flight together.
    chunk: usize,
    pub(super) enable_prefix_caching: bool,
    /// What besides tokens and salt decides the content of a block.
    pub(super) fingerprint: String,
    pub(super) sequences: BTreeMap<RequestId, SequenceBlocks>,
    /// Copies that no finished step has made yet. Each holds a reference to its source.
    pub(super) copies: HandedOut<BlockCopy>,
}

impl KvCacheManager {
    /// A manager of the blocks that each group has under these limits.
    pub fn new(groups: Vec<KvGroupSpec>, config: &SchedulerConfig) -> Self {
        let chunk = config.max_prefill_chunk.unwrap_or(usize::MAX);
        Self {
            pools: groups
                .iter()
                // Limits that were checked fit.
                .map(|group| BlockPool::new(group.num_blocks(config) as u32))
                .collect(),
            groups,
            block_size: config.block_size,
            chunk: chunk
                .min(config.max_num_batched_tokens)
                .saturating_mul(1 + config.run_ahead),
            enable_prefix_caching: config.enable_prefix_caching,
            fingerprint: String::new(),
            sequences: BTreeMap::new(),
            copies: HandedOut::default(),
        }
    }

    /// Says what besides tokens and salt decides the content of a block: model, adapter, type of
    /// the cache, numerics class. Before anything is cached.
    pub(super) fn set_fingerprint(&mut self, fingerprint: String) {
        self.fingerprint = fingerprint;
    }

    /// The groups.
    pub fn groups(&self) -> &[KvGroupSpec] {
        &self.groups
    }

    /// Blocks that can be handed out in all, over all groups.
    pub fn num_usable_blocks(&self) -> usize {
        self.pools.iter().map(BlockPool::num_usable_blocks).sum()
    }

    /// Blocks that can be handed out now, over all groups.
    pub fn num_free_blocks(&self) -> usize {
        self.pools.iter().map(BlockPool::num_free_blocks).sum()
    }

    /// Where a sequence of `num_tokens` tokens could not be computed even alone and token by token:
    /// the blocks it needs of a group, and those there are.
    pub fn never_fits(&self, num_tokens: usize) -> Option<(usize, usize)> {
        self.groups
            .iter()
            .zip(&self.pools)
            .map(|(group, pool)| {
                let needed = group.blocks_for(num_tokens, 1, self.block_size);
                (needed, pool.num_usable_blocks())
            })
            .find(|(needed, usable)| needed > usable)
    }

    /// Whether there is room for a whole sequence of `num_tokens` tokens that begins with blocks
    /// found in the cache, computed in chunks as long as may be; where that takes more than there
    /// is, everything must be free.
    pub fn has_room_for(&self, num_tokens: usize, found: &ComputedBlocks) -> bool {
        let groups = self.groups.iter().zip(&self.pools).zip(&found.block_tables);
        groups.into_iter().all(|((group, pool), table)| {
            let needed = group.blocks_for(num_tokens, self.chunk, self.block_size);
            // Those found that others hold take nothing from the free ones, but for the one that
            // will be copied.
            let whole = &table[..found.num_cached_tokens / self.block_size];
            let held = |block: &&BlockId| **block != NULL_BLOCK && pool.ref_cnt(**block) > 0;
            let held = whole.iter().filter(held).count();
            needed.min(pool.num_usable_blocks()) <= pool.num_free_blocks() + held
        })
    }

    /// Blocks from the first on that no query from `position` on sees.
    pub(super) fn num_unseen(&self, group: &KvGroupSpec, position: usize) -> usize {
        let blocks = position.div_ceil(self.block_size);
        (group.first_seen(position) / self.block_size).min(blocks)
    }

    /// Gives a request that holds nothing the blocks found for it.
    pub fn share(&mut self, id: RequestId, found: ComputedBlocks) {
        for (table, pool) in found.block_tables.iter().zip(&mut self.pools) {
            for &block in table.iter().filter(|block| **block != NULL_BLOCK) {
                pool.touch(block);
            }
        }
        let blocks = SequenceBlocks {
            num_known: found.num_cached_tokens / self.block_size,
            tables: found.block_tables,
        };
        let before = self.sequences.insert(id, blocks);
        assert!(before.is_none(), "{id} holds blocks already");
    }

    /// Tokens from its first on that the tables of a request, which goes on at `start`, could be
    /// lengthened to hold now.
    pub fn max_num_tokens(&self, id: RequestId, start: usize) -> usize {
        let held = self.num_blocks(id);
        let free = self.pools.iter().enumerate().map(|(group, pool)| {
            let copied = self.shared_partial_block(id, group, start).is_some();
            pool.num_free_blocks().saturating_sub(usize::from(copied))
        });
        (held + free.min().unwrap_or(0)) * self.block_size
    }

    /// Makes the tables of a request ready for a step that computes the positions of `range`:
    /// as many blocks as they need and no more, and with a copy where the first of them lies in a
    /// block that others hold. Gives back whether there was room; if not, nothing
    /// changed.
    pub fn allocate_slots(&mut self, id: RequestId, range: Range<usize>) -> bool {
        let blocks = range.end.div_ceil(self.block_size);
        // What most steps do: go on in blocks that nobody else holds or knows.
        if let Some(sequence) = self.sequences.get(&id) {
            let index = range.start / self.block_size;
            let mut tables = sequence.tables.iter().zip(&self.pools);
            let alone = tables.all(|(table, pool)| {
                let own =
                    |&&block: &&BlockId| pool.ref_cnt(block) == 1 && pool.hash(block).is_none();
                table.len() == blocks && table.get(index).filter(own).is_some()
            });
            if alone {
                return true;
            }
        }
        let missing = blocks.saturating_sub(self.num_blocks(id));
        let shared: Vec<_> = (0..self.groups.len())
            .map(|group| self.shared_partial_block(id, group, range.start))
            .collect();
        let needed = shared.iter().map(|s| missing + usize::from(s.is_some()));
        if self
            .pools
            .iter()
            .zip(needed)
            .any(|(p, n)| p.num_free_blocks() < n)
        {
            return false;
        }
        for (group, block) in shared.into_iter().enumerate() {
            if let Some(block) = block {
                self.copy_on_write(id, group, range.start / self.block_size, block);
            }
        }
        // What is written into is no longer what it was known for.
        if let Some(tables) = self.sequences.get(&id).map(|sequence| &sequence.tables)
            && !range.start.is_multiple_of(self.block_size)
        {
            for (table, pool) in tables.iter().zip(&mut self.pools) {
                if let Some(&block) = table.get(range.start / self.block_size) {
                    pool.evict(block);
                }
            }
        }
        let sequence = self.sequences.entry(id).or_insert_with(|| SequenceBlocks {
            tables: vec![Vec::new(); self.groups.len()],
            num_known: 0,
        });
        for (table, pool) in sequence.tables.iter_mut().zip(&mut self.pools) {
            let new = pool.allocate(missing);
            table.extend(new.expect("every pool has so many free blocks"));
        }
        true
    }

    /// The block of a group that a request would write into at `start` while others hold it.
    fn shared_partial_block(&self, id: RequestId, group: usize, start: usize) -> Option<BlockId> {
        if start.is_multiple_of(self.block_size) {
            return None;
        }
        let table = self.block_tables(id).get(group)?;
        let block = *table.get(start / self.block_size)?;
        // What waits to be copied from is copied before anything is written.
        let copies = self
            .copies
            .iter()
            .filter(|c| (c.group, c.src) == (group, block));
        let holders = self.pools[group].ref_cnt(block) as usize - copies.count();
        (holders > 1).then_some(block)
    }

    /// Puts a copy in the place of a block that others hold.
    fn copy_on_write(&mut self, id: RequestId, group: usize, index: usize, block: BlockId) {
        let pool = &mut self.pools[group];
        let dst = pool.allocate(1).expect("there is a free block")[0];
        let sequence = self.sequences.get_mut(&id).expect("it holds the block");
        sequence.tables[group][index] = dst;
        // Nothing is copied from what is only being copied to, in this step or in one that may yet be
        // taken back: from its source instead, which has all that was computed when it was made,
        // and the request sees no more than that.
        let origin = self
            .copies
            .iter()
            .find(|c| (c.group, c.dst) == (group, block));
        let src = origin.map_or(block, |copy| copy.src);
        if src != block {
            pool.touch(src);
            pool.free([block]);
        }
        self.copies.push(BlockCopy { group, src, dst });
    }

    /// Copies to be made before `step` writes.
    pub(super) fn hand_out_copies(&mut self, step: u64) -> Vec<BlockCopy> {
        self.copies.hand_out(step)
    }

    /// The copies of `step` were made.
    pub(super) fn confirm_copies(&mut self, step: u64) {
        for copy in self.copies.confirm(step) {
            self.pools[copy.group].free([copy.src]);
        }
    }

    /// Steps in flight were taken back, and this request has `num_tokens` tokens with slots.
    pub(super) fn take_back(&mut self, id: RequestId, num_tokens: usize) {
        let blocks = num_tokens.div_ceil(self.block_size);
        if let Some(sequence) = self.sequences.get_mut(&id) {
            for (table, pool) in sequence.tables.iter_mut().zip(&mut self.pools) {
                let beyond = table.drain(blocks.min(table.len())..).rev();
                pool.free(beyond.filter(|block| *block != NULL_BLOCK));
            }
        }
        self.drop_copies_to_nobody();
    }

    /// Frees the blocks that no query from `position` on sees, and leaves null blocks in their
    /// place. No step that computes an earlier position may come after this.
    pub fn free_unseen(&mut self, id: RequestId, position: usize) {
        let Some(sequence) = self.sequences.get_mut(&id) else {
            return;
        };
        let groups = self.groups.iter().zip(&mut self.pools);
        for ((group, pool), table) in groups.zip(&mut sequence.tables) {
            let unseen = (group.first_seen(position) / self.block_size).min(table.len());
            // Those before the last null block went before.
            for block in table[..unseen].iter_mut().rev() {
                if *block == NULL_BLOCK {
                    break;
                }
                pool.free([std::mem::replace(block, NULL_BLOCK)]);
            }
        }
    }

    /// A request's block tables, one a group; empty before the first allocation.
    pub fn block_tables(&self, id: RequestId) -> &[Vec<BlockId>] {
        self.sequences
            .get(&id)
            .map_or(&[], |sequence| sequence.tables.as_slice())
    }

    /// Gives a request's blocks back, its last ones first, so that a beginning outlives its end.
    pub fn free(&mut self, id: RequestId) {
        let Some(sequence) = self.sequences.remove(&id) else {
            return;
        };
        for (table, pool) in sequence.tables.into_iter().zip(&mut self.pools) {
            pool.free(table.into_iter().rev());
        }
        self.drop_copies_to_nobody();
    }

    /// Copies to blocks that nobody holds any more need not be made, and must not be once the blocks
    /// are another's.
    fn drop_copies_to_nobody(&mut self) {
        let pools = &mut self.pools;
        self.copies.retain(|copy| {
            let held = pools[copy.group].ref_cnt(copy.dst) > 0;
            if !held {
                pools[copy.group].free([copy.src]);
            }
            held
        });
    }

    /// Checks every pool, that every held block has as many references as tables and copies need it, that
    /// tables are exactly as long as `sequences` asks (at most `block_size − 1` slots unused), and
    /// that they hold what a coming query sees and nothing before it.
    ///
    /// `sequences` names each running request with its next position to compute and the tokens its
    /// tables must hold.
    ///
    /// # Errors
    /// A sentence naming the first contradiction.
    pub fn check_integrity(
        &self,
        sequences: &BTreeMap<RequestId, Range<usize>>,
    ) -> Result<(), String> {
        let mut counts = vec![BTreeMap::<BlockId, u32>::new(); self.groups.len()];
        for (id, sequence) in &self.sequences {
            let Range { start, end } = sequences
                .get(id)
                .ok_or_else(|| format!("{id} is not running, but holds blocks"))?;
            for ((table, group), counts) in
                sequence.tables.iter().zip(&self.groups).zip(&mut counts)
            {
                let needed = end.div_ceil(self.block_size);
                if table.len() != needed {
                    return Err(format!(
                        "{id} has a table of {} blocks for {end} tokens, which need {needed}",
                        table.len()
                    ));
                }
                let unseen = self.num_unseen(group, *start).min(needed);
                let (unseen, seen) = table.split_at(unseen);
                if let Some(block) = unseen.iter().find(|&&block| block != NULL_BLOCK) {
                    return Err(format!("{id} holds block {block}, which nobody sees"));
                }
                if seen.contains(&NULL_BLOCK) {
                    return Err(format!("{id} sees a block it gave back"));
                }
                if seen.iter().collect::<BTreeSet<_>>().len() != seen.len() {
                    return Err(format!("{id} holds a block twice"));
                }
                for &block in seen {
                    *counts.entry(block).or_default() += 1;
                }
            }
        }
        for BlockCopy { group, src, dst } in self.copies.iter() {
            if !counts[*group].contains_key(dst) {
                return Err(format!(
                    "block {src} is to be copied to {dst}, which is free"
                ));
            }
            if self
                .copies
                .iter()
                .any(|c| (c.group, c.dst) == (*group, *src))
            {
                return Err(format!("block {src} is copied from and to"));
            }
        }
        for copy in self.copies.iter() {
            *counts[copy.group].entry(copy.src).or_default() += 1;
        }
        for (pool, counts) in self.pools.iter().zip(&counts) {
            pool.check_integrity()?;
            for (&block, &count) in counts {
                if pool.ref_cnt(block) != count {
                    let refs = pool.ref_cnt(block);
                    return Err(format!("block {block}: {count} holders, {refs} references"));
                }
            }
            if counts.len() + pool.num_free_blocks() != pool.num_usable_blocks() {
                return Err("a block is referenced by no table".into());
            }
        }
        Ok(())
    }

    /// Blocks of each of a request's tables, null blocks among them.
    fn num_blocks(&self, id: RequestId) -> usize {
        self.block_tables(id).first().map_or(0, Vec::len)
    }
}

#[cfg(test)]
#[path = "kv_cache_manager_tests.rs"]
mod tests;
