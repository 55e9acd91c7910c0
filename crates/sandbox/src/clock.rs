//! How much this process has computed.
#![allow(unsafe_code)]

use std::time::Duration;

/// Processor time of all threads since the start.
pub fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a record of ours; with this clock it cannot fail, and a record left as it is says zero.
    unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn computing_counts() {
        let before = super::computed();
        let mut sum = 0u64;
        while super::computed() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(super::computed() > before);
    }
}
