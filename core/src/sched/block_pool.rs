//! KV blocks by number: who holds how many references, which content each has, and which are free,
//! least recently used first. Knows nothing of sequences, nor of the memory behind a block.

use super::block_hash::BlockHash;
use std::collections::HashMap;

/// Number of a KV block.
pub type BlockId = u32;

/// Stands in block tables where a position needs no memory; never handed out.
pub const NULL_BLOCK: BlockId = 0;

/// End of the free list, and "not in it".
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    ref_cnt: u32,
    prev: u32,
    next: u32,
    /// What it holds, where that is a full block that others may share. A free block keeps it until
    /// the block is handed out again.
    hash: Option<BlockHash>,
}

/// The blocks of one KV group.
///
/// Free blocks form a doubly linked list through `prev` and `next`, taken at the head: blocks with
/// a known content are freed at the tail, so that what was used last stays longest, those without
/// at the head, as nobody can find them again. A block found by its content leaves the middle in
/// constant time.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Every block with a known content; of several with the same, the first.
    cached: HashMap<BlockHash, BlockId>,
    head: u32,
    tail: u32,
    num_free: usize,
}

impl BlockPool {
    /// A pool of `num_blocks` blocks; all but block 0, the null block, are free.
    pub fn new(num_blocks: u32) -> Self {
        let blocks = vec![
            Block {
                ref_cnt: 0,
                prev: NONE,
                next: NONE,
                hash: None,
            };
            num_blocks as usize
        ];
        let mut pool = Self {
            blocks,
            cached: HashMap::new(),
            head: NONE,
            tail: NONE,
            num_free: 0,
        };
        for id in 1..num_blocks {
            pool.push_tail(id);
        }
        pool
    }

    /// Blocks that can be handed out in all.
    pub fn num_usable_blocks(&self) -> usize {
        self.blocks.len().saturating_sub(1)
    }

    /// Blocks that can be handed out now.
    pub fn num_free_blocks(&self) -> usize {
        self.num_free
    }

    /// References held to a block.
    pub fn ref_cnt(&self, id: BlockId) -> u32 {
        self.blocks[id as usize].ref_cnt
    }

    /// What a block is known to hold.
    pub fn hash(&self, id: BlockId) -> Option<BlockHash> {
        self.blocks[id as usize].hash
    }

    /// The block with this content, held or free.
    pub fn cached(&self, hash: &BlockHash) -> Option<BlockId> {
        self.cached.get(hash).copied()
    }

    /// Blocks with a known content.
    pub fn num_cached_blocks(&self) -> usize {
        self.cached.len()
    }

    /// Makes a block's content known, so that others may share it. It must be written, whole, and
    /// stay so while it is known. Nothing happens where another block has that content already.
    pub fn cache(&mut self, id: BlockId, hash: BlockHash) {
        assert_ne!(id, NULL_BLOCK, "the null block holds nothing");
        if self.blocks[id as usize].hash.is_none() && !self.cached.contains_key(&hash) {
            self.cached.insert(hash, id);
            self.blocks[id as usize].hash = Some(hash);
        }
    }

    /// Forgets what a block holds: nobody finds it again. Who holds it goes on holding it.
    pub fn evict(&mut self, id: BlockId) {
        if let Some(hash) = self.blocks[id as usize].hash.take() {
            self.cached.remove(&hash);
        }
    }

    /// Forgets what all blocks hold.
    pub fn evict_all(&mut self) {
        self.cached.clear();
        self.blocks.iter_mut().for_each(|block| block.hash = None);
    }

    /// Takes `n` blocks, each with one reference, least recently used first; all or none. What they
    /// held is forgotten.
    pub fn allocate(&mut self, n: usize) -> Option<Vec<BlockId>> {
        if n > self.num_free {
            return None;
        }
        let mut ids = Vec::with_capacity(n);
        for _ in 0..n {
            let id = self.head;
            self.unlink_free(id);
            self.evict(id);
            self.blocks[id as usize].ref_cnt = 1;
            ids.push(id);
        }
        Some(ids)
    }

    /// One more reference to a block whose content is wanted again, free or not.
    pub fn touch(&mut self, id: BlockId) {
        assert_ne!(id, NULL_BLOCK, "the null block is not counted");
        if self.blocks[id as usize].ref_cnt == 0 {
            self.unlink_free(id);
        }
        self.blocks[id as usize].ref_cnt += 1;
    }

    /// Gives back one reference to each block, in this order; null blocks are passed over.
    ///
    /// # Panics
    /// When a block has no reference: a double free, which would hand one block to two sequences.
    pub fn free(&mut self, ids: impl IntoIterator<Item = BlockId>) {
        for id in ids {
            if id == NULL_BLOCK {
                continue;
            }
            let block = &mut self.blocks[id as usize];
            block.ref_cnt = block.ref_cnt.checked_sub(1).expect("block freed twice");
            if block.ref_cnt == 0 {
                match block.hash {
                    Some(_) => self.push_tail(id),
                    None => self.push_head(id),
                }
            }
        }
    }

    /// Walks everything: the free list is whole in both directions and holds exactly the blocks
    /// without references, and blocks are found by what they hold, and by nothing else.
    ///
    /// # Errors
    /// A sentence naming the first block that contradicts this.
    pub fn check_integrity(&self) -> Result<(), String> {
        let mut seen = vec![false; self.blocks.len()];
        let (mut prev, mut id, mut count) = (NONE, self.head, 0);
        while id != NONE {
            let block = self
                .blocks
                .get(id as usize)
                .ok_or_else(|| format!("free list leads to block {id}, which does not exist"))?;
            if std::mem::replace(&mut seen[id as usize], true) {
                return Err(format!("block {id} is in the free list twice"));
            }
            if block.prev != prev {
                return Err(format!("block {id} has a wrong predecessor"));
            }
            if block.ref_cnt != 0 {
                return Err(format!("free block {id} has {} references", block.ref_cnt));
            }
            count += 1;
            prev = id;
            id = block.next;
        }
        if self.tail != prev {
            return Err(format!(
                "the free list ends at {prev}, not at {}",
                self.tail
            ));
        }
        if count != self.num_free {
            return Err(format!(
                "{count} blocks are free, {} counted",
                self.num_free
            ));
        }
        if seen.first() == Some(&true) {
            return Err("the null block is free".into());
        }
        let hashes = self.blocks.iter().filter(|block| block.hash.is_some());
        if hashes.count() != self.cached.len() {
            return Err(format!("{} contents are known", self.cached.len()));
        }
        for (hash, &id) in &self.cached {
            if id == NULL_BLOCK || self.hash(id) != Some(*hash) {
                return Err(format!("block {id} is found by what it does not hold"));
            }
        }
        match (1..self.blocks.len()).find(|&i| !seen[i] && self.blocks[i].ref_cnt == 0) {
            Some(lost) => Err(format!("block {lost} is neither free nor held")),
            None => Ok(()),
        }
    }

    fn push_tail(&mut self, id: BlockId) {
        let tail = self.tail;
        let block = &mut self.blocks[id as usize];
        (block.prev, block.next) = (tail, NONE);
        match tail {
            NONE => self.head = id,
            last => self.blocks[last as usize].next = id,
        }
        self.tail = id;
        self.num_free += 1;
    }

    fn push_head(&mut self, id: BlockId) {
        let head = self.head;
        let block = &mut self.blocks[id as usize];
        (block.prev, block.next) = (NONE, head);
        match head {
            NONE => self.tail = id,
            first => self.blocks[first as usize].prev = id,
        }
        self.head = id;
        self.num_free += 1;
    }

    fn unlink_free(&mut self, id: BlockId) {
        let Block { prev, next, .. } = self.blocks[id as usize];
        match prev {
            NONE => self.head = next,
            p => self.blocks[p as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            n => self.blocks[n as usize].prev = prev,
        }
        let block = &mut self.blocks[id as usize];
        (block.prev, block.next) = (NONE, NONE);
        self.num_free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(n: u32) -> BlockHash {
        BlockHash::root("", None).chain(&[n])
    }

    #[test]
    fn what_nobody_finds_goes_first_then_the_least_recently_used() {
        let mut pool = BlockPool::new(6);
        let first = pool.allocate(5).unwrap();
        assert_eq!(first, [1, 2, 3, 4, 5]);
        assert_eq!(pool.allocate(1), None);
        for id in [1, 3, 4] {
            pool.cache(id, content(id));
        }
        pool.free([3, 1]);
        pool.free([4]);
        pool.free([2, 5]);
        assert_eq!(pool.allocate(3).unwrap(), [5, 2, 3]);
        assert_eq!(pool.cached(&content(3)), None);
        assert_eq!(pool.cached(&content(1)), Some(1));
        assert_eq!(pool.num_cached_blocks(), 2);
        pool.check_integrity().unwrap();
    }

    #[test]
    fn a_content_is_known_once_and_until_its_block_is_handed_out() {
        let mut pool = BlockPool::new(3);
        pool.allocate(2).unwrap();
        pool.cache(1, content(7));
        pool.cache(2, content(7));
        pool.cache(1, content(8));
        assert_eq!((pool.hash(1), pool.hash(2)), (Some(content(7)), None));
        pool.free([1]);
        let found = pool.cached(&content(7)).unwrap();
        pool.touch(found);
        assert_eq!((found, pool.num_free_blocks()), (1, 0));
        pool.evict(1);
        assert_eq!(pool.cached(&content(7)), None);
        pool.check_integrity().unwrap();
        pool.cache(2, content(7));
        assert_eq!(pool.cached(&content(7)), Some(2));
    }

    #[test]
    fn a_touched_block_leaves_the_free_list() {
        let mut pool = BlockPool::new(4);
        for id in pool.allocate(3).unwrap() {
            pool.cache(id, content(id));
            pool.free([id]);
        }
        pool.touch(2);
        pool.touch(2);
        pool.check_integrity().unwrap();
        assert_eq!((pool.num_free_blocks(), pool.ref_cnt(2)), (2, 2));
        pool.free([2, NULL_BLOCK]);
        assert_eq!(pool.num_free_blocks(), 2);
        pool.free([2]);
        assert_eq!(pool.allocate(3).unwrap(), [1, 3, 2]);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_caught() {
        BlockPool::new(3).free([1]);
    }

    proptest! {
        #[test]
        fn references_add_up(ops in prop::collection::vec((0..5u8, any::<prop::sample::Index>()), 1..200)) {
            let mut pool = BlockPool::new(9);
            let mut held: Vec<BlockId> = Vec::new();
            for (op, index) in ops {
                match op {
                    0 => {
                        let n = index.index(4);
                        let free = pool.num_free_blocks();
                        match pool.allocate(n) {
                            Some(ids) => held.extend(ids),
                            None => prop_assert!(n > free),
                        }
                    }
                    1 if !held.is_empty() => pool.free([held.swap_remove(index.index(held.len()))]),
                    2 if !held.is_empty() => {
                        pool.cache(held[index.index(held.len())], content(index.index(6) as u32));
                    }
                    3 => pool.evict(1 + index.index(8) as u32),
                    _ => {
                        let id = 1 + u32::try_from(index.index(8)).unwrap();
                        pool.touch(id);
                        held.push(id);
                    }
                }
                pool.check_integrity().map_err(TestCaseError::fail)?;
                for id in 1..9 {
                    let count = held.iter().filter(|&&h| h == id).count();
                    prop_assert_eq!(pool.ref_cnt(id) as usize, count);
                }
            }
            pool.free(held);
            prop_assert_eq!(pool.num_free_blocks(), 8);
        }
    }
}
