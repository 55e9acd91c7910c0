//! See `toolyard_fuzz_targets::patch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    toolyard_fuzz_targets::patch(data);
});
