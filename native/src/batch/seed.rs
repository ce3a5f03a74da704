//! Seeds of requests that bring none.

/// A seed that is a line's own and stays, however often the batch is run: FNV-1a of its name.
pub(super) fn seed(custom_id: &str) -> u64 {
    let bytes = custom_id.bytes();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
