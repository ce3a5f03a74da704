//! Preempted requests whose pages wait in host memory instead of being computed again: which, how
//! much they take, and which is predicted to be cheaper. Knows no page's content and moves nothing.

use super::block_pool::BlockId;
use super::config::{PreemptionMode, SchedulerConfig};
use super::handed_out::HandedOut;
use super::request::Request;
use crate::types::RequestId;
use std::collections::BTreeMap;
use std::fmt;

/// A page that moves between the device and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedBlock {
    /// KV group.
    pub group: usize,
    /// Which of the sequence's blocks it is.
    pub index: usize,
    /// Where it lies on the device.
    pub block: BlockId,
}

/// Pages of one request that move in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTransfer {
    /// Counts the transfers to the host; on the way back that of the way there.
    pub number: u64,
    /// Whose.
    pub request_id: RequestId,
    /// Which. On the way back perhaps fewer, or none: others were found on the device.
    pub blocks: Vec<MovedBlock>,
}

/// What bringing a preempted request back is predicted to cost, in any unit of time.
pub trait PreemptionCost: fmt::Debug {
    /// Computing so many tokens again.
    fn recompute(&self, num_tokens: usize) -> f64;
    /// Moving so many bytes to the host and back.
    fn swap(&self, bytes: u64) -> f64;
}

/// Costs proportional to tokens and to bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearPreemptionCost {
    /// Of computing a token.
    pub seconds_per_token: f64,
    /// Of moving a byte, one way.
    pub seconds_per_byte: f64,
}

impl PreemptionCost for LinearPreemptionCost {
    fn recompute(&self, num_tokens: usize) -> f64 {
        self.seconds_per_token * num_tokens as f64
    }

    fn swap(&self, bytes: u64) -> f64 {
        2.0 * self.seconds_per_byte * bytes as f64
    }
}

/// Pages of one request in host memory.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Of its transfer.
    number: u64,
    /// Tokens computed when it was preempted.
    num_tokens: usize,
    bytes: u64,
    /// It is on its way back; the host keeps its pages until the output of a step with them came.
    returning: bool,
}

/// What is in host memory, by the scheduler's books.
#[derive(Debug)]
pub(super) struct SwapSpace {
    mode: PreemptionMode,
    max_bytes: u64,
    /// Bytes a block, in all layers of each group; empty where pages cannot be moved.
    block_bytes: Vec<u64>,
    cost: Option<Box<dyn PreemptionCost>>,
    held: BTreeMap<RequestId, Held>,
    outs: HandedOut<BlockTransfer>,
    ins: HandedOut<BlockTransfer>,
    /// Transfers whose pages the host need not keep.
    drops: HandedOut<u64>,
    next_number: u64,
}

/// What a step moves.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) outs: Vec<BlockTransfer>,
    pub(super) ins: Vec<BlockTransfer>,
    pub(super) drops: Vec<u64>,
}

impl SwapSpace {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        Self {
            mode: config.preemption_mode,
            max_bytes: config.swap_space_bytes,
            block_bytes: Vec::new(),
            cost: None,
            held: BTreeMap::new(),
            outs: HandedOut::default(),
            ins: HandedOut::default(),
            drops: HandedOut::default(),
            next_number: 0,
        }
    }

    pub(super) fn set_block_bytes(&mut self, block_bytes: Vec<u64>) {
        self.block_bytes = block_bytes;
    }

    pub(super) fn set_cost(&mut self, cost: Box<dyn PreemptionCost>) {
        self.cost = Some(cost);
    }

    /// Decides about a request that gives up these blocks, and notes its transfer where it goes to
    /// the host; `None` are blocks whose content is not there yet. Gives back whether it does.
    ///
    /// What steps in flight compute of it is computed again when it is back, so that nothing is wrong
    /// with its pages in host memory where one of those steps fails.
    pub(super) fn swap_out(&mut self, request: &Request, blocks: Option<Vec<MovedBlock>>) -> bool {
        let request_id = request.id();
        if let Some(held) = self.held.get_mut(&request_id) {
            // The output of its return never came, so the host has it all, whatever the device did.
            held.returning = false;
            self.ins
                .retain(|transfer| transfer.request_id != request_id);
            return true;
        }
        let Some(blocks) = blocks else {
            return false;
        };
        let num_tokens = request.num_computed_tokens();
        let bytes = blocks.iter().map(|moved| self.block_bytes.get(moved.group));
        let Some(bytes) = bytes.sum::<Option<u64>>().filter(|bytes| *bytes > 0) else {
            return false;
        };
        let cheaper = match (self.mode, &self.cost) {
            (PreemptionMode::Recompute, _) | (PreemptionMode::Auto, None) => false,
            (PreemptionMode::Swap, _) => true,
            (PreemptionMode::Auto, Some(cost)) => cost.swap(bytes) < cost.recompute(num_tokens),
        };
        if !cheaper || bytes > self.max_bytes.saturating_sub(self.bytes()) {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        let held = Held {
            number,
            num_tokens,
            bytes,
            returning: false,
        };
        self.held.insert(request_id, held);
        self.outs.push(BlockTransfer {
            number,
            request_id,
            blocks,
        });
        true
    }

    /// Tokens of a preempted request whose pages are in host memory.
    pub(super) fn num_tokens(&self, id: RequestId) -> Option<usize> {
        let held = self.held.get(&id).filter(|held| !held.returning)?;
        Some(held.num_tokens)
    }

    /// A request comes back, with these blocks from the host.
    pub(super) fn swap_in(&mut self, request_id: RequestId, blocks: Vec<MovedBlock>) {
        if let Some(held) = self.held.get_mut(&request_id) {
            held.returning = true;
            self.ins.push(BlockTransfer {
                number: held.number,
                request_id,
                blocks,
            });
        }
    }

    /// What `step` is to move.
    pub(super) fn hand_out(&mut self, step: u64) -> Transfers {
        Transfers {
            outs: self.outs.hand_out(step),
            ins: self.ins.hand_out(step),
            drops: self.drops.hand_out(step),
        }
    }

    /// The transfers of `step` were made.
    pub(super) fn confirm(&mut self, step: u64) {
        self.outs.confirm(step);
        self.drops.confirm(step);
        for transfer in self.ins.confirm(step) {
            self.held.remove(&transfer.request_id);
            self.drops.push(transfer.number);
        }
    }

    /// Steps in flight were taken back.
    pub(super) fn take_back(&mut self) {
        self.outs.take_back();
        self.ins.take_back();
        self.drops.take_back();
    }

    /// A request is over. Gives back whether the host has anything of it.
    pub(super) fn forget(&mut self, id: RequestId) -> bool {
        self.outs.retain(|transfer| transfer.request_id != id);
        self.ins.retain(|transfer| transfer.request_id != id);
        let held = self.held.remove(&id);
        held.inspect(|held| self.drops.push(held.number)).is_some()
    }

    /// The host has nothing any more.
    pub(super) fn forget_all(&mut self) {
        let held = std::mem::take(&mut self.held);
        for id in held.into_keys().collect::<Vec<_>>() {
            self.forget(id);
        }
        self.drops = HandedOut::default();
    }

    /// Bytes in host memory, those on their way included.
    pub(super) fn bytes(&self) -> u64 {
        self.held.values().map(|held| held.bytes).sum()
    }

    /// Checks that the books are kept within their bound, and that what returns is of a request
    /// that runs and all else of one that does not.
    pub(super) fn check_integrity(&self, runs: impl Fn(RequestId) -> bool) -> Result<(), String> {
        if self.bytes() > self.max_bytes {
            return Err(format!("{} bytes are swapped out", self.bytes()));
        }
        for (id, held) in &self.held {
            let returns = self.ins.iter().filter(|t| t.request_id == *id).count();
            if returns != usize::from(held.returning) || runs(*id) != held.returning {
                return Err(format!("{id} is in host memory, but {held:?}"));
            }
        }
        let transfers = self.outs.iter().chain(self.ins.iter());
        match transfers
            .clone()
            .find(|t| !self.held.contains_key(&t.request_id))
        {
            Some(lost) => Err(format!("{} moves, but has nothing", lost.request_id)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SamplingParams;

    fn request(id: u64, computed: usize) -> Request {
        let params = SamplingParams::default();
        let mut request = Request::new(RequestId(id), vec![1; 100], params, &[]);
        request.num_computed_tokens = computed;
        request
    }

    fn blocks(n: u32) -> Option<Vec<MovedBlock>> {
        let moved = |block| MovedBlock {
            group: 0,
            index: block as usize,
            block,
        };
        Some((0..n).map(moved).collect())
    }

    fn space(preemption_mode: PreemptionMode) -> SwapSpace {
        let mut space = SwapSpace::new(&SchedulerConfig {
            preemption_mode,
            swap_space_bytes: 70,
            ..SchedulerConfig::default()
        });
        space.set_block_bytes(vec![10]);
        space
    }

    #[test]
    fn the_host_holds_pages_until_they_are_back() {
        let mut space = space(PreemptionMode::Swap);
        let (a, b) = (request(0, 50), request(1, 60));
        assert!(space.swap_out(&a, blocks(4)));
        assert!(!space.swap_out(&b, blocks(4)), "70 bytes do not hold 80");
        assert!(!space.swap_out(&b, None), "what is not there");
        assert!(!space.swap_out(&b, blocks(0)));
        assert!(space.swap_out(&b, blocks(3)));
        assert_eq!(space.hand_out(0).outs.len(), 2);
        assert_eq!(space.hand_out(1).outs.len(), 0);
        space.confirm(0);
        assert_eq!(space.num_tokens(a.id()), Some(50));
        space.swap_in(a.id(), Vec::new());
        space.check_integrity(|id| id == a.id()).unwrap();
        assert_eq!((space.num_tokens(a.id()), space.bytes()), (None, 70));
        assert_eq!(space.hand_out(2).ins.len(), 1);
        // The output of the step that is to bring it back does not come before it gives way again:
        // the host keeps what it has.
        assert!(space.swap_out(&a, blocks(4)));
        space.check_integrity(|_| false).unwrap();
        space.confirm(2);
        assert_eq!(space.num_tokens(a.id()), Some(50));
        space.swap_in(a.id(), Vec::new());
        assert_eq!(space.hand_out(3).ins.len(), 1);
        space.take_back();
        let Transfers { outs, ins, drops } = space.hand_out(3);
        assert_eq!((outs.len(), ins[0].number, drops.len()), (0, 0, 0));
        space.confirm(3);
        assert_eq!(space.bytes(), 30);
        assert!(space.forget(b.id()) && !space.forget(a.id()));
        assert_eq!(space.hand_out(4).drops, [0, 1]);
        space.check_integrity(|_| false).unwrap();
    }

    #[test]
    fn nothing_is_swapped_where_nobody_says_it_is_cheaper_or_what_it_takes() {
        let mut auto = space(PreemptionMode::Auto);
        assert!(!auto.swap_out(&request(0, 50), blocks(4)));
        auto.set_block_bytes(Vec::new());
        auto.mode = PreemptionMode::Swap;
        assert!(!auto.swap_out(&request(0, 50), blocks(4)));
        assert_eq!(auto.bytes(), 0);
    }
}
