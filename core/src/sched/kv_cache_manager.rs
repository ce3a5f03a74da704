//! Which blocks hold which sequence. Knows sequences by id and length only, and blocks by number.

use super::block_pool::{BlockId, BlockPool};
use super::request::Request;
use crate::types::RequestId;
use std::collections::{BTreeMap, BTreeSet};

/// Layers that keep their keys and values the same way and therefore share a block table. All
/// groups draw on one pool of block numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// The layers, ascending.
    pub layers: Vec<usize>,
}

impl KvGroupSpec {
    /// The one group of a model whose layers all attend to everything.
    pub fn full_attention(num_layers: usize) -> Vec<Self> {
        vec![Self {
            layers: (0..num_layers).collect(),
        }]
    }
}

/// Blocks of a request's beginning that hold the right content already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputedBlocks {
    /// One list a group.
    pub block_tables: Vec<Vec<BlockId>>,
    /// Tokens they cover.
    pub num_cached_tokens: usize,
}

/// Block tables of every sequence that has any.
#[derive(Debug)]
pub struct KvCacheManager {
    pool: BlockPool,
    block_size: usize,
    groups: Vec<KvGroupSpec>,
    tables: BTreeMap<RequestId, Vec<Vec<BlockId>>>,
}

impl KvCacheManager {
    /// A manager of `num_blocks` blocks (block 0 is the null block) of `block_size` tokens.
    pub fn new(groups: Vec<KvGroupSpec>, block_size: usize, num_blocks: u32) -> Self {
        Self {
            pool: BlockPool::new(num_blocks),
            block_size,
            groups,
            tables: BTreeMap::new(),
        }
    }

    /// Blocks that `num_tokens` tokens need, over all groups.
    pub fn blocks_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.block_size) * self.groups.len()
    }

    /// Blocks that can be handed out in all.
    pub fn num_usable_blocks(&self) -> usize {
        self.pool.num_usable_blocks()
    }

    /// Blocks that can be handed out now.
    pub fn num_free_blocks(&self) -> usize {
        self.pool.num_free_blocks()
    }

    /// The longest beginning of `request` found in the cache. Nothing is shared between requests
    /// yet, so it is empty: every request computes all its tokens.
    pub fn get_computed_blocks(&self, _request: &Request) -> ComputedBlocks {
        ComputedBlocks {
            block_tables: vec![Vec::new(); self.groups.len()],
            num_cached_tokens: 0,
        }
    }

    /// Lengthens a request's block tables to hold its first `num_tokens` tokens: whole blocks,
    /// never one more than they need. Gives back whether there was room; if not, nothing changed.
    pub fn allocate_slots(&mut self, id: RequestId, num_tokens: usize) -> bool {
        let per_group = num_tokens.div_ceil(self.block_size);
        let held = self.tables.get(&id).map_or(0, |tables| tables[0].len());
        let Some(missing) = per_group.checked_sub(held).filter(|&n| n > 0) else {
            return true;
        };
        let Some(blocks) = self.pool.allocate(missing * self.groups.len()) else {
            return false;
        };
        let tables = self
            .tables
            .entry(id)
            .or_insert_with(|| vec![Vec::new(); self.groups.len()]);
        for (table, new) in tables.iter_mut().zip(blocks.chunks(missing)) {
            table.extend_from_slice(new);
        }
        true
    }

    /// A request's block tables, one a group; empty before the first allocation.
    pub fn block_tables(&self, id: RequestId) -> &[Vec<BlockId>] {
        self.tables.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Gives a request's blocks back, its last ones first, so that a beginning outlives its end.
    pub fn free(&mut self, id: RequestId) {
        for table in self.tables.remove(&id).unwrap_or_default() {
            self.pool.free(table.into_iter().rev());
        }
    }

    /// Checks the pool, that every held block is in as many tables as it has references, and that
    /// tables are exactly as long as `lengths` asks: at most `block_size − 1` slots unused.
    ///
    /// `lengths` names each running request with the tokens its tables must hold.
    ///
    /// # Errors
    /// A sentence naming the first contradiction.
    pub fn check_integrity(&self, lengths: &BTreeMap<RequestId, usize>) -> Result<(), String> {
        self.pool.check_integrity()?;
        let mut counts: BTreeMap<BlockId, u32> = BTreeMap::new();
        for (id, tables) in &self.tables {
            let num_tokens = lengths
                .get(id)
                .ok_or_else(|| format!("{id} is not running, but holds blocks"))?;
            for table in tables {
                let needed = num_tokens.div_ceil(self.block_size);
                if table.len() != needed {
                    return Err(format!(
                        "{id} holds {} blocks for {num_tokens} tokens, which need {needed}",
                        table.len()
                    ));
                }
                if table.iter().collect::<BTreeSet<_>>().len() != table.len() {
                    return Err(format!("{id} holds a block twice"));
                }
                for &block in table {
                    *counts.entry(block).or_default() += 1;
                }
            }
        }
        for (&block, &count) in &counts {
            if self.pool.ref_cnt(block) != count {
                let refs = self.pool.ref_cnt(block);
                return Err(format!("block {block}: {count} holders, {refs} references"));
            }
        }
        if counts.len() + self.pool.num_free_blocks() != self.pool.num_usable_blocks() {
            return Err("a block is referenced by no table".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(num_groups: usize) -> KvCacheManager {
        let group = KvGroupSpec { layers: vec![0] };
        KvCacheManager::new(vec![group; num_groups], 16, 8)
    }

    #[test]
    fn blocks_come_when_needed_and_not_before() {
        let mut kv = manager(1);
        let id = RequestId(3);
        for (num_tokens, blocks) in [(1, 1), (16, 1), (17, 2), (20, 2), (5, 2), (48, 3)] {
            assert!(kv.allocate_slots(id, num_tokens));
            assert_eq!(kv.block_tables(id)[0].len(), blocks, "{num_tokens} tokens");
        }
        assert!(!kv.allocate_slots(id, 8 * 16));
        assert_eq!(kv.block_tables(id)[0].len(), 3);
        kv.check_integrity(&BTreeMap::from([(id, 48)])).unwrap();
        assert!(kv.check_integrity(&BTreeMap::from([(id, 32)])).is_err());
        kv.free(id);
        assert_eq!(kv.num_free_blocks(), 7);
    }

    #[test]
    fn groups_share_the_pool_and_nothing_else() {
        let mut kv = manager(2);
        assert!(kv.allocate_slots(RequestId(0), 33));
        assert_eq!(kv.num_free_blocks(), 1);
        assert!(!kv.allocate_slots(RequestId(1), 1), "two groups need two");
        assert!(kv.block_tables(RequestId(1)).is_empty());
        kv.check_integrity(&BTreeMap::from([(RequestId(0), 40)]))
            .unwrap();
    }
}
