//! Which blocks hold which sequence, and which beginnings are there already. Knows of sequences
//! their ids, lengths and the names of their blocks, and blocks by number.

use super::block_hash::BlockHash;
use super::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use super::config::SchedulerConfig;
use super::kv_group::KvGroupSpec;
use super::request::Request;
use crate::types::RequestId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks of a request's beginning that hold the right content already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputedBlocks {
    /// One list a group.
    pub block_tables: Vec<Vec<BlockId>>,
    /// Tokens they cover.
    pub num_cached_tokens: usize,
}

/// Blocks of one sequence.
#[derive(Debug)]
struct SequenceBlocks {
    /// One table a group.
    tables: Vec<Vec<BlockId>>,
    /// Blocks of each table, from the first on, whose content was made known or need not be.
    num_known: usize,
}

/// Block tables of every sequence that has any.
///
/// Tables only grow, all groups' alike: block `i` is that of positions `i · block_size ..`. What no
/// query of a coming step can see is the null block.
#[derive(Debug)]
pub struct KvCacheManager {
    groups: Vec<KvGroupSpec>,
    /// One a group.
    pools: Vec<BlockPool>,
    block_size: usize,
    /// Most tokens of one sequence in a step.
    chunk: usize,
    enable_prefix_caching: bool,
    /// What besides tokens and salt decides the content of a block.
    fingerprint: String,
    sequences: BTreeMap<RequestId, SequenceBlocks>,
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
            chunk: chunk.min(config.max_num_batched_tokens),
            enable_prefix_caching: config.enable_prefix_caching,
            fingerprint: String::new(),
            sequences: BTreeMap::new(),
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
            // Those found that others hold take nothing from the free ones.
            let held = |block: &&BlockId| **block != NULL_BLOCK && pool.ref_cnt(**block) > 0;
            let held = table.iter().filter(held).count();
            needed.min(pool.num_usable_blocks()) <= pool.num_free_blocks() + held
        })
    }

    /// Names the full blocks of a request, so that they can be looked for.
    pub(super) fn hash_blocks(&self, request: &mut Request) {
        if self.enable_prefix_caching {
            request.hash_blocks(self.block_size, &self.fingerprint);
        }
    }

    /// The longest beginning of `request` found in the cache, in whole blocks: one of which every
    /// group still has what the next token sees. Takes nothing.
    pub fn get_computed_blocks(&self, request: &Request) -> ComputedBlocks {
        let hashes = request.block_hashes();
        let mut blocks = hashes.len().min(request.max_prefix_hit() / self.block_size);
        // A group may have less than those before it, which then need not have what they found.
        loop {
            let groups = self.groups.iter().zip(&self.pools);
            let common = groups.fold(blocks, |most, (group, pool)| {
                self.longest_hit(group, pool, &hashes[..most])
            });
            if std::mem::replace(&mut blocks, common) == common {
                break;
            }
        }
        let table = |(group, pool): (&KvGroupSpec, &BlockPool)| {
            let unseen = self.num_unseen(group, blocks * self.block_size);
            let found = hashes[unseen..blocks].iter().map(|hash| {
                let block = pool.cached(hash);
                block.expect("what a hit needs was just found")
            });
            std::iter::repeat_n(NULL_BLOCK, unseen)
                .chain(found)
                .collect()
        };
        ComputedBlocks {
            block_tables: self.groups.iter().zip(&self.pools).map(table).collect(),
            num_cached_tokens: blocks * self.block_size,
        }
    }

    /// Most of these blocks after which a group still has all that the next token sees.
    fn longest_hit(&self, group: &KvGroupSpec, pool: &BlockPool, hashes: &[BlockHash]) -> usize {
        let (mut end, mut first) = (hashes.len(), hashes.len());
        // Blocks `first .. end` are there. A missing one ends every beginning that reaches it, as
        // shorter ones see no later first block than longer ones.
        while first > self.num_unseen(group, end * self.block_size) {
            first -= 1;
            if pool.cached(&hashes[first]).is_none() {
                end = first;
            }
        }
        end
    }

    /// Blocks from the first on that no query from `position` on sees.
    fn num_unseen(&self, group: &KvGroupSpec, position: usize) -> usize {
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

    /// Makes the content of a request's full blocks known, as far as they are computed.
    pub(super) fn cache_blocks(&mut self, request: &mut Request) {
        self.hash_blocks(request);
        let Some(sequence) = self.sequences.get_mut(&request.id()) else {
            return;
        };
        let full = request.num_computed_tokens() / self.block_size;
        let hashes = request.block_hashes();
        let known = sequence.num_known..full.min(hashes.len());
        for index in known.clone() {
            for (table, pool) in sequence.tables.iter().zip(&mut self.pools) {
                if table[index] != NULL_BLOCK {
                    pool.cache(table[index], hashes[index]);
                }
            }
        }
        sequence.num_known = known.end.max(sequence.num_known);
    }

    /// Forgets the content of all blocks a request holds: what it computed is not to be trusted.
    pub fn evict(&mut self, id: RequestId) {
        for (table, pool) in self.block_tables(id).to_vec().iter().zip(&mut self.pools) {
            for &block in table.iter().filter(|block| **block != NULL_BLOCK) {
                pool.evict(block);
            }
        }
    }

    /// Tokens from its first on that a request's tables could be lengthened to hold now.
    pub fn max_num_tokens(&self, id: RequestId) -> usize {
        let held = self.num_blocks(id);
        let free = self.pools.iter().map(BlockPool::num_free_blocks).min();
        (held + free.unwrap_or(0)) * self.block_size
    }

    /// Lengthens a request's block tables to hold its first `num_tokens` tokens: whole blocks,
    /// never one more than they need. Gives back whether there was room; if not, nothing changed.
    pub fn allocate_slots(&mut self, id: RequestId, num_tokens: usize) -> bool {
        let blocks = num_tokens.div_ceil(self.block_size);
        let Some(missing) = blocks.checked_sub(self.num_blocks(id)).filter(|&n| n > 0) else {
            return true;
        };
        if self.pools.iter().any(|p| p.num_free_blocks() < missing) {
            return false;
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
    }

    /// Checks every pool, that every held block is in as many tables as it has references, that
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
