//! How the system's allocator treats memory that was freed.
//!
//! Records are made on one thread and freed on another; by default each arena's top is given back to the kernel after
//! every burst and asked for again with the next, which costs a step a tenth of its time. A small reserve ends that.
#![allow(unsafe_code)]

/// What an arena keeps and grows by.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RESERVE_BYTES: libc::c_int = 256 << 10;
/// An arena's free top is given back from this size on.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_BYTES: libc::c_int = 2 << 20;

/// Lets the allocator keep a small reserve. To be called before the first thread starts.
pub fn keep_reserve() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets numbers of the allocator; there is one thread, and neither call touches memory of ours.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, RESERVE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
    }
}

/// Gives free memory back to the system. Takes milliseconds: for after a piece of work that needed much, not within one.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: looks at free memory only, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(RESERVE_BYTES as usize);
    }
}
