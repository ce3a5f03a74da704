//! Feeds `twoclock_fuzz::fuzz::answer`; knows nothing else.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| twoclock_fuzz::fuzz::answer(bytes));
