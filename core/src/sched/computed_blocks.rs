//! Which beginnings are in the cache already: found by the names of their blocks, taken over from a
//! sequence that has computed them, or brought back from the host. Decides nothing about room.

use super::block_hash::BlockHash;
use super::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use super::kv_cache_manager::KvCacheManager;
use super::kv_group::KvGroupSpec;
use super::request::Request;
use super::swap::MovedBlock;
use crate::types::RequestId;

/// Blocks of a request's beginning that hold the right content already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputedBlocks {
    /// One list a group.
    pub block_tables: Vec<Vec<BlockId>>,
    /// Tokens they cover.
    pub num_cached_tokens: usize,
}

impl KvCacheManager {
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

    /// The first `num_tokens` tokens of a sequence that has computed them, as blocks to share;
    /// `None` where a group has given back what the next token sees.
    pub fn shared_blocks(&self, id: RequestId, num_tokens: usize) -> Option<ComputedBlocks> {
        let blocks = num_tokens.div_ceil(self.block_size);
        let table = |(group, table): (&KvGroupSpec, &Vec<BlockId>)| {
            let unseen = self.num_unseen(group, num_tokens);
            let seen = table.get(unseen..blocks)?;
            if seen.contains(&NULL_BLOCK) {
                return None;
            }
            Some([&vec![NULL_BLOCK; unseen], seen].concat())
        };
        let groups = self.groups.iter().zip(self.block_tables(id));
        Some(ComputedBlocks {
            block_tables: groups.map(table).collect::<Option<_>>()?,
            num_cached_tokens: num_tokens,
        })
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

    /// Forgets the content of all blocks.
    pub fn evict_all(&mut self) {
        self.pools.iter_mut().for_each(BlockPool::evict_all);
    }

    /// Forgets the content of all blocks a request holds: what it computed is not to be trusted.
    pub fn evict(&mut self, id: RequestId) {
        for (table, pool) in self.block_tables(id).to_vec().iter().zip(&mut self.pools) {
            for &block in table.iter().filter(|block| **block != NULL_BLOCK) {
                pool.evict(block);
            }
        }
    }

    /// The blocks that hold a request's first `num_tokens` tokens, each with its place; `None` while
    /// copies to some are not known to be made, so that their content is perhaps not there yet.
    pub(super) fn held_blocks(&self, id: RequestId, num_tokens: usize) -> Option<Vec<MovedBlock>> {
        let blocks = num_tokens.div_ceil(self.block_size);
        let mut held = Vec::new();
        for (group, table) in self.block_tables(id).iter().enumerate() {
            for (index, &block) in table.iter().enumerate().take(blocks) {
                if self
                    .copies
                    .iter()
                    .any(|c| (c.group, c.dst) == (group, block))
                {
                    return None;
                }
                if block != NULL_BLOCK {
                    held.push(MovedBlock {
                        group,
                        index,
                        block,
                    });
                }
            }
        }
        Some(held)
    }

    /// Leaves out of what was found what a sequence that goes on at `position` does not see.
    pub(super) fn trim(&self, found: &mut ComputedBlocks, position: usize) {
        for (group, table) in self.groups.iter().zip(&mut found.block_tables) {
            let unseen = self.num_unseen(group, position).min(table.len());
            table[..unseen].fill(NULL_BLOCK);
        }
    }

    /// Lengthens the tables of a request to hold `num_tokens` tokens that are in host memory.
    /// Gives the new blocks, to be filled; there must be room.
    pub(super) fn restore(&mut self, id: RequestId, num_tokens: usize) -> Vec<MovedBlock> {
        let unseen = self.groups.iter().map(|g| self.num_unseen(g, num_tokens));
        let unseen: Vec<_> = unseen.collect();
        let blocks = num_tokens.div_ceil(self.block_size);
        let sequence = self
            .sequences
            .get_mut(&id)
            .expect("it shares what was found");
        let mut moved = Vec::new();
        for (group, (table, pool)) in sequence.tables.iter_mut().zip(&mut self.pools).enumerate() {
            let gone = unseen[group].max(table.len());
            table.resize(gone, NULL_BLOCK);
            let new = pool
                .allocate(blocks.saturating_sub(gone))
                .expect("there is room");
            let place = |(i, block): (usize, &BlockId)| MovedBlock {
                group,
                index: gone + i,
                block: *block,
            };
            moved.extend(new.iter().enumerate().map(place));
            table.extend(new);
        }
        moved
    }
}
