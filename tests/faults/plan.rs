//! Which faults a test tries. Taken in by `#[path]`.

use toolyard_faults::Failure;

/// Each operation with a way to fail. Every operation fails in one of the three ways, in turn; with `TOOLYARD_FAULTS` (as
/// `make faults` sets it) in all of them.
pub(crate) fn plan(operations: u64) -> impl Iterator<Item = (u64, Failure)> {
    let is_full = std::env::var_os("TOOLYARD_FAULTS").is_some();
    (1..=operations).flat_map(move |number| {
        let ways = Failure::ALL.into_iter().zip(0..);
        ways.filter(move |(_, way)| is_full || number % 3 == *way).map(move |(failure, _)| (number, failure))
    })
}
