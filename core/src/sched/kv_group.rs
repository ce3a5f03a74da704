//! Groups of layers that keep keys and values the same way: what a sequence needs of each, and how
//! many blocks each has. Knows no sequence and no block by number.
//!
//! A group has a pool of blocks of its own, and so its layers have as many pages as it needs. The
//! other way, one pool whose blocks any group may take, gives every block a page in as many layers
//! as the smallest group has: groups must then be of equal size, which a model with 27 layers of one
//! kind and one of the other has not, and every step carries a block table for each. What a window
//! holds is bounded, so that a pool of its own wastes little: the windows of sequences that are not
//! there.

use super::config::SchedulerConfig;
use crate::config::ModelConfig;

/// Layers that keep their keys and values the same way and therefore share a block table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroupSpec {
    /// The layers, ascending.
    pub layers: Vec<usize>,
    /// Tokens a query sees, its own included; `None` for all before it. At least 1.
    pub window: Option<usize>,
}

impl KvGroupSpec {
    /// The one group of a model whose layers all attend to everything.
    pub fn full_attention(num_layers: usize) -> Vec<Self> {
        vec![Self {
            layers: (0..num_layers).collect(),
            window: None,
        }]
    }

    /// The groups of a model, in the order of their first layers.
    pub fn of(model: &ModelConfig) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for layer in 0..model.layers.len() {
            let window = model.window(layer);
            match groups.iter_mut().find(|group| group.window == window) {
                Some(group) => group.layers.push(layer),
                None => groups.push(Self {
                    layers: vec![layer],
                    window,
                }),
            }
        }
        groups
    }

    /// First position that a query at `position` sees.
    pub fn first_seen(&self, position: usize) -> usize {
        match self.window {
            None => 0,
            Some(window) => (position + 1).saturating_sub(window),
        }
    }

    /// Most blocks that a sequence of `num_tokens` tokens ever holds while a step computes at most
    /// `chunk` of them.
    pub fn blocks_for(&self, num_tokens: usize, chunk: usize, block_size: usize) -> usize {
        let all = num_tokens.div_ceil(block_size);
        match self.window {
            None => all,
            Some(window) => all.min(blocks_across(window.saturating_add(chunk) - 1, block_size)),
        }
    }

    /// Blocks the group has under these limits, the null block among them: `num_blocks`, or fewer
    /// where the windows of `max_num_seqs` sequences and the tokens of the steps in flight take
    /// fewer.
    pub fn num_blocks(&self, config: &SchedulerConfig) -> usize {
        let Some(window) = self.window else {
            return config.num_blocks;
        };
        // A sequence's chunk begins and ends inside a block, its window begins inside one.
        let each = blocks_across(window, config.block_size).saturating_add(1);
        each.saturating_mul(config.max_num_seqs)
            .saturating_add(config.blocks_for(config.max_num_tokens_in_flight()))
            .saturating_add(1)
            .min(config.num_blocks)
    }
}

/// Most blocks that so many tokens in a row lie in, wherever they begin.
fn blocks_across(num_tokens: usize, block_size: usize) -> usize {
    match num_tokens {
        0 => 0,
        n => (n - 1).div_ceil(block_size) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LayerConfig;

    #[test]
    fn layers_of_one_window_are_one_group() {
        let layers = [true, true, false, true, true, false, true];
        let model = ModelConfig {
            num_hidden_layers: 7,
            sliding_window: Some(9),
            layers: layers
                .map(|sliding| LayerConfig {
                    sliding,
                    ..LayerConfig::default()
                })
                .to_vec(),
            ..ModelConfig::default()
        };
        let group = |layers: &[usize], window| KvGroupSpec {
            layers: layers.to_vec(),
            window,
        };
        assert_eq!(
            KvGroupSpec::of(&model),
            [group(&[0, 1, 3, 4, 6], Some(9)), group(&[2, 5], None)]
        );
    }

    /// Against counting: the most blocks that hold something the step reads or writes.
    #[test]
    fn blocks_are_counted_at_their_worst() {
        for window in [1, 2, 15, 16, 17, 40] {
            let group = KvGroupSpec {
                layers: vec![0],
                window: Some(window),
            };
            for chunk in [1, 2, 16, 17, 33] {
                let held = |start: usize| {
                    let end = start + chunk;
                    end.div_ceil(16) - group.first_seen(start) / 16
                };
                let most = (0..200).map(held).max().unwrap();
                assert_eq!(group.blocks_for(1000, chunk, 16), most, "{window} {chunk}");
            }
            assert_eq!(group.blocks_for(16, 33, 16), 1);
        }
    }

    #[test]
    fn a_window_takes_no_more_than_it_needs() {
        let config = SchedulerConfig {
            max_num_seqs: 4,
            max_num_batched_tokens: 512,
            block_size: 32,
            num_blocks: 5000,
            run_ahead: 2,
            ..SchedulerConfig::default()
        };
        let blocks = |window| {
            let layers = vec![0];
            KvGroupSpec { layers, window }.num_blocks(&config)
        };
        assert_eq!(blocks(None), 5000);
        assert_eq!(blocks(Some(128)), 4 * (5 + 1) + 3 * 16 + 1);
        assert_eq!(blocks(Some(1 << 28)), 5000);
        assert_eq!(blocks(Some(usize::MAX)), 5000);
    }
}
