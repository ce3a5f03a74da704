//! A GGUF file cut into the parts of a split model, as the field's own tool cuts them.

use crate::MemoryFiles;
use twoclock_core::weights::gguf::Gguf;

const ALIGNMENT: usize = 32;

/// Cuts the file `bytes` into `count` parts called `STEM-0000N-of-0000M.gguf`; the first has the
/// metadata.
///
/// # Panics
/// When it is no GGUF file of that alignment.
pub fn gguf_parts(stem: &str, bytes: &[u8], count: usize) -> MemoryFiles {
    let source = std::sync::Arc::new((stem.to_owned(), bytes.to_vec()));
    let gguf = Gguf::read(source).expect("a GGUF file");
    // The pairs end where the directory begins: at the first tensor's name and its length.
    let mut first = (gguf.tensors[0].name.len() as u64).to_le_bytes().to_vec();
    first.extend(gguf.tensors[0].name.as_bytes());
    let directory = bytes.windows(first.len()).position(|w| w == first);
    let pairs = &bytes[24..directory.expect("a directory")];
    let num_pairs = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));

    let mut files = MemoryFiles::default();
    let share = gguf.tensors.len().div_ceil(count);
    for number in 0..count {
        let tensors = gguf.tensors.iter().rev().skip(number * share).take(share);
        let mut head = bytes[..8].to_vec();
        head.extend((tensors.len() as u64).to_le_bytes());
        let kept = if number == 0 { num_pairs } else { 0 };
        head.extend((kept + 3).to_le_bytes());
        if number == 0 {
            head.extend(pairs);
        }
        pair(&mut head, "split.no", 2, &(number as u16).to_le_bytes());
        pair(&mut head, "split.count", 2, &(count as u16).to_le_bytes());
        let all = gguf.tensors.len() as i32;
        pair(&mut head, "split.tensors.count", 5, &all.to_le_bytes());
        let mut data = Vec::new();
        for tensor in tensors {
            string(&mut head, &tensor.name);
            head.extend((tensor.shape.len() as u32).to_le_bytes());
            for &dim in tensor.shape.iter().rev() {
                head.extend((dim as u64).to_le_bytes());
            }
            head.extend(tensor.ggml_type.id().to_le_bytes());
            head.extend((data.len() as u64).to_le_bytes());
            let mut of_tensor = vec![0; tensor.bytes as usize];
            gguf.source
                .read_at(tensor.offset, &mut of_tensor)
                .expect("inside the file");
            data.extend(of_tensor);
            data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT), 0);
        head.extend(data);
        let name = format!("{stem}-{:05}-of-{count:05}.gguf", number + 1);
        files.0.insert(name, head);
    }
    files
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn pair(out: &mut Vec<u8>, key: &str, type_id: u32, value: &[u8]) {
    string(out, key);
    out.extend(type_id.to_le_bytes());
    out.extend(value);
}
