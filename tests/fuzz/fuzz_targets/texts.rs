#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| queue_fuzz_targets::texts::run(data));
