//! Closes descriptors that a child inherited by accident. Together with `launch/sys.rs`, the only place of this crate
//! with `unsafe`.
#![allow(unsafe_code)]

/// Closes everything but standard input, output and error.
///
/// The parent opens its files so that they do not cross `exec`; this closes those that a library forgot.
pub(crate) fn close_all_but_standard() {
    // SAFETY: called first thing in `main` of a process with one thread, before anything here has opened a
    // descriptor, so that none above 2 is owned by a value of this program that could use it afterwards.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
