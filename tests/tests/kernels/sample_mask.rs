//! `sample_mask` against its reference, and the reference against what a mask says, on vocabularies
//! that end inside a word or a chunk and with rows that have no mask.

use twoclock_shaders::cpu::CpuExecutor;
use twoclock_shaders::kernels::sample_edit::BANNED;
use twoclock_shaders::kernels::sample_mask::{dispatch, record_words};
use twoclock_shaders::program::CountId;
use twoclock_tests::{Case, Noise, gpu};

#[test]
fn bans_what_the_masks_leave_out_and_nothing_else() {
    let mut noise = Noise::new(4);
    let mut executor = gpu();
    for (vocab, rows, masked) in [
        (288u32, 5u32, vec![3u32, 0]),
        (1024, 2, vec![1]),
        (4097, 3, vec![0, 1, 2]),
        (33, 4, vec![]),
        (49_152, 1, vec![0]),
    ] {
        let logits = noise.f32s((rows * vocab) as usize);
        let mut list = Vec::new();
        for &row in &masked {
            list.push(row);
            // All bits of the last word, those beyond the vocabulary too.
            let words = noise.f32s(record_words(vocab) as usize - 1);
            list.extend(words.iter().map(|x| x.to_bits().wrapping_mul(0x9e37_79b9)));
        }
        let number = masked.len() as u32;
        // One record more than is asked for, and never an empty buffer.
        list.resize(((number + 1) * record_words(vocab)) as usize, 0);
        let case = Case {
            inputs: vec![list.clone().into(), logits.as_slice().into()],
            dispatches: Box::new(move |b| vec![dispatch(vocab, CountId(0), b[0], b[1])]),
            counts: vec![number],
        };
        let mut expected = logits.clone();
        for record in list.chunks(record_words(vocab) as usize).take(masked.len()) {
            let row = &mut expected[(record[0] * vocab) as usize..][..vocab as usize];
            for (id, x) in row.iter_mut().enumerate() {
                if record[1 + id / 32] >> (id % 32) & 1 == 0 {
                    *x = BANNED;
                }
            }
        }
        let what = format!("{masked:?} of {rows} × {vocab}");
        assert_eq!(case.run(&mut CpuExecutor::default(), 1), expected, "{what}");
        assert_eq!(case.run(&mut *executor, 1), expected, "{what}");
    }
}
