//! What the cache was good for, counted, and how full it is. Knows no clock.

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
