//! Namespaces, mounts, clocks, and parts of the kernel that ordinary programs do not use.

use crate::{Attempt, attempt, c, call, outside, works, writable};
use std::fs;

const CWD: usize = libc::AT_FDCWD as usize;

fn clone_with(flags: i32) -> bool {
    let pid = call(libc::SYS_clone, &[(flags | libc::SIGCHLD) as usize, 0, 0, 0, 0]);
    if pid == 0 {
        // SAFETY: ends the new process.
        unsafe { libc::_exit(0) }
    }
    pid > 0
}

fn has_capability() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("CapEff:").is_some_and(|caps| caps.trim().bytes().any(|b| b != b'0')))
}

#[cfg(target_arch = "x86_64")]
fn old_entry() -> bool {
    let answer: i64;
    // SAFETY: `getpid` (20) by the 32-bit entry point changes nothing but these registers.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20i64 => answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    answer > 0
}

pub(crate) fn attempts() -> Vec<Attempt> {
    let mut all = namespaces();
    all.extend(memory_and_messages());
    all.extend(machine());
    all
}

fn namespaces() -> Vec<Attempt> {
    vec![
        attempt("unshare-user", || works(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize])),
        attempt("unshare-mounts", || works(libc::SYS_unshare, &[libc::CLONE_NEWNS as usize])),
        attempt("unshare-network", || works(libc::SYS_unshare, &[libc::CLONE_NEWNET as usize])),
        attempt("clone-user", || clone_with(libc::CLONE_NEWUSER)),
        attempt("clone-processes", || clone_with(libc::CLONE_NEWPID)),
        attempt("clone-mounts", || clone_with(libc::CLONE_NEWNS)),
        attempt("clone-sibling", || clone_with(libc::CLONE_PARENT)),
        attempt("clone3-user", || {
            let mut args = [0u64; 11];
            args[0] = libc::CLONE_NEWUSER as u64;
            args[4] = libc::SIGCHLD as u64;
            let pid = call(libc::SYS_clone3, &[args.as_ptr() as usize, 88]);
            if pid == 0 {
                // SAFETY: ends the new process.
                unsafe { libc::_exit(0) }
            }
            pid > 0
        }),
        attempt("enter-namespace", || {
            use std::os::fd::AsRawFd;
            fs::File::open("/proc/self/ns/net").is_ok_and(|f| works(libc::SYS_setns, &[f.as_raw_fd() as usize, 0]))
        }),
        attempt("mount", || {
            let at = c(&writable(""));
            let kind = c"tmpfs".as_ptr() as usize;
            works(libc::SYS_mount, &[kind, at.as_ptr() as usize, kind, 0, 0])
                && works(libc::SYS_umount2, &[at.as_ptr() as usize, libc::MNT_DETACH as usize])
        }),
        attempt("bind-mount", || {
            let (from, to) = (c(&outside("")), c(&writable("")));
            works(libc::SYS_mount, &[from.as_ptr() as usize, to.as_ptr() as usize, 0, libc::MS_BIND as usize, 0])
                && works(libc::SYS_umount2, &[to.as_ptr() as usize, libc::MNT_DETACH as usize])
        }),
        attempt("fsopen", || works(libc::SYS_fsopen, &[c"tmpfs".as_ptr() as usize, 0])),
        attempt("open-tree", || works(libc::SYS_open_tree, &[CWD, c(&outside("")).as_ptr() as usize, 1])),
        attempt("fspick", || works(libc::SYS_fspick, &[CWD, c"/".as_ptr() as usize, 0])),
        attempt("mount-attributes", || {
            let none = [0u64; 4];
            works(libc::SYS_mount_setattr, &[CWD, c"/".as_ptr() as usize, 0, none.as_ptr() as usize, 32])
        }),
        attempt("change-root", || works(libc::SYS_chroot, &[c(&writable("")).as_ptr() as usize])),
        attempt("new-privileges", || {
            // SAFETY: takes numbers.
            unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 }
        }),
        attempt("capabilities", has_capability),
        attempt("change-user", || works(libc::SYS_setuid, &[65_534])),
        attempt("change-groups", || works(libc::SYS_setgroups, &[0, 0])),
    ]
}

fn memory_and_messages() -> Vec<Attempt> {
    vec![
        attempt("shared-segment", || {
            let id = call(libc::SYS_shmget, &[0, 4096, 0o1600]);
            id >= 0 && works(libc::SYS_shmctl, &[id as usize, libc::IPC_RMID as usize, 0])
        }),
        attempt("message-queue", || {
            let id = call(libc::SYS_msgget, &[0, 0o1600]);
            id >= 0 && works(libc::SYS_msgctl, &[id as usize, libc::IPC_RMID as usize, 0])
        }),
        attempt("semaphores", || {
            let id = call(libc::SYS_semget, &[0, 1, 0o1600]);
            id >= 0 && works(libc::SYS_semctl, &[id as usize, 0, libc::IPC_RMID as usize])
        }),
        attempt("posix-queue", || {
            let name = c"toolyard-probe".as_ptr() as usize;
            works(libc::SYS_mq_open, &[name, (libc::O_CREAT | libc::O_RDWR) as usize, 0o600, 0])
                && works(libc::SYS_mq_unlink, &[name])
        }),
        attempt("memory-file", || works(libc::SYS_memfd_create, &[c"probe".as_ptr() as usize, 0])),
        attempt("execute-memory-file", || {
            let fd = call(libc::SYS_memfd_create, &[c"probe".as_ptr() as usize, 0]);
            fd >= 0
                && fs::copy("/bin/true", format!("/proc/self/fd/{fd}")).is_ok()
                && std::process::Command::new(format!("/proc/self/fd/{fd}")).status().is_ok_and(|ended| ended.success())
        }),
        attempt("secret-memory", || works(libc::SYS_memfd_secret, &[0])),
        attempt("clone3-thread", || {
            let mut args = [0u64; 11];
            args[4] = libc::SIGCHLD as u64;
            let pid = call(libc::SYS_clone3, &[args.as_ptr() as usize, 88]);
            if pid == 0 {
                // SAFETY: ends the new process.
                unsafe { libc::_exit(0) }
            }
            pid > 0
        }),
        attempt("attributes-by-folder", || {
            const SET_ATTRIBUTE_AT: i64 = 463;
            let (path, name, value) = (c(&outside("victim")), c"user.probe", b"x");
            let about = [value.as_ptr() as u64, 1u64];
            let to = path.as_ptr() as usize;
            works(SET_ATTRIBUTE_AT, &[CWD, to, 0, name.as_ptr() as usize, about.as_ptr() as usize, 16])
        }),
        attempt("filter-of-its-own", || {
            const LISTENER: usize = 8;
            let mut step = libc::sock_filter { code: 6, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
            let filter = libc::sock_fprog { len: 1, filter: &raw mut step };
            works(libc::SYS_seccomp, &[1, LISTENER, &raw const filter as usize])
        }),
        attempt("user-faults", || works(libc::SYS_userfaultfd, &[1])),
        attempt("submission-ring", || {
            let parameters = [0u64; 15];
            works(libc::SYS_io_uring_setup, &[4, parameters.as_ptr() as usize])
        }),
        attempt("asynchronous-io", || {
            let mut context = 0usize;
            works(libc::SYS_io_setup, &[4, &raw mut context as usize])
        }),
        attempt("keyring", || works(libc::SYS_keyctl, &[0, (-3i64) as usize, 1])),
        attempt("add-key", || {
            let kind = c"user".as_ptr() as usize;
            works(libc::SYS_add_key, &[kind, c"probe".as_ptr() as usize, kind, 4, (-2i64) as usize])
        }),
    ]
}

fn machine() -> Vec<Attempt> {
    vec![
        attempt("bpf", || {
            // A map of one entry.
            let request = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            works(libc::SYS_bpf, &[0, request.as_ptr() as usize, 48])
        }),
        attempt("performance-events", || {
            let mut about = [0u64; 16];
            about[0] = 1 | 112 << 32; // software events, the structure's size
            works(libc::SYS_perf_event_open, &[about.as_ptr() as usize, 0, usize::MAX, usize::MAX, 0])
        }),
        attempt("personality", || {
            // ADDR_NO_RANDOMIZE
            works(libc::SYS_personality, &[0x004_0000])
        }),
        attempt("set-time", || {
            let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
            call(libc::SYS_gettimeofday, &[&raw mut now as usize, 0]);
            works(libc::SYS_settimeofday, &[&raw const now as usize, 0])
        }),
        attempt("set-clock", || {
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            call(libc::SYS_clock_gettime, &[0, &raw mut now as usize]);
            works(libc::SYS_clock_settime, &[0, &raw const now as usize])
        }),
        attempt("adjust-clock", || {
            let mut about = [0u8; 256];
            works(libc::SYS_adjtimex, &[about.as_mut_ptr() as usize])
        }),
        attempt("host-name", || {
            let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let name = name.trim();
            works(libc::SYS_sethostname, &[name.as_ptr() as usize, name.len()])
        }),
        attempt("kernel-log", || works(libc::SYS_syslog, &[10, 0, 0])),
        attempt("local-descriptor-table", || {
            let mut table = [0u8; 64];
            works(libc::SYS_modify_ldt, &[0, table.as_mut_ptr() as usize, 64])
        }),
        attempt("ports", || works(libc::SYS_ioperm, &[0x80, 1, 1])),
        attempt("quota", || {
            let mut version = 0u32;
            call(libc::SYS_quotactl, &[0x80_0004 << 8, 0, 0, &raw mut version as usize]) != -1
        }),
        attempt("sync-everything", || call(libc::SYS_sync, &[]) == 0),
        #[cfg(target_arch = "x86_64")]
        attempt("32-bit-call", old_entry),
        #[cfg(target_arch = "x86_64")]
        attempt("x32-call", || call(libc::SYS_getpid | 0x4000_0000, &[]) > 0),
    ]
}
