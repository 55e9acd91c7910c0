//! See `toolyard_fuzz_targets::rpc_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    toolyard_fuzz_targets::rpc_request(data);
});
