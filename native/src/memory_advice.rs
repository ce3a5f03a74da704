//! How much of what is asked for fits, and what to ask for instead where it does not. Knows no model: is told what each
//! takes.

use crate::kv_cache_tokens::KvCacheTokens;

/// Blocks that are never reached: their tokens are too many for the 32 bits of a slot.
const MOST_BLOCKS: usize = 1 << 27;

/// Shortest context that is worth being named.
const LEAST_CONTEXT: usize = 64;

/// What to ask for instead, said behind what does not fit: the longest context below `asked` whose bytes (`needs`) are
/// `available`, else the least memory.
pub fn what_fits(asked: usize, available: u64, needs: impl Fn(usize) -> Option<u64>) -> String {
    let fits = |len: usize| needs(len).is_some_and(|bytes| bytes <= available);
    let least = LEAST_CONTEXT.min(asked);
    if !fits(least) {
        return needs(least).map_or_else(String::new, |bytes| {
            let mib = bytes.div_ceil(1 << 20);
            format!(": even --max-model-len {least} takes --memory {mib}")
        });
    }
    let longest = most(least, asked, fits);
    format!(": --max-model-len {longest} fits")
}

/// The most below `beyond` that fits, where `least` does.
pub fn most(least: usize, beyond: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut most, mut beyond) = (least, beyond);
    while beyond.saturating_sub(most) > 1 {
        let middle = most + (beyond - most) / 2;
        match fits(middle) {
            true => most = middle,
            false => beyond = middle,
        }
    }
    most
}

/// Blocks of keys and values to be kept, where the longest sequence takes `one` and so many are `wished`. What nobody
/// asked for gives way; what somebody did is not lowered, and may not fit.
pub fn blocks(
    tokens: Option<KvCacheTokens>,
    one: usize,
    wished: usize,
    fits: impl Fn(usize) -> bool,
) -> usize {
    match tokens {
        Some(KvCacheTokens::Max) => most(one, MOST_BLOCKS, fits),
        Some(KvCacheTokens::Usual) => most(one, wished.saturating_add(1), fits),
        Some(KvCacheTokens::Tokens(_)) | None => wished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_that_fits_is_found() {
        let needs = |len: usize| Some((100 << 20) + (len as u64) * 1000);
        let available = 101 << 20;
        assert_eq!(
            what_fits(4096, available, needs),
            ": --max-model-len 1048 fits"
        );
        assert!(needs(1048).unwrap() <= available && needs(1049).unwrap() > available);
        assert_eq!(
            what_fits(4096, 1 << 20, needs),
            ": even --max-model-len 64 takes --memory 101"
        );
        assert_eq!(what_fits(4096, 1, |_| None), "");
        assert_eq!(most(3, 100, |n| n <= 41), 41);
        assert_eq!(most(3, 100, |_| true), 99);
        // Where not even the least does, that is told by who asks for it.
        assert_eq!(most(3, 100, |_| false), 3);
        assert_eq!(most(3, 2, |_| true), 3);
    }

    #[test]
    fn what_nobody_asked_for_gives_way() {
        let (usual, given) = (KvCacheTokens::Usual, KvCacheTokens::Tokens(4096));
        assert_eq!(blocks(Some(usual), 129, 513, |n| n <= 300), 300);
        assert_eq!(blocks(Some(usual), 129, 513, |_| true), 513);
        // One sequence at least.
        assert_eq!(blocks(Some(usual), 129, 513, |n| n <= 100), 129);
        assert_eq!(blocks(Some(given), 129, 513, |n| n <= 300), 513);
        assert_eq!(blocks(None, 129, 129, |n| n <= 100), 129);
        assert_eq!(
            blocks(Some(KvCacheTokens::Max), 129, 129, |n| n <= 300),
            300
        );
    }
}
