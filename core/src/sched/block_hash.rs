//! Names for what a full KV block holds. Knows no block by number and no request.
//!
//! Keys and values of a token depend on all tokens before it, so a block's name is chained: a hash
//! of its own tokens and of the name of the block before. At the root stand what else decides the
//! content (model, adapter, type of the cache, numerics class) and a salt that keeps one tenant's
//! prompts from being found by another's.
//!
//! SHA-256 cut to 128 bits: a hit is taken on trust, so no prompt must be able to forge another's
//! name. `sha2` is Rust without a build script, builds for wasm32 and uses a processor's SHA
//! instructions where there are any; a block of 32 tokens is three of its compressions.

use crate::types::TokenId;
use sha2::{Digest, Sha256};

/// Names the content of a block, and of all blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 16]);

impl BlockHash {
    /// What the first blocks of sequences are chained to. Sequences share blocks only where both
    /// `fingerprint` and `cache_salt` are equal.
    pub fn root(fingerprint: &str, cache_salt: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        hash.update([0]);
        // Lengths keep the end of one text from passing for the beginning of the next.
        for text in std::iter::once(fingerprint).chain(cache_salt) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self::cut(hash)
    }

    /// The name of the block that follows this one and holds these tokens.
    #[must_use]
    pub fn chain(self, token_ids: &[TokenId]) -> Self {
        let mut hash = Sha256::new();
        hash.update([1]);
        hash.update(self.0);
        for id in token_ids {
            hash.update(id.to_le_bytes());
        }
        Self::cut(hash)
    }

    fn cut(hash: Sha256) -> Self {
        let digest: [u8; 32] = hash.finalize().into();
        let (half, _) = digest.split_at(16);
        Self(half.try_into().expect("half of 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_name_is_the_hash_it_says() {
        let root = BlockHash::root("m", None);
        let mut message = vec![0];
        message.extend([1, 0, 0, 0, 0, 0, 0, 0, b'm']);
        assert_eq!(root.0, Sha256::digest(&message)[..16]);
        let mut message = vec![1];
        message.extend(root.0);
        message.extend([5, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(root.chain(&[5, 6]).0, Sha256::digest(&message)[..16]);
    }

    #[test]
    fn everything_that_decides_the_content_changes_the_name() {
        let roots = [
            BlockHash::root("model", None),
            BlockHash::root("other", None),
            BlockHash::root("model", Some("")),
            BlockHash::root("model", Some("a")),
            BlockHash::root("modela", None),
            BlockHash::root("", Some("modela")),
        ];
        let mut names = BTreeSet::new();
        for root in roots {
            let first = root.chain(&[1, 2]);
            names.extend([root, first, first.chain(&[1, 2]), root.chain(&[2, 1])]);
            names.extend([root.chain(&[1]), root.chain(&[1]).chain(&[2])]);
            assert_eq!(first, root.chain(&[1, 2]));
        }
        assert_eq!(names.len(), 6 * roots.len());
    }
}
