//! Stored weights: what every block type means and how values are quantized, held against ggml bit for
//! bit; models split over files.

#![allow(missing_docs, reason = "a test binary has no public surface")]

use safetensors::SafeTensors;
use twoclock_core::weights::block::dequantize;
use twoclock_core::weights::checkpoint::Format;
use twoclock_core::weights::repack::pack_rows;
use twoclock_core::weights::text_assets::gguf_text;
use twoclock_core::weights::{Checkpoint, DType, Quantization, WeightsError};
use twoclock_tests::{GoldenDir, MemoryFiles, gguf_parts, golden, golden_bytes};

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

#[test]
fn quantizing_rounds_as_ggml_does() {
    let bytes = std::fs::read(golden("gguf/quantized.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("safetensors");
    let values = file.tensor("values").expect("a tensor");
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(values.data());
    for quantization in Quantization::ALL {
        let name = quantization.dtype().name();
        let expected = file.tensor(&name.to_lowercase()).expect("a tensor");
        let size = quantization.dtype().block_bytes();
        let ours = quantization.quantize(&values);
        let blocks = ours.chunks(size).zip(expected.data().chunks(size));
        for (i, (ours, theirs)) in blocks.enumerate() {
            assert_eq!(ours, theirs, "{name} block {i}");
        }
        assert_eq!(ours.len(), expected.data().len());
    }
}

#[test]
fn only_unquantized_matrices_are_quantized() {
    let read = |name: &str| {
        Checkpoint::from_gguf(golden_bytes(&format!("gguf/{name}.gguf"))).expect("a checkpoint")
    };
    for name in ["F32", "F16", "BF16"] {
        let mut checkpoint = read(name);
        checkpoint
            .quantize(Quantization::Q4_0)
            .expect("unquantized");
        for tensor in checkpoint.tensors.values() {
            let matrix = tensor.shape.len() > 1;
            assert_eq!(matrix, tensor.loaded_dtype() == DType::Q4_0, "{tensor:?}");
            let row = tensor.load_rows(0..1).expect("a row");
            let bytes = tensor.loaded_dtype().row_bytes(tensor.cols());
            assert_eq!(Some(row.len()), bytes);
        }
    }
    let experts = GoldenDir {
        dir: "models/qwen3_moe",
        config: "config.json",
    };
    let mut experts = Checkpoint::from_hf(&experts).expect("a checkpoint");
    experts.quantize(Quantization::Q8_0).expect("unquantized");
    let quantized = |tensor: &str| experts.tensors[tensor].quantization.is_some();
    assert!(quantized("model.layers.0.mlp.experts.7.up_proj.weight"));
    assert!(!quantized("model.layers.0.mlp.gate.weight"));
    let refused = read("Q6_K").quantize(Quantization::Q8_0);
    let Err(WeightsError::AlreadyQuantized { dtype, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(dtype, DType::Q6K);
}

fn parts() -> MemoryFiles {
    let bytes = std::fs::read(golden("gguf/IQ4_XS.gguf")).expect("a file");
    gguf_parts("tiny", &bytes, 3)
}

fn refusal(files: &MemoryFiles, file: &str) -> String {
    match Checkpoint::from_gguf_parts(files, file) {
        Ok(_) => panic!("it was accepted"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn any_part_of_a_split_model_leads_to_all() {
    let whole = Checkpoint::from_gguf(golden_bytes("gguf/IQ4_XS.gguf")).expect("a checkpoint");
    let files = parts();
    for name in files.0.keys() {
        assert_eq!(gguf_text(&files, name).expect("text"), whole.text, "{name}");
        let split = Checkpoint::from_gguf_parts(&files, name).expect("a checkpoint");
        let parts = Format::Gguf {
            version: 3,
            parts: 3,
        };
        assert_eq!(split.metadata.format, parts);
        assert_eq!(split.config, whole.config);
        assert!(split.tensors.keys().eq(whole.tensors.keys()));
        for (a, b) in split.tensors.values().zip(whole.tensors.values()) {
            let rows = |t: &twoclock_core::weights::TensorInfo| t.read_rows(0..t.rows());
            assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape));
            assert_eq!(rows(a).expect("rows"), rows(b).expect("rows"));
        }
    }
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let [first, second, third] = [1, 2, 3].map(|n| format!("tiny-0000{n}-of-00003.gguf"));
    let mut missing = parts();
    missing.0.remove(&second);
    for named in [&first, &third] {
        let message = refusal(&missing, named);
        assert!(message.contains(&second), "{message}");
        assert!(message.contains("missing"), "{message}");
    }

    let mut swapped = parts();
    let other = swapped.0[&third].clone();
    swapped.0.insert(second.clone(), other);
    let message = refusal(&swapped, &first);
    assert!(message.contains("split.no"), "{message}");

    // The same tensors twice, under the number that is asked for.
    let mut twice = parts();
    let mut other = twice.0[&third].clone();
    let at = other.windows(8).position(|w| w == b"split.no");
    let value = at.expect("a number") + 12;
    other[value] = 1;
    twice.0.insert(second.clone(), other);
    let message = refusal(&twice, &first);
    assert!(message.contains("earlier part"), "{message}");

    let mut renamed = MemoryFiles::default();
    renamed
        .0
        .insert("model.gguf".into(), parts().0[&first].clone());
    let message = refusal(&renamed, "model.gguf");
    assert!(message.contains("-00001-of-00003.gguf"), "{message}");

    let alone = std::sync::Arc::new((first.clone(), parts().0[&first].clone()));
    let message = Checkpoint::from_gguf(alone)
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(message.contains("part of a model"), "{message}");
}

/// Figures, not a check: how fast rows are made ready for a device.
#[test]
#[ignore = "prints figures; run by name with --nocapture"]
fn perf_of_packing() {
    const COLS: usize = 4096;
    for dtype in DType::ALL {
        let row = dtype.row_bytes(COLS).expect("whole blocks");
        let raw = vec![0x5a; 32 << 20];
        let raw = &raw[..raw.len() / row * row];
        let mut fastest = f64::INFINITY;
        for _ in 0..3 {
            let start = std::time::Instant::now();
            let packed = pack_rows(dtype, COLS, raw);
            assert!(!packed.quants.is_empty());
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{dtype:6} {:6.0} MB/s of file",
            raw.len() as f64 / 1e6 / fastest
        );
    }
    let values: Vec<f32> = (0..4 << 20).map(|i| (i % 97) as f32 - 48.0).collect();
    for quantization in Quantization::ALL {
        let start = std::time::Instant::now();
        assert!(!quantization.quantize(&values).is_empty());
        let rate = values.len() as f64 / 1e6 / start.elapsed().as_secs_f64();
        println!("to {quantization:?} {rate:6.0} M values/s");
    }
}
