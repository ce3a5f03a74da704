//! Stored weights: what every block type means, held against ggml bit for bit.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use safetensors::SafeTensors;
use twoclock_core::weights::DType;
use twoclock_core::weights::block::dequantize;
use twoclock_tests::golden;

#[test]
fn every_block_type_means_what_ggml_says() {
    let bytes = std::fs::read(golden("gguf/blocks.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    for dtype in DType::ALL.into_iter().filter(|d| d.is_quantized()) {
        let tensor = |part: &str| {
            let name = file
                .names()
                .into_iter()
                .find(|name| name.eq_ignore_ascii_case(&format!("{dtype}.{part}")));
            let name = name.unwrap_or_else(|| panic!("no {part} of {dtype}"));
            file.tensor(name).expect("a tensor")
        };
        let (blocks, expected) = (tensor("blocks"), tensor("values"));
        assert_eq!(blocks.shape(), [16, dtype.block_bytes()], "{dtype}");
        let expected: Vec<f32> = bytemuck::pod_collect_to_vec(expected.data());
        let mut values = vec![0.0; 16 * dtype.block_elements()];
        dequantize(dtype, blocks.data(), &mut values);
        assert_eq!(values.len(), expected.len(), "{dtype}");
        for (i, (a, b)) in values.iter().zip(&expected).enumerate() {
            assert_eq!(a.to_bits(), b.to_bits(), "{dtype} {i}: {a} {b}");
        }
    }
}
