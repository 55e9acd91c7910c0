//! See `toolyard_fuzz_targets::uri`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    toolyard_fuzz_targets::uri(data);
});
