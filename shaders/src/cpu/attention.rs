//! The chain of [`crate::kernels::attention`] as plain loops: one query row over one part, and the
//! merge of two states.

use super::kv::{KvRow, KvRows};
use super::softcap::soft_cap;
use super::{fma, join};
use crate::kernels::kv::GROUP;
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

    /// What attention gives.
    pub(super) fn result(&self) -> Vec<f32> {
        self.o.iter().map(|o| o / self.l).collect()
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
    pub(super) kcache: &'a [u32],
    pub(super) vcache: &'a [u32],
    pub(super) rows: KvRows,
    /// Pages in the order of positions.
    pub(super) table: &'a [u32],
    pub(super) kv_head: u32,
    pub(super) softcap: f32,
}

impl Keys<'_> {
    fn row(&self, position: u32) -> KvRow {
        let block_size = self.rows.block_size;
        let page = self.table[(position / block_size) as usize];
        self.rows.row(page, self.kv_head, position % block_size)
    }

    /// A scaled query over the keys `first..end`, which lie in one part.
    pub(super) fn part(&self, q: &[f32], first: u32, end: u32) -> State {
        let (rows, head_dim) = (&self.rows, self.rows.head_dim);
        let mut part = State::empty(head_dim);
        let mut weights = [0.0; BLOCK_KEYS as usize];
        let mut o = vec![0.0; head_dim];
        let mut room = vec![0.0; head_dim];
        for block in (first / BLOCK_KEYS * BLOCK_KEYS..end).step_by(BLOCK_KEYS as usize) {
            let keys = block.max(first)..end.min(block + BLOCK_KEYS);
            let weights = &mut weights[..keys.len()];
            let mut m = -1e30f32;
            for (w, key) in weights.iter_mut().zip(keys.clone()) {
                let row = self.row(key);
                let codes = rows.codes(self.kcache, row, &mut room);
                *w = score(q, codes, |group| rows.scale(self.kcache, row, group));
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
                let row = self.row(key);
                let codes = rows.codes(self.vcache, row, &mut room);
                let groups = o
                    .chunks_mut(GROUP as usize)
                    .zip(codes.chunks(GROUP as usize));
                for (group, (o, codes)) in groups.enumerate() {
                    let w = *w * rows.scale(self.vcache, row, group);
                    for (o, code) in o.iter_mut().zip(codes) {
                        *o = fma(w, *code, *o);
                    }
                }
            }
            part.merge(m, l, &o);
        }
        part
    }
}

/// Pieces of 16 dims lie in one group each.
fn score(q: &[f32], k: &[f32], scale: impl Fn(usize) -> f32) -> f32 {
    let mut s = 0.0;
    for (number, (q, k)) in q.chunks(16).zip(k.chunks(16)).enumerate() {
        let mut piece = [0.0; 4];
        for (q, k) in q.chunks_exact(4).zip(k.chunks_exact(4)) {
            for c in 0..4 {
                piece[c] = fma(q[c], k[c], piece[c]);
            }
        }
        s = fma(scale(number / 2), join(piece), s);
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
