//! Identifies processes. A process id can be reused, and the first process of a container always has the same one; an
//! id together with the start time is unique.

use std::sync::LazyLock;

/// When a running process started, in clock ticks since boot. `None` when it runs no more.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; the start time is the 20th after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// This process, in a file name.
pub(crate) fn process_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| {
        let pid = std::process::id();
        mark_of(pid).unwrap_or_else(|| format!("{pid}.0"))
    });
    &MARK
}

/// Whether the process of a mark still runs.
pub(crate) fn is_running(mark: &str) -> bool {
    let pid = mark.split('.').next().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| mark_of(pid).as_deref() == Some(mark))
}

fn mark_of(pid: u32) -> Option<String> {
    Some(format!("{pid}.{}", start_time(pid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_while_its_process_runs() {
        assert!(is_running(process_mark()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mark = format!("{}.{}", child.id(), start_time(std::process::id()).unwrap());
        child.wait().unwrap();
        assert!(!is_running(&mark) && !is_running("x.1") && !is_running(""));
    }
}
