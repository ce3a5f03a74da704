//! Feeds `twoclock_fuzz::fuzz::safetensors_index`; knows nothing else.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| twoclock_fuzz::fuzz::safetensors_index(bytes));
