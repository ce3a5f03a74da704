//! The chain of [`crate::kernels::attention`] as plain loops: one query row over one part, and the
//! merge of two states.

use super::softcap::soft_cap;
use super::{fma, join};
use crate::kernels::step::{self, BLOCK_KEYS};

/// Maximum, sum and values of some keys.
pub(super) struct State {
    pub(super) m: f32,
    pub(super) l: f32,
    pub(super) o: Vec<f32>,
}

impl State {
    /// Of no keys.
    pub(super) fn empty(head_dim: usize) -> Self {
        Self {
            m: -1e30,
            l: 0.0,
            o: vec![0.0; head_dim],
        }
    }

    /// Takes in the keys that follow.
    pub(super) fn merge(&mut self, m: f32, l: f32, o: &[f32]) {
        let top = self.m.max(m);
        let (e_old, e_new) = ((self.m - top).exp(), (m - top).exp());
        self.l = fma(self.l, e_old, l * e_new);
        for (old, new) in self.o.iter_mut().zip(o) {
            *old = fma(*old, e_old, new * e_new);
        }
        self.m = top;
    }
}

/// A sequence record of the step buffer.
pub(super) struct Seq {
    pub(super) first_token: u32,
    pub(super) queries: u32,
    pub(super) context: u32,
    tables: u32,
    pages: u32,
}

impl Seq {
    pub(super) fn read(words: &[u32], seq: u32) -> Self {
        let at = words[step::SEQS] as usize + seq as usize * step::SEQ_WORDS;
        Self {
            first_token: words[at],
            queries: words[at + 1],
            context: words[at + 2],
            tables: words[at + 3],
            pages: words[at + 4],
        }
    }

    /// Its block table in a group of layers.
    pub(super) fn table<'a>(&self, words: &'a [u32], group: u32) -> &'a [u32] {
        &words[(self.tables + group * self.pages) as usize..]
    }
}

/// First position that a query sees; `window` 0 lets it see all.
pub(super) fn first_seen(position: u32, window: u32) -> u32 {
    match window {
        0 => 0,
        _ => (position + 1).saturating_sub(window),
    }
}

/// Sequence and query of a tile or decode query; `array` is its header word.
pub(super) fn item(words: &[u32], array: usize, item: usize) -> [u32; 2] {
    let at = words[array] as usize + item * step::ITEM_WORDS;
    [words[at], words[at + 1]]
}

/// The cached keys and values of one sequence and one key/value head.
pub(super) struct Keys<'a> {
    pub(super) kcache: &'a [f32],
    pub(super) vcache: &'a [f32],
    /// Pages in the order of positions.
    pub(super) table: &'a [u32],
    pub(super) kv_head: u32,
    pub(super) kv_heads: u32,
    pub(super) block_size: u32,
    pub(super) head_dim: usize,
    pub(super) softcap: f32,
}

impl Keys<'_> {
    fn row(&self, position: u32) -> usize {
        let page = self.table[(position / self.block_size) as usize];
        let row = (page * self.kv_heads + self.kv_head) * self.block_size;
        (row + position % self.block_size) as usize * self.head_dim
    }

    /// A scaled query over the keys `first..end`, which lie in one part.
    pub(super) fn part(&self, q: &[f32], first: u32, end: u32) -> State {
        let mut part = State::empty(self.head_dim);
        let mut weights = [0.0; BLOCK_KEYS as usize];
        let mut o = vec![0.0; self.head_dim];
        for block in (first / BLOCK_KEYS * BLOCK_KEYS..end).step_by(BLOCK_KEYS as usize) {
            let keys = block.max(first)..end.min(block + BLOCK_KEYS);
            let weights = &mut weights[..keys.len()];
            let mut m = -1e30f32;
            for (w, key) in weights.iter_mut().zip(keys.clone()) {
                *w = score(q, &self.kcache[self.row(key)..][..self.head_dim]);
                if self.softcap > 0.0 {
                    *w = soft_cap(*w, self.softcap);
                }
                m = m.max(*w);
            }
            let mut l = 0.0;
            o.fill(0.0);
            for (w, key) in weights.iter_mut().zip(keys) {
                *w = (*w - m).exp();
                l += *w;
                let v = &self.vcache[self.row(key)..][..self.head_dim];
                for (o, v) in o.iter_mut().zip(v) {
                    *o = fma(*w, *v, *o);
                }
            }
            part.merge(m, l, &o);
        }
        part
    }
}

fn score(q: &[f32], k: &[f32]) -> f32 {
    let mut s = 0.0;
    for (q, k) in q.chunks(16).zip(k.chunks(16)) {
        let mut piece = [0.0; 4];
        for (q, k) in q.chunks_exact(4).zip(k.chunks_exact(4)) {
            for c in 0..4 {
                piece[c] = fma(q[c], k[c], piece[c]);
            }
        }
        s += join(piece);
    }
    s
}

/// Head `head` of a row of queries, scaled.
pub(super) fn query(row: &[f32], head: usize, head_dim: usize, scale: f32) -> Vec<f32> {
    row[head * head_dim..][..head_dim]
        .iter()
        .map(|q| q * scale)
        .collect()
}
