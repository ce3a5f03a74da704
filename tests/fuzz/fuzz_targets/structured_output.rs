//! Feeds `twoclock_fuzz::fuzz::structured_output`; knows nothing else.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| twoclock_fuzz::fuzz::structured_output(bytes));
