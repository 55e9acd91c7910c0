//! See `toolyard_fuzz_targets::journal_entry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    toolyard_fuzz_targets::journal_entry(data);
});
