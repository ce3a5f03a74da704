//! Which blocks hold which sequence. Knows sequences by id and length only, and blocks by number.

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
    tables: BTreeMap<RequestId, Vec<Vec<BlockId>>>,
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
            tables: BTreeMap::new(),
        }
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

    /// Whether there is room for a whole sequence of `num_tokens` tokens, computed in chunks as
    /// long as may be; where that takes more than there is, everything must be free.
    pub fn has_room_for(&self, num_tokens: usize) -> bool {
        self.groups.iter().zip(&self.pools).all(|(group, pool)| {
            let needed = group.blocks_for(num_tokens, self.chunk, self.block_size);
            needed.min(pool.num_usable_blocks()) <= pool.num_free_blocks()
        })
    }

    /// The longest beginning of `request` found in the cache. Nothing is shared between requests
    /// yet, so it is empty: every request computes all its tokens.
    pub fn get_computed_blocks(&self, _request: &Request) -> ComputedBlocks {
        ComputedBlocks {
            block_tables: vec![Vec::new(); self.groups.len()],
            num_cached_tokens: 0,
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
        let tables = self
            .tables
            .entry(id)
            .or_insert_with(|| vec![Vec::new(); self.groups.len()]);
        for (table, pool) in tables.iter_mut().zip(&mut self.pools) {
            let new = pool.allocate(missing);
            table.extend(new.expect("every pool has so many free blocks"));
        }
        true
    }

    /// Frees the blocks that no query from `position` on sees, and leaves null blocks in their
    /// place. No step that computes an earlier position may come after this.
    pub fn free_unseen(&mut self, id: RequestId, position: usize) {
        let Some(tables) = self.tables.get_mut(&id) else {
            return;
        };
        let groups = self.groups.iter().zip(&mut self.pools);
        for ((group, pool), table) in groups.zip(tables) {
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
        self.tables.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Gives a request's blocks back, its last ones first, so that a beginning outlives its end.
    pub fn free(&mut self, id: RequestId) {
        let tables = self.tables.remove(&id).unwrap_or_default();
        for (table, pool) in tables.into_iter().zip(&mut self.pools) {
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
        for (id, tables) in &self.tables {
            let Range { start, end } = sequences
                .get(id)
                .ok_or_else(|| format!("{id} is not running, but holds blocks"))?;
            for ((table, group), counts) in tables.iter().zip(&self.groups).zip(&mut counts) {
                let needed = end.div_ceil(self.block_size);
                if table.len() != needed {
                    return Err(format!(
                        "{id} has a table of {} blocks for {end} tokens, which need {needed}",
                        table.len()
                    ));
                }
                let unseen = (group.first_seen(*start) / self.block_size).min(needed);
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
        self.tables
            .get(&id)
            .and_then(|tables| tables.first())
            .map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seven usable blocks of 16 in each group.
    fn manager(windows: &[Option<usize>]) -> KvCacheManager {
        let groups = windows.iter().map(|&window| KvGroupSpec {
            layers: vec![0],
            window,
        });
        let config = SchedulerConfig {
            block_size: 16,
            num_blocks: 8,
            ..SchedulerConfig::default()
        };
        KvCacheManager::new(groups.collect(), &config)
    }

    #[test]
    fn blocks_come_when_needed_and_not_before() {
        let mut kv = manager(&[None]);
        let id = RequestId(3);
        for (num_tokens, blocks) in [(1, 1), (16, 1), (17, 2), (20, 2), (5, 2), (48, 3)] {
            assert!(kv.allocate_slots(id, num_tokens));
            assert_eq!(kv.block_tables(id)[0].len(), blocks, "{num_tokens} tokens");
        }
        assert!(!kv.allocate_slots(id, 8 * 16));
        assert_eq!(kv.block_tables(id)[0].len(), 3);
        assert_eq!(kv.max_num_tokens(id), 7 * 16);
        kv.check_integrity(&BTreeMap::from([(id, 0..48)])).unwrap();
        assert!(kv.check_integrity(&BTreeMap::from([(id, 0..32)])).is_err());
        kv.free(id);
        assert_eq!(kv.num_free_blocks(), 7);
    }

    #[test]
    fn groups_have_pools_of_their_own() {
        let mut kv = manager(&[None, Some(20)]);
        let (a, b) = (RequestId(0), RequestId(1));
        assert!(kv.allocate_slots(a, 100));
        assert_eq!(kv.num_free_blocks(), 0);
        // The query at 60 sees the keys from 41 on: blocks 0 and 1 of the window go.
        kv.free_unseen(a, 60);
        assert_eq!(kv.num_free_blocks(), 2);
        let tables = kv.block_tables(a);
        assert!(!tables[0].contains(&NULL_BLOCK));
        assert_eq!(tables[1][..2], [NULL_BLOCK; 2]);
        assert!(!tables[1][2..].contains(&NULL_BLOCK));
        kv.check_integrity(&BTreeMap::from([(a, 60..100)])).unwrap();
        for wrong in [40..100, 80..100] {
            assert!(kv.check_integrity(&BTreeMap::from([(a, wrong)])).is_err());
        }
        assert!(!kv.allocate_slots(b, 1), "the other group has none left");
        assert!(kv.block_tables(b).is_empty());
        kv.free_unseen(a, 60);
        kv.free_unseen(a, 99);
        assert_eq!(kv.num_free_blocks(), 5);
        kv.free(a);
        assert_eq!(kv.num_free_blocks(), 14);
    }

    #[test]
    fn a_window_fits_where_the_whole_does_not() {
        let kv = manager(&[Some(40)]);
        assert_eq!(kv.never_fits(100_000), None);
        assert!(kv.has_room_for(100_000), "alone");
        let kv = manager(&[Some(40), None]);
        assert_eq!(kv.never_fits(7 * 16), None);
        assert_eq!(kv.never_fits(7 * 16 + 1), Some((8, 7)));
        let kv = manager(&[Some(7 * 16)]);
        assert_eq!(kv.never_fits(7 * 16), None, "never longer than its window");
        assert_eq!(kv.never_fits(7 * 16 + 1), Some((8, 7)));
    }
}
