//! Kernel interfaces of the launcher that have no safe wrapper. All `unsafe` code of the launcher is here.
#![allow(unsafe_code)]

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::null_mut,
};

/// A call that a confined program waits in.
pub(super) struct PendingCall {
    pub(super) id: u64,
    /// The thread that made the call.
    pub(super) thread: u32,
    pub(super) call: i64,
    pub(super) arguments: [u64; 6],
}

/// What the supervisor answers.
pub(super) enum Reply {
    /// The kernel makes the call.
    Continue,
    /// The call returns 0 without being made.
    Done,
    /// The call fails with this error.
    Failed(i32),
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The number of Landlock's ABI in this kernel; 0 without Landlock.
pub(super) fn landlock_abi() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call reads no memory.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null_mut::<libc::c_void>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Whether seccomp knows an action.
pub(super) fn seccomp_knows(action: u32) -> bool {
    // SAFETY: the kernel reads one u32 at the pointer, which lives for the call.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0usize, &raw const action) == 0 }
}

/// Makes a second process. `None` in the new one.
pub(super) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the process has one thread, so the new one finds no lock held by a thread that is not there.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process without running anything that belongs to the process it was forked from.
pub(super) fn exit_now(code: u8) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Gives up all capabilities. Under `no_new_privs` no program started later gets one back.
pub(super) fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0u32];
    let none = [[0u32; 3]; 2];
    // SAFETY: the kernel reads a header of two and data of six u32, as this version of the interface has.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })?;
    // SAFETY: takes plain numbers.
    let answer = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    checked(libc::c_long::from(answer)).map(|_| ())
}

/// Leaves the controlling terminal, if there is one.
pub(super) fn leave_terminal() {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return };
    // SAFETY: the request takes no argument.
    unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
}

/// Installs a filter for this process and all it will start; with `listen` the supervisor's end comes back.
pub(super) fn install_filter(program: &[libc::sock_filter], listen: bool) -> io::Result<Option<OwnedFd>> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::other("the filter is too long"))?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the kernel reads `len` instructions at `filter`, which outlive the call, and writes nothing.
        checked(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) })
    };
    if !listen {
        return install(0).map(|_| None);
    }
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With the second flag a signal does not interrupt a call that the supervisor is deciding about.
    let fd = match install(listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(listener)?,
        installed => installed?,
    };
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::other("no descriptor"))?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Receives a waiting call. `None` if its process has ended.
pub(super) fn receive(listener: &OwnedFd) -> io::Result<Option<PendingCall>> {
    // SAFETY: all zeroes is a value of this plain structure, and what the kernel asks for.
    let mut call: libc::seccomp_notif = unsafe { zeroed() };
    // SAFETY: the kernel writes one such structure.
    let answer = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
    if answer < 0 {
        let error = io::Error::last_os_error();
        let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR));
        return if gone { Ok(None) } else { Err(error) };
    }
    let data = call.data;
    Ok(Some(PendingCall { id: call.id, thread: call.pid, call: i64::from(data.nr), arguments: data.args }))
}

/// Answers a call. A process that has ended needs no answer.
pub(super) fn reply(listener: &OwnedFd, id: u64, reply: &Reply) -> io::Result<()> {
    let (error, flags) = match reply {
        Reply::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Reply::Done => (0, 0),
        Reply::Failed(errno) => (-errno, 0),
    };
    let mut message = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one such structure.
    let answer = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut message) };
    match checked(libc::c_long::from(answer)) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the process of a call still waits. If so, what was read about its process id belongs to that process.
pub(super) fn still_waits(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the kernel reads one u64.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

#[repr(C, align(8))]
struct DescriptorMessage([u8; 64]);

/// Two connected sockets, closed at `exec`.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors, which are then ours.
    unsafe {
        checked(libc::c_long::from(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Sends a descriptor over a socket.
pub(super) fn send_descriptor(over: &OwnedFd, sent: &OwnedFd) -> io::Result<()> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut space = DescriptorMessage([0; 64]);
    // SAFETY: the message points at live buffers; the control buffer is aligned and larger than one descriptor needs.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let control = libc::CMSG_FIRSTHDR(&raw const message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(sent.as_raw_fd());
        checked(libc::sendmsg(over.as_raw_fd(), &raw const message, 0) as libc::c_long).map(|_| ())
    }
}

/// Receives a descriptor; `None` if the other side ended without sending one.
pub(super) fn receive_descriptor(over: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut space = DescriptorMessage([0; 64]);
    // SAFETY: as in `send_descriptor`; the descriptor that the kernel writes is ours.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.0.as_mut_ptr().cast();
        message.msg_controllen = space.0.len() as _;
        let received = libc::recvmsg(over.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if checked(received as libc::c_long)? == 0 {
            return Ok(None);
        }
        let control = libc::CMSG_FIRSTHDR(&raw const message);
        if control.is_null() || (*control).cmsg_type != libc::SCM_RIGHTS {
            return Ok(None);
        }
        Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned())))
    }
}

/// Closes standard input and output, which belong to the program.
pub(super) fn close_input_and_output() {
    // SAFETY: nothing of the supervisor reads or writes them.
    unsafe {
        libc::close(0);
        libc::close(1);
    }
}

/// Signals of the supervisor, read from a descriptor.
pub(super) struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals and receives them from now on.
    pub(super) fn take(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: plain structures on the stack, written by the C library before they are read.
        unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            checked(libc::c_long::from(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, null_mut())))?;
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            checked(libc::c_long::from(fd))?;
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// The next signal, if one has come.
    pub(super) fn next(&self) -> Option<i32> {
        // SAFETY: the kernel writes at most one such structure.
        unsafe {
            let mut info: libc::signalfd_siginfo = zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size);
            (usize::try_from(read) == Ok(size)).then_some(info.ssi_signo as i32)
        }
    }
}

/// Waits until the listener or a signal is ready, at most this long. Returns whether the listener is ready, and whether
/// no process is left that the filter applies to.
pub(super) fn wait(listener: Option<&OwnedFd>, signals: &Signals, millis: i32) -> io::Result<(bool, bool)> {
    let about = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut both = [about(listener.map_or(-1, AsRawFd::as_raw_fd)), about(signals.0.as_raw_fd())];
    // SAFETY: the kernel reads and writes two structures.
    let answer = unsafe { libc::poll(both.as_mut_ptr(), 2, millis) };
    match checked(libc::c_long::from(answer)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok((false, false)),
        Err(error) => Err(error),
        Ok(_) => Ok((both[0].revents & libc::POLLIN != 0, both[0].revents & libc::POLLHUP != 0)),
    }
}

/// Takes the exit of one child, if one has ended: its number and status.
pub(super) fn reap() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// Whether two processes have one and the same memory.
pub(super) fn share_memory(one: i32, other: i32) -> bool {
    /// The kernel constant `KCMP_VM`.
    const MEMORY: i32 = 1;
    // SAFETY: takes plain numbers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) == 0 }
}

/// Makes orphans of the program children of this process.
pub(super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes plain numbers.
    let answer = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    checked(libc::c_long::from(answer)).map(|_| ())
}

/// Ends this process as its child ended.
pub(super) fn end_as(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // SAFETY: restores the default action and raises the signal; whoever waits for us sees it.
        unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
            libc::raise(signal);
        }
    }
    exit_now(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
}
