//! Tries to get out of the walls around confined programs. Run by `tests/it/walls.rs`, without walls and within each.
//!
//! `wall_probe all NAME…` tries each attempt in a process of its own and prints `NAME out` or `NAME held`.
//! `wall_probe one NAME` tries one in this process and ends with the code 42 when it succeeded.
//! `wall_probe pipes NAME` first gives everything up as the children of scripts and imports do.
//! `wall_probe list` prints `NAME GRANT`: an attempt is no escape within walls that have the grant.
#![allow(unsafe_code, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod files;
mod kernel;
mod processes;
mod sockets;

use std::{path::PathBuf, process::ExitCode};

/// Ends an attempt that got out.
const OUT: u8 = 42;
/// Seconds after which an attempt that hangs is ended.
const ATTEMPT_SECONDS: u32 = 30;

/// Which grant makes an attempt no escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grant {
    Nothing,
    Network,
}

struct Attempt {
    name: &'static str,
    grant: Grant,
    /// It may bring the whole program down, so it is tried alone.
    alone: bool,
    run: fn() -> bool,
}

fn attempt(name: &'static str, run: fn() -> bool) -> Attempt {
    Attempt { name, grant: Grant::Nothing, alone: false, run }
}

fn network(name: &'static str, run: fn() -> bool) -> Attempt {
    Attempt { name, grant: Grant::Network, alone: false, run }
}

fn alone(name: &'static str, run: fn() -> bool) -> Attempt {
    Attempt { name, grant: Grant::Nothing, alone: true, run }
}

/// A path outside of all walls.
fn outside(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("PROBE_OUTSIDE").unwrap_or_default()).join(name)
}

/// A path that the program may read where it may read anything of the user's.
fn readable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("PROBE_READ").unwrap_or_default()).join(name)
}

/// A path that the program may write where it may write at all.
fn writable(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("PROBE_WRITE").unwrap_or_default()).join(name)
}

/// Another process of the same user.
fn victim() -> i32 {
    std::env::var("PROBE_VICTIM").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn c(path: &std::path::Path) -> std::ffi::CString {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// A system call with up to five numbers.
fn call(number: i64, args: &[usize]) -> i64 {
    let at = |index: usize| args.get(index).copied().unwrap_or(0);
    // SAFETY: the attempts pass addresses of values that outlive the call, or numbers.
    unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) }
}

fn works(number: i64, args: &[usize]) -> bool {
    call(number, args) >= 0
}

fn all() -> Vec<Attempt> {
    let mut all = files::attempts();
    all.extend(sockets::attempts());
    all.extend(processes::attempts());
    all.extend(kernel::attempts());
    all
}

/// Tries in a process of its own; any other end than the code for success counts as held.
fn isolated(attempt: &Attempt) -> bool {
    // SAFETY: this process has one thread.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(ATTEMPT_SECONDS);
            libc::_exit(if (attempt.run)() { i32::from(OUT) } else { 0 });
        }
        let mut status = 0;
        pid > 0
            && libc::waitpid(pid, &raw mut status, 0) == pid
            && libc::WIFEXITED(status)
            && libc::WEXITSTATUS(status) == i32::from(OUT)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| all().into_iter().find(|attempt| attempt.name == name);
    match args.first().map(String::as_str) {
        Some("list") => {
            for attempt in all() {
                let grant = if attempt.grant == Grant::Network { "network" } else { "-" };
                println!("{} {grant} {}", attempt.name, if attempt.alone { "alone" } else { "-" });
            }
            ExitCode::SUCCESS
        }
        Some("all") => {
            for name in &args[1..] {
                let out = named(name).is_some_and(|attempt| isolated(&attempt));
                println!("{name} {}", if out { "out" } else { "held" });
            }
            ExitCode::SUCCESS
        }
        Some(mode @ ("one" | "pipes")) => {
            let Some(attempt) = args.get(1).and_then(|name| named(name)) else { return ExitCode::from(2) };
            if mode == "pipes"
                && toolyard_sandbox::child::confine_to_pipes(&toolyard_sandbox::Limits::default()).is_err()
            {
                return ExitCode::from(2);
            }
            ExitCode::from(if (attempt.run)() { OUT } else { 0 })
        }
        _ => ExitCode::from(2),
    }
}
