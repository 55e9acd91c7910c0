//! Supervises a sandboxed program: counts its resources, decides about calls that wait for it, and ends all processes
//! when the program or Toolyard ends.
//!
//! All processes of the program stay in one process group, because calls to leave the group have no effect (see
//! [`calls`](super::calls)). The kernel's own limit on processes counts all processes of a user and does not apply to
//! root; its limits on memory count reserved memory, which breaks Node and Java. Therefore the supervisor counts.

use super::{
    MAX_OPEN_FILES, ProcessLimits,
    memory::{self, Member},
    modes,
    sys::{self, PendingCall, Reply, Signals},
};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use std::{
    collections::VecDeque,
    convert::Infallible,
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// The signal that the kernel sends when Toolyard's thread that started this process is gone.
pub(super) const PARENT_DIED: Signal = Signal::USR1;
/// Signals that are passed on to the program.
const PASSED_ON: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
/// The fastest that a program is assumed to fill memory, in bytes a millisecond. How long the supervisor waits before it
/// looks again follows from how much is left.
const FASTEST_FILL: u64 = 8 << 20;
/// Shortest and longest time between two measurements of the memory.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// An exact measurement may take at most one part in this many of the supervisor's time.
const EXACT_SHARE: u32 = 20;
/// A process that was allowed to be made may take this long to be seen.
const APPEARS_WITHIN: Duration = Duration::from_millis(10);
/// Socket pairs that a program may have at once. Each holds up to half a megabyte that no process is charged for.
const MOST_SOCKETS: u32 = 512;
/// How often those who are left are killed before the supervisor gives up.
const KILL_ROUNDS: u32 = 200;

struct Supervisor {
    /// This process, which leads the group.
    own: i32,
    listener: Option<OwnedFd>,
    limits: ProcessLimits,
    roots: Vec<PathBuf>,
    processes: Count,
    threads: Count,
    sockets: Count,
    /// Bytes of shared memory that were allowed since the program had none.
    shared_bytes: u64,
    members: Vec<Member>,
    /// Processes were made since `members` was read.
    is_stale: bool,
    look_at: Instant,
}

/// How many there are: as many as were seen, and those that were allowed since.
#[derive(Default)]
struct Count {
    seen: u32,
    allowed: VecDeque<Instant>,
}

impl Count {
    fn total(&self) -> u32 {
        self.seen.saturating_add(u32::try_from(self.allowed.len()).unwrap_or(u32::MAX))
    }

    /// After all were counted: those allowed a moment ago may not have been there.
    fn recount(&mut self, seen: u32) {
        self.seen = seen;
        while self.allowed.front().is_some_and(|at| at.elapsed() > APPEARS_WITHIN) {
            self.allowed.pop_front();
        }
    }
}

/// Supervises until the program ends, and ends this process in the same way.
pub(super) fn run(
    program: i32,
    parent: Option<Pid>,
    from_program: &OwnedFd,
    limits: ProcessLimits,
    roots: Vec<PathBuf>,
) -> Result<Infallible, String> {
    let mut taken = vec![libc::SIGCHLD, PARENT_DIED.as_raw()];
    taken.extend(PASSED_ON.map(Signal::as_raw));
    let signals = Signals::take(&taken).map_err(|e| format!("signals: {e}"))?;
    sys::close_input_and_output();
    let listener = sys::receive_descriptor(from_program).map_err(|e| format!("the filter's listener: {e}"))?;
    let mut supervisor = Supervisor {
        own: getpid().as_raw_nonzero().get(),
        listener,
        limits,
        roots,
        processes: Count { seen: 1, ..Count::default() },
        threads: Count { seen: 1, ..Count::default() },
        sockets: Count::default(),
        shared_bytes: 0,
        members: Vec::new(),
        is_stale: true,
        look_at: Instant::now(),
    };
    // A parent that ended before its death could be heard of.
    if getppid() != parent {
        supervisor.kill_all();
    }
    loop {
        let left = supervisor.look_at.saturating_duration_since(Instant::now());
        let millis = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
        let waited = sys::wait(supervisor.listener.as_ref(), &signals, millis);
        let (is_asked, nobody_left) = waited.map_err(|e| format!("waiting: {e}"))?;
        if is_asked {
            supervisor.decide();
        } else if nobody_left {
            supervisor.listener = None;
        }
        while let Some(signal) = signals.next() {
            if signal == PARENT_DIED.as_raw() {
                if getppid() != parent {
                    supervisor.kill_all();
                }
            } else if let (Some(signal), Some(pid)) = (passed_on(signal), Pid::from_raw(program)) {
                // It may be gone; then its end is seen below.
                kill_process(pid, signal).ok();
            }
        }
        while let Some((pid, status)) = sys::reap() {
            if pid == program {
                supervisor.kill_rest();
                sys::end_as(status);
            }
        }
        if Instant::now() >= supervisor.look_at {
            supervisor.look();
        }
    }
}

fn passed_on(signal: i32) -> Option<Signal> {
    PASSED_ON.into_iter().find(|known| known.as_raw() == signal)
}

impl Supervisor {
    /// Answers one waiting call.
    fn decide(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        if let Ok(Some(asked)) = sys::receive(&listener) {
            let reply = self.reply_to(&listener, &asked);
            // If the response cannot be sent, the calling process stays blocked, which affects no other process.
            sys::reply(&listener, asked.id, &reply).ok();
        }
        self.listener = Some(listener);
    }

    fn reply_to(&mut self, listener: &OwnedFd, asked: &PendingCall) -> Reply {
        match asked.call {
            libc::SYS_clone => self.new_task(asked.arguments[0] as i32 & libc::CLONE_THREAD != 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => self.new_task(false),
            libc::SYS_mmap => self.shared_memory(asked.arguments[1]),
            libc::SYS_socketpair => self.new_sockets(),
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => self.signal(asked.arguments[0] as i32),
            _ => modes::change(listener, asked, &self.roots),
        }
    }

    fn new_task(&mut self, is_thread: bool) -> Reply {
        if !self.has_room(is_thread) {
            self.count();
            if !self.has_room(is_thread) {
                return Reply::Failed(libc::EAGAIN);
            }
        }
        let now = Instant::now();
        self.threads.allowed.push_back(now);
        if !is_thread {
            self.processes.allowed.push_back(now);
            self.is_stale = true;
        }
        Reply::Continue
    }

    fn new_sockets(&mut self) -> Reply {
        if self.sockets.total() >= MOST_SOCKETS {
            self.count();
            self.sockets.recount(memory::sockets(&self.members, MAX_OPEN_FILES));
        }
        if self.sockets.total() >= MOST_SOCKETS {
            return Reply::Failed(libc::EMFILE);
        }
        self.sockets.allowed.extend([Instant::now(); 2]);
        Reply::Continue
    }

    /// Where the kernel does not keep signals inside: to one process or thread of the program, and never to this one.
    fn signal(&self, to: i32) -> Reply {
        if to > 0 && to != self.own && memory::is_member(to, self.own) {
            Reply::Continue
        } else {
            Reply::Failed(libc::EPERM)
        }
    }

    fn has_room(&self, is_thread: bool) -> bool {
        self.threads.total() < self.limits.threads() && (is_thread || self.processes.total() < self.limits.processes)
    }

    /// Counts processes and threads again.
    fn count(&mut self) {
        self.members = memory::members(self.own, self.own);
        self.is_stale = false;
        self.processes.recount(u32::try_from(self.members.len()).unwrap_or(u32::MAX));
        self.threads.recount(self.members.iter().map(|member| member.threads).sum());
    }

    /// Memory that is shared between processes remains when one of them unmaps it, and is then not visible in any, so
    /// the allowed amounts are added up until nobody has any.
    fn shared_memory(&mut self, bytes: u64) -> Reply {
        let most = self.limits.memory_bytes();
        if self.shared_bytes.saturating_add(bytes) > most {
            self.count();
            if !self.members.iter().any(|member| memory::maps_shared_memory(member.thread)) {
                self.shared_bytes = 0;
            }
        }
        if self.shared_bytes.saturating_add(bytes) > most {
            return Reply::Failed(libc::ENOMEM);
        }
        self.shared_bytes += bytes;
        Reply::Continue
    }

    /// Measures the memory, and kills everything if it is too much.
    fn look(&mut self) {
        let most = self.limits.memory_bytes();
        if self.is_stale || self.members.iter().any(|member| member.is_zombie) {
            self.count();
        }
        let each: Vec<Option<u64>> = self.members.iter().map(|member| memory::held(member.thread)).collect();
        self.is_stale |= each.contains(&None);
        let mut used: u64 = each.into_iter().flatten().sum();
        let mut least = LOOK.0;
        if used > most {
            // The program is halted while it is measured: on a busy machine it would take memory faster than it is
            // measured.
            let began = Instant::now();
            self.signal_members(Signal::STOP);
            self.count();
            used = self.exactly();
            if used <= most {
                self.signal_members(Signal::CONT);
            }
            least = began.elapsed() * EXACT_SHARE;
        }
        if used > most {
            let limit = self.limits.memory_mb;
            self.stop(&format!("the program was stopped: it uses {} MiB of memory, more than {limit} MiB", used >> 20));
        }
        let wait = Duration::from_millis((most - used) / FASTEST_FILL);
        self.look_at = Instant::now() + wait.clamp(LOOK.0, LOOK.1).max(least);
    }

    /// Counts memory that several processes share once.
    fn exactly(&self) -> u64 {
        let mut each: Vec<(u64, i32)> = self
            .members
            .iter()
            .filter_map(|member| Some((memory::held_exactly(member.thread)?, member.thread)))
            .collect();
        each.sort_unstable();
        // A child that is about to start another program has its parent's memory itself, not a copy.
        each.dedup_by(|a, b| a.0 == b.0 && sys::share_memory(a.1, b.1));
        each.iter().map(|(bytes, _)| bytes).sum()
    }

    fn signal_members(&self, signal: Signal) {
        for pid in self.members.iter().filter_map(|member| Pid::from_raw(member.pid)) {
            // It may have ended.
            kill_process(pid, signal).ok();
        }
    }

    #[allow(clippy::print_stderr)] // the process that started us reads it there
    fn stop(&self, why: &str) {
        eprintln!("toolyard: {why}");
        self.kill_all();
    }

    /// Kills the whole group, including this process, with one call, so that nothing new is started in between.
    fn kill_all(&self) -> ! {
        if let Some(group) = Pid::from_raw(self.own) {
            kill_process_group(group, Signal::KILL).ok();
        }
        // Not reached unless the signal could not be sent.
        sys::exit_now(super::EXIT_NOT_STARTED)
    }

    /// Kills what the program left behind. Nothing new is started in between, because nobody answers those calls.
    fn kill_rest(&mut self) {
        for _ in 0..KILL_ROUNDS {
            while sys::reap().is_some() {}
            let rest = memory::members(self.own, self.own);
            let living: Vec<Pid> =
                rest.iter().filter(|member| !member.is_zombie).filter_map(|member| Pid::from_raw(member.pid)).collect();
            if living.is_empty() {
                return;
            }
            for pid in living {
                // It may have ended by itself meanwhile.
                kill_process(pid, Signal::KILL).ok();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
