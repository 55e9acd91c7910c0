//! See `toolyard_fuzz_targets::jsonrpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    toolyard_fuzz_targets::jsonrpc(data);
});
