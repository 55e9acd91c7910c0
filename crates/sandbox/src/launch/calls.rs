//! The system calls that a sandboxed program may make. All others are refused.
//!
//! A refused call returns `EPERM`, or the error that programs can handle (`ENOSYS` for `clone3`, whose flags are in
//! memory and cannot be inspected; `EOPNOTSUPP` for extended attributes; `ENOTTY` for device requests). Calls that
//! would leave the process group report success and do nothing, so that one signal reaches every process of the
//! program.

use super::bpf::{Rules, Test, Verdict, is, masked, without};
use std::collections::BTreeMap;

/// The facts about the kernel and the grants on which the filter depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterContext {
    /// Internet sockets are granted.
    pub(super) network: bool,
    /// There are folders in which the program may change modes and times.
    pub(super) writes: bool,
    /// A supervisor decides about new processes, modes and times.
    pub(super) supervised: bool,
    /// The user and group that the program runs as.
    pub(super) ids: (u32, u32),
    /// Whether the kernel restricts signals to the sandbox (Landlock scopes).
    pub(super) signals_are_covered: bool,
    /// The kernel's Landlock rights cover truncation by path.
    pub(super) truncate_is_covered: bool,
}

/// The highest number known here (`mseal`). Newer calls answer `ENOSYS`.
pub(super) const LAST_KNOWN: u32 = 462;
/// The result of a call that is not allowed.
pub(super) const REFUSED: Verdict = Verdict::Errno(libc::EPERM);

/// `clone` flags that make namespaces, or move a process out of its parent's sight.
const CLONE_REFUSED: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PTRACE
    | libc::CLONE_PARENT) as u32;
/// The bits of a socket's type that name the type.
const SOCKET_TYPE: u32 = 0xf;
/// Set-user-id and set-group-id: a file with them would lend the user's rights to others.
const LENDING_MODES: u32 = libc::S_ISUID | libc::S_ISGID;

/// `fcntl` commands that select the signal for input and the process that receives it.
const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;

/// Allowed `ioctl` requests: queries of terminals, pipes and sockets, and nothing that changes a device. The terminal
/// requests only read or set the modes of a terminal that the program already has.
const IOCTLS: [u32; 20] = [
    0x5401,      // TCGETS
    0x5402,      // TCSETS
    0x5403,      // TCSETSW
    0x5404,      // TCSETSF
    0x802c_542a, // TCGETS2
    0x402c_542b, // TCSETS2
    0x5413,      // TIOCGWINSZ
    0x540f,      // TIOCGPGRP
    0x5429,      // TIOCGSID
    0x541b,      // FIONREAD
    0x5411,      // TIOCOUTQ
    0x5421,      // FIONBIO
    0x5450,      // FIONCLEX
    0x5451,      // FIOCLEX
    0x5452,      // FIOASYNC
    0x8912,      // SIOCGIFCONF
    0x8913,      // SIOCGIFFLAGS
    0x8915,      // SIOCGIFADDR
    0x8927,      // SIOCGIFHWADDR
    0x8933,      // SIOCGIFINDEX
];

/// `prctl` operations on the process itself that cannot weaken the sandbox.
const PRCTLS: [u32; 16] = [
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_DUMPABLE as u32,
    libc::PR_GET_KEEPCAPS as u32,
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_GET_SECCOMP as u32,
    libc::PR_CAPBSET_READ as u32,
    libc::PR_SET_TIMERSLACK as u32,
    libc::PR_GET_TIMERSLACK as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_GET_NO_NEW_PRIVS as u32,
    libc::PR_SET_THP_DISABLE as u32,
    libc::PR_GET_THP_DISABLE as u32,
    0x5356_4d41, // PR_SET_VMA: names of memory areas
    libc::PR_SET_CHILD_SUBREAPER as u32,
];

/// Allowed whatever the arguments: memory, descriptors, files (which Landlock judges by path), time, waiting, and what a
/// process asks about itself.
const ALLOWED: &[i64] = &[
    // memory
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_mbind,
    libc::SYS_mseal,
    // reading and writing
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_flock,
    libc::SYS_pipe2,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_readahead,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    // files by path: Landlock decides
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    // waiting for descriptors
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // time
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    // processes, threads and signals
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getattr,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_getpriority,
    libc::SYS_ioprio_get,
    // what a process asks about itself and the machine
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    // socket pairs inside the program; sockets to elsewhere cannot be made without the grant
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // a program may confine itself further
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Older forms of allowed calls, which exist on x86-64 alone.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[i64] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[i64] = &[libc::SYS_renameat];

/// The rules for a program.
pub(super) fn rules(about: FilterContext) -> BTreeMap<u32, Rules> {
    let mut table = Table(BTreeMap::new());
    for call in ALLOWED.iter().chain(ALLOWED_OLD) {
        table.put(*call, Rules::always(Verdict::Allow));
    }
    files(&mut table, about);
    sockets(&mut table, about);
    processes(&mut table, about);
    table.0
}

struct Table(BTreeMap<u32, Rules>);

impl Table {
    fn put(&mut self, call: i64, rules: Rules) {
        self.0.insert(call as u32, rules);
    }

    fn answer(&mut self, errno: i32, calls: &[i64]) {
        for call in calls {
            self.put(*call, Rules::always(Verdict::Errno(errno)));
        }
    }

    /// Allowed where all tests of one of the alternatives hold.
    fn allow_if(&mut self, call: i64, alternatives: Vec<Vec<Test>>) {
        self.decide_if(call, alternatives, Verdict::Allow, REFUSED);
    }

    fn decide_if(&mut self, call: i64, alternatives: Vec<Vec<Test>>, then: Verdict, otherwise: Verdict) {
        let rules = alternatives.into_iter().map(|tests| (tests, then)).collect();
        self.put(call, Rules { rules, otherwise });
    }
}

fn files(table: &mut Table, about: FilterContext) {
    // Opening is judged by Landlock; what it cannot see is a new file's mode.
    let (create, unnamed) = (libc::O_CREAT as u32, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32);
    let opens = |flags: u8| vec![vec![without(flags, create | unnamed)], vec![without(flags + 1, LENDING_MODES)]];
    table.allow_if(libc::SYS_openat, opens(2));
    // Its flags and mode lie in memory. Programs that know it know how to do without.
    table.answer(libc::ENOSYS, &[libc::SYS_openat2]);
    let kind = |argument: u8, kind: u32| vec![masked(argument, libc::S_IFMT | LENDING_MODES, kind)];
    let made = |argument: u8| vec![kind(argument, 0), kind(argument, libc::S_IFREG), kind(argument, libc::S_IFIFO)];
    table.allow_if(libc::SYS_mknodat, made(2));
    #[cfg(target_arch = "x86_64")]
    {
        table.allow_if(libc::SYS_open, opens(1));
        table.allow_if(libc::SYS_creat, vec![vec![without(1, LENDING_MODES)]]);
        table.allow_if(libc::SYS_mknod, made(1));
    }
    if about.truncate_is_covered {
        table.put(libc::SYS_truncate, Rules::always(Verdict::Allow));
    }
    // Landlock does not judge modes and times. The supervisor changes them beneath the folders that may be written.
    if about.supervised && about.writes {
        let asked = Rules::always(Verdict::Notify);
        table.put(libc::SYS_fchmod, asked.clone());
        table.put(libc::SYS_fchmodat, asked.clone());
        table.put(libc::SYS_utimensat, asked.clone());
        #[cfg(target_arch = "x86_64")]
        table.put(libc::SYS_chmod, asked);
    }
    table.answer(libc::ENOSYS, &[libc::SYS_fchmodat2]);
    // An archive unpacked by root is given to root, which it belongs to already: that answers success and does nothing.
    if about.writes {
        let own = |at: u8| {
            let (users, groups) = ([about.ids.0, u32::MAX], [about.ids.1, u32::MAX]);
            users.iter().flat_map(|u| groups.map(|g| vec![is(at, *u), is(at + 1, g)])).collect::<Vec<_>>()
        };
        table.decide_if(libc::SYS_fchown, own(1), Verdict::Errno(0), REFUSED);
        table.decide_if(libc::SYS_fchownat, own(2), Verdict::Errno(0), REFUSED);
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_chown, libc::SYS_lchown] {
            table.decide_if(call, own(1), Verdict::Errno(0), REFUSED);
        }
    }
    // Nor extended attributes, to read or to write.
    table.answer(
        libc::EOPNOTSUPP,
        &[
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
            libc::SYS_getxattr,
            libc::SYS_lgetxattr,
            libc::SYS_fgetxattr,
            libc::SYS_listxattr,
            libc::SYS_llistxattr,
            libc::SYS_flistxattr,
        ],
    );
    let requests = IOCTLS.iter().map(|request| vec![is(1, *request)]).collect();
    table.decide_if(libc::SYS_ioctl, requests, Verdict::Allow, Verdict::Errno(libc::ENOTTY));
    // Watching tells what happens in folders that cannot be read, and a user has few watchers in all.
    table.answer(libc::ENOSYS, &[libc::SYS_inotify_init1]);
    #[cfg(target_arch = "x86_64")]
    table.answer(libc::ENOSYS, &[libc::SYS_inotify_init]);
    // Memory that is a file: it could be executed, and no limit on a process's own memory sees it.
    table.answer(libc::ENOSYS, &[libc::SYS_memfd_create]);
    let shared =
        masked(3, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u32, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u32);
    let shared_memory = if about.supervised { Verdict::Notify } else { Verdict::Errno(libc::ENOMEM) };
    table.put(libc::SYS_mmap, Rules { rules: vec![(vec![shared], shared_memory)], otherwise: Verdict::Allow });
}

fn sockets(table: &mut Table, about: FilterContext) {
    // A stream pair can be connected to nothing else; a datagram socket could be sent from to any path.
    let pair = |kind: i32| vec![is(0, libc::AF_UNIX as u32), masked(1, SOCKET_TYPE, kind as u32)];
    // The supervisor counts them, because the data that they buffer counts as no process's memory.
    let counted = if about.supervised { Verdict::Notify } else { Verdict::Allow };
    let pairs = vec![pair(libc::SOCK_STREAM), pair(libc::SOCK_SEQPACKET)];
    table.decide_if(libc::SYS_socketpair, pairs, counted, REFUSED);
    let unknown = Verdict::Errno(libc::EAFNOSUPPORT);
    if !about.network {
        table.put(libc::SYS_socket, Rules { rules: Vec::new(), otherwise: REFUSED });
        return;
    }
    let mut allowed = Vec::new();
    for domain in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)] {
            for protocol in [0, protocol] {
                allowed.push(vec![is(0, domain as u32), masked(1, SOCKET_TYPE, kind as u32), is(2, protocol as u32)]);
            }
        }
    }
    // Which addresses the machine has: name resolution and Node ask for it. Changing them needs a capability.
    allowed.push(vec![is(0, libc::AF_NETLINK as u32), is(2, libc::NETLINK_ROUTE as u32)]);
    let mut rules: Vec<(Vec<Test>, Verdict)> = allowed.into_iter().map(|tests| (tests, Verdict::Allow)).collect();
    rules.push((vec![is(0, libc::AF_UNIX as u32)], REFUSED));
    table.put(libc::SYS_socket, Rules { rules, otherwise: unknown });
    for call in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        table.put(call, Rules::always(Verdict::Allow));
    }
}

fn processes(table: &mut Table, about: FilterContext) {
    let new_process = if about.supervised { Verdict::Notify } else { Verdict::Allow };
    table.decide_if(libc::SYS_clone, vec![vec![without(0, CLONE_REFUSED)]], new_process, REFUSED);
    // Its flags lie in memory; libraries go on with `clone`.
    table.answer(libc::ENOSYS, &[libc::SYS_clone3]);
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_fork, libc::SYS_vfork] {
        table.put(call, Rules::always(new_process));
    }
    // Signals stay inside by Landlock, else by the supervisor.
    let signal = match (about.signals_are_covered, about.supervised) {
        (false, true) => Verdict::Notify,
        _ => Verdict::Allow,
    };
    for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
        table.put(call, Rules::always(signal));
    }
    if about.signals_are_covered {
        table.put(libc::SYS_pidfd_send_signal, Rules::always(Verdict::Allow));
    }
    // The owner of a descriptor is sent a signal of the program's choice; it could be any process of the user.
    let owners = [libc::F_SETOWN as u32, F_SETSIG, F_SETOWN_EX].map(|command| (vec![is(1, command)], REFUSED));
    table.put(libc::SYS_fcntl, Rules { rules: owners.into(), otherwise: Verdict::Allow });
    // One signal to the process group must reach everything the program started.
    table.answer(0, &[libc::SYS_setsid, libc::SYS_setpgid]);
    // The parent-death signal of the supervisor's child cannot be changed.
    let mut operations: Vec<Vec<Test>> = PRCTLS.iter().map(|operation| vec![is(0, *operation)]).collect();
    operations.push(vec![is(0, libc::PR_SET_PDEATHSIG as u32), is(1, libc::SIGKILL as u32)]);
    table.decide_if(libc::SYS_prctl, operations, Verdict::Allow, Verdict::Errno(libc::EINVAL));
    // Limits and scheduling of itself, not of another process of the same user.
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
    ] {
        table.allow_if(call, vec![vec![is(0, 0)]]);
    }
    #[cfg(target_arch = "x86_64")]
    table.put(libc::SYS_setrlimit, Rules::always(Verdict::Allow));
    table.allow_if(libc::SYS_setpriority, vec![vec![is(0, libc::PRIO_PROCESS), is(1, 0)]]);
    /// The kernel constant `IOPRIO_WHO_PROCESS`.
    const IO_OF_PROCESS: u32 = 1;
    table.allow_if(libc::SYS_ioprio_set, vec![vec![is(0, IO_OF_PROCESS), is(1, 0)]]);
    // Asking is allowed, changing is not.
    table.allow_if(libc::SYS_personality, vec![vec![is(0, u32::MAX)]]);
}
