//! The pages of the program's own file that are mapped.
//!
//! Starting touches code in every corner of a large program, and the kernel maps whole neighbourhoods around each place.
//! None of that is needed to serve. What is let go of here stays in the system's page cache; what is used after all is
//! mapped again at the price of a minor fault.
#![allow(unsafe_code)]

/// Lets go of mapped pages of the program's code and constants. Takes under a millisecond.
pub fn let_go() {
    #[cfg(target_os = "linux")]
    // SAFETY: the callback gets a valid record of each loaded object while no object is loaded or unloaded.
    unsafe {
        libc::dl_iterate_phdr(Some(let_go_of_first), std::ptr::null_mut());
    }
}

/// The first object told of is the program; any answer but 0 ends the telling.
#[cfg(target_os = "linux")]
unsafe extern "C" fn let_go_of_first(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader gives a record that is valid for this call, with as many headers as it says.
    let (base, headers) =
        unsafe { ((*info).dlpi_addr, std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum))) };
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as u64;
    for header in headers {
        // Never a segment that can be written: its pages hold what was set since, in no file.
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        // Whole pages only: the loader may have put another segment's bytes beside the edges.
        let from = (base + header.p_vaddr).next_multiple_of(page);
        let to = (base + header.p_vaddr + header.p_memsz) / page * page;
        if from < to {
            // SAFETY: the range lies within a segment of the program that is mapped from its file and only ever read, so
            // the kernel brings the same bytes back when one of its pages is used again.
            unsafe {
                libc::madvise(from as *mut libc::c_void, (to - from) as usize, libc::MADV_DONTNEED);
            }
        }
    }
    1
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    /// Code and constants used before are used again after.
    #[test]
    fn what_is_let_go_of_comes_back() {
        let text: Vec<String> = (0..100).map(|n| format!("{n:>8} and {}", n * n)).collect();
        for _ in 0..100 {
            super::let_go();
            let again: Vec<String> = (0..100).map(|n| format!("{n:>8} and {}", n * n)).collect();
            assert_eq!(text, again);
        }
        let mapped = |what: &str| {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with(what)).unwrap().to_owned();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = mapped("RssFile:");
        super::let_go();
        assert!(mapped("RssFile:") < before, "nothing was let go of");
    }
}
