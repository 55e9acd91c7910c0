//! Other processes, and taking more than one's share.

use crate::{Attempt, alone, attempt, call, victim, works};
use std::{fs, os::fd::AsRawFd};

/// More than the limit on processes; asked for and counted.
const MANY_PROCESSES: usize = 3_000;
const MANY_THREADS: usize = 5_000;
const MUCH_MEMORY: usize = 2 << 30;
const MANY_DESCRIPTORS: usize = 4_000;

fn pidfd() -> i64 {
    call(libc::SYS_pidfd_open, &[victim() as usize, 0])
}

fn as_other(number: i64, rest: &[usize]) -> bool {
    let mut args = vec![victim() as usize];
    args.extend(rest);
    works(number, &args)
}

/// Maps memory and writes to every page of it.
fn take(bytes: usize, flags: i32, forget: bool) -> bool {
    let part = 32 << 20;
    for _ in 0..bytes / part {
        // SAFETY: new memory, written within its bounds.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), part, protection, flags | libc::MAP_ANONYMOUS, -1, 0);
            if at == libc::MAP_FAILED {
                return false;
            }
            for offset in (0..part).step_by(4096) {
                at.cast::<u8>().add(offset).write_volatile(1);
            }
            if forget {
                libc::madvise(at, part, libc::MADV_DONTNEED);
            }
        }
    }
    // The supervisor looks a few times a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    true
}

fn many_processes(leave: fn()) -> bool {
    let mut made = Vec::new();
    for _ in 0..MANY_PROCESSES {
        // SAFETY: this process has one thread; the new one waits to be killed.
        match unsafe { libc::fork() } {
            0 => {
                leave();
                // SAFETY: ends with the signal below, or by itself.
                unsafe {
                    libc::alarm(20);
                    libc::pause();
                    libc::_exit(0)
                }
            }
            pid if pid > 0 => made.push(pid),
            _ => break,
        }
    }
    for pid in &made {
        // SAFETY: kills and takes our own children.
        unsafe {
            libc::kill(*pid, libc::SIGKILL);
            libc::waitpid(*pid, std::ptr::null_mut(), 0);
        }
    }
    made.len() == MANY_PROCESSES
}

fn memory_in_children() -> bool {
    let mut made = 0;
    for _ in 0..16 {
        // SAFETY: as above.
        if unsafe { libc::fork() } == 0 {
            take(MUCH_MEMORY / 16, libc::MAP_PRIVATE, false);
            // Held until the others have theirs: on a busy machine they run one after the other.
            std::thread::sleep(std::time::Duration::from_secs(10));
            // SAFETY: ends the child.
            unsafe { libc::_exit(42) }
        }
    }
    for _ in 0..16 {
        let mut status = 0;
        // SAFETY: the kernel writes one int.
        unsafe { libc::wait(&raw mut status) };
        made += usize::from(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
    }
    made == 16
}

/// Holds many socket pairs in several processes, each filled.
fn socket_pairs() -> bool {
    const EACH: usize = 250;
    let mut children = 0;
    for _ in 0..20 {
        // SAFETY: this process has one thread; the new one ends below.
        if unsafe { libc::fork() } == 0 {
            let pairs: Vec<_> = (0..EACH).map_while(|_| std::os::unix::net::UnixStream::pair().ok()).collect();
            std::thread::sleep(std::time::Duration::from_secs(2));
            // SAFETY: ends the child.
            unsafe { libc::_exit(if pairs.len() == EACH { 42 } else { 0 }) }
        }
    }
    for _ in 0..20 {
        let mut status = 0;
        // SAFETY: the kernel writes one int.
        unsafe { libc::wait(&raw mut status) };
        children += usize::from(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42);
    }
    children == 20
}

fn limit_raised(resource: i32) -> bool {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let which = resource as usize;
    call(libc::SYS_prlimit64, &[0, which, 0, &raw mut now as usize]);
    let more = libc::rlimit { rlim_cur: now.rlim_max + 1, rlim_max: now.rlim_max + 1 };
    now.rlim_max != libc::RLIM_INFINITY && works(libc::SYS_prlimit64, &[0, which, &raw const more as usize, 0])
}

pub(crate) fn attempts() -> Vec<Attempt> {
    let mut all = others();
    all.extend(shares());
    all
}

fn others() -> Vec<Attempt> {
    vec![
        attempt("signal", || as_other(libc::SYS_kill, &[libc::SIGCONT as usize])),
        attempt("signal-probe", || as_other(libc::SYS_kill, &[0])),
        attempt("signal-thread", || as_other(libc::SYS_tkill, &[libc::SIGCONT as usize])),
        attempt("signal-queue", || {
            let mut about = [0u8; 128];
            about[8] = 0xff; // SI_QUEUE
            about[9..12].fill(0xff);
            as_other(libc::SYS_rt_sigqueueinfo, &[libc::SIGCONT as usize, about.as_ptr() as usize])
        }),
        attempt("signal-descriptor", || {
            let fd = pidfd();
            fd >= 0 && works(libc::SYS_pidfd_send_signal, &[fd as usize, libc::SIGCONT as usize, 0, 0])
        }),
        attempt("descriptor-of-process", || {
            let fd = pidfd();
            fd >= 0 && works(libc::SYS_pidfd_getfd, &[fd as usize, 0, 0])
        }),
        attempt("signal-by-descriptor-owner", || {
            let mut ends = [0i32; 2];
            works(libc::SYS_pipe2, &[ends.as_mut_ptr() as usize, 0])
                && works(libc::SYS_fcntl, &[ends[0] as usize, libc::F_SETOWN as usize, victim() as usize])
        }),
        attempt("signal-by-descriptor-owner-ex", || {
            const SET_OWNER: usize = 15;
            let (mut ends, owner) = ([0i32; 2], [1i32, victim()]);
            works(libc::SYS_pipe2, &[ends.as_mut_ptr() as usize, 0])
                && works(libc::SYS_fcntl, &[ends[0] as usize, SET_OWNER, owner.as_ptr() as usize])
        }),
        attempt("trace", || {
            let traced = works(libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, victim() as usize, 0, 0]);
            call(libc::SYS_ptrace, &[libc::PTRACE_DETACH as usize, victim() as usize, 0, 0]);
            traced
        }),
        attempt("trace-me", || works(libc::SYS_ptrace, &[libc::PTRACE_TRACEME as usize])),
        attempt("read-process-memory", || {
            let mut byte = [0u8; 8];
            let here = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 8 };
            let maps = fs::read_to_string(format!("/proc/{}/maps", victim())).unwrap_or_default();
            let start = maps.split('-').next().and_then(|hex| usize::from_str_radix(hex, 16).ok());
            let there = libc::iovec { iov_base: start.unwrap_or(0x1000) as *mut _, iov_len: 8 };
            as_other(libc::SYS_process_vm_readv, &[&raw const here as usize, 1, &raw const there as usize, 1, 0])
        }),
        attempt("advise-process", || {
            let fd = pidfd();
            let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            fd >= 0
                && works(
                    libc::SYS_process_madvise,
                    &[fd as usize, &raw const none as usize, 1, libc::MADV_COLD as usize, 0],
                )
        }),
        attempt("compare-process", || works(libc::SYS_kcmp, &[victim() as usize, victim() as usize, 1, 0, 0])),
        attempt("limit-process", || {
            let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            as_other(libc::SYS_prlimit64, &[libc::RLIMIT_NOFILE as usize, 0, &raw mut now as usize])
        }),
        attempt("nice-process", || works(libc::SYS_setpriority, &[libc::PRIO_PROCESS as usize, victim() as usize, 1])),
        attempt("pin-process", || {
            let cpus = [1u64; 16];
            as_other(libc::SYS_sched_setaffinity, &[128, cpus.as_ptr() as usize])
        }),
        attempt("schedule-process", || {
            let none = 0i32;
            as_other(libc::SYS_sched_setscheduler, &[libc::SCHED_BATCH as usize, &raw const none as usize])
        }),
        attempt("disk-priority-process", || works(libc::SYS_ioprio_set, &[1, victim() as usize, 2 << 13 | 7])),
        attempt("move-pages-of-process", || as_other(libc::SYS_move_pages, &[0, 0, 0, 0, 0])),
        attempt("robust-list-of-process", || {
            let (mut head, mut length) = (0usize, 0usize);
            as_other(libc::SYS_get_robust_list, &[&raw mut head as usize, &raw mut length as usize])
        }),
        attempt("own-session", || {
            // SAFETY: takes nothing.
            unsafe { libc::setsid() >= 0 && libc::getsid(0) == libc::getpid() }
        }),
        attempt("own-group", || {
            // SAFETY: takes numbers.
            unsafe { libc::setpgid(0, 0) == 0 && libc::getpgrp() == libc::getpid() }
        }),
        attempt("outlive-parent", || {
            works(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as usize, 0])
                || works(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as usize, libc::SIGCONT as usize])
        }),
        attempt("inherited-descriptor", || {
            (3..256).any(|fd| {
                let mut bytes = [0u8; 6];
                // SAFETY: the kernel writes at most six bytes.
                let read = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), 6, 0) };
                read == 6 && &bytes == b"SECRET"
            })
        }),
        attempt("inherited-variable", || std::env::var_os("CARGO_MANIFEST_DIR").is_some()),
    ]
}

fn shares() -> Vec<Attempt> {
    vec![
        alone("3000-processes", || many_processes(|| ())),
        alone("3000-processes-in-sessions", || {
            many_processes(|| {
                // SAFETY: takes nothing.
                unsafe { libc::setsid() };
            })
        }),
        alone("5000-threads", || {
            let mut threads = 0;
            for _ in 0..MANY_THREADS {
                let thread = std::thread::Builder::new().stack_size(16 << 10);
                if thread.spawn(|| std::thread::sleep(std::time::Duration::from_secs(20))).is_err() {
                    break;
                }
                threads += 1;
            }
            threads == MANY_THREADS
        }),
        alone("2-gigabytes", || take(MUCH_MEMORY, libc::MAP_PRIVATE, false)),
        alone("2-gigabytes-shared", || take(MUCH_MEMORY, libc::MAP_SHARED, false)),
        alone("2-gigabytes-unmapped", || take(MUCH_MEMORY, libc::MAP_SHARED, true)),
        alone("2-gigabytes-in-children", memory_in_children),
        alone("1-gigabyte-without-first-thread", || {
            std::thread::spawn(|| {
                // The first thread has ended by then.
                std::thread::sleep(std::time::Duration::from_millis(300));
                let took = take(MUCH_MEMORY / 2, libc::MAP_PRIVATE, false);
                // SAFETY: ends the whole process.
                unsafe { libc::_exit(if took { i32::from(crate::OUT) } else { 0 }) }
            });
            call(libc::SYS_exit, &[0]);
            false
        }),
        attempt("5000-timers", || {
            (0..5_000).all(|_| {
                let mut timer = 0i32;
                works(libc::SYS_timer_create, &[libc::CLOCK_MONOTONIC as usize, 0, &raw mut timer as usize])
            })
        }),
        attempt("watcher", || works(libc::SYS_inotify_init1, &[0])),
        alone("5000-socket-pairs", socket_pairs),
        alone("4000-descriptors", || {
            let files: Vec<_> = (0..MANY_DESCRIPTORS).map_while(|_| fs::File::open("/dev/null").ok()).collect();
            files.len() == MANY_DESCRIPTORS && files[0].as_raw_fd() >= 0
        }),
        attempt("pin-pages-in-pipe", || {
            let (mut ends, page) = ([0i32; 2], [1u8; 4096]);
            let part = libc::iovec { iov_base: page.as_ptr() as *mut _, iov_len: 4096 };
            works(libc::SYS_pipe2, &[ends.as_mut_ptr() as usize, 0])
                && works(libc::SYS_vmsplice, &[ends[1] as usize, &raw const part as usize, 1, 0])
        }),
        attempt("raise-descriptor-limit", || limit_raised(libc::RLIMIT_NOFILE as i32)),
        attempt("core-dump", || {
            let most = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
            works(libc::SYS_prlimit64, &[0, libc::RLIMIT_CORE as usize, &raw const most as usize, 0])
        }),
    ]
}
