//! What the cache was good for, counted, and how full it is. Knows no clock.

use super::block_pool::BlockId;
use super::scheduler::Scheduler;

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMetrics {
    /// Tokens of requests that began.
    pub prefix_cache_queries: u64,
    /// Those of them that were found and not computed.
    pub prefix_cache_hits: u64,
    /// Preemptions whose tokens are computed again.
    pub num_preemptions_recompute: u64,
    /// Preemptions whose pages went to host memory.
    pub num_preemptions_swap: u64,
    /// Blocks copied because their sequence went on in one that others held.
    pub num_copied_blocks: u64,
}

/// Slots of the cache at one moment, over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// In blocks that somebody holds; a block that several share counts once.
    pub allocated_slots: usize,
    /// Of those, slots after the last token of a sequence: fewer than a block a sequence and group.
    pub unused_slots: usize,
}

impl Scheduler {
    /// How full the cache is.
    pub fn kv_usage(&self) -> KvUsage {
        let block_size = self.config.block_size;
        let unused = self.running.iter().map(|id| {
            let tables = self.kv.block_tables(*id);
            let slots = |table: &Vec<BlockId>| table.len() * block_size;
            let with_slots = self.requests[id].num_tokens_with_slots();
            tables
                .iter()
                .map(|table| slots(table) - with_slots)
                .sum::<usize>()
        });
        KvUsage {
            unused_slots: unused.sum(),
            allocated_slots: block_size * (self.kv.num_usable_blocks() - self.kv.num_free_blocks()),
        }
    }

    /// Slots that requests have reserved, whether they use them or not; `None` where requests hold
    /// the blocks of their tokens and no more.
    pub fn num_reserved_slots(&self) -> Option<usize> {
        self.reservations.num_slots()
    }
}
