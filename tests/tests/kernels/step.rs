//! Step buffers for the cases.

use twoclock_shaders::kernels::step::HEADER;

/// A step buffer with these arrays at these header words.
pub(crate) fn step_buffer(arrays: &[(usize, &[u32])]) -> Vec<u32> {
    let mut words = vec![0; HEADER];
    for (header, array) in arrays {
        words[*header] = words.len() as u32;
        words.extend_from_slice(array);
    }
    words
}
