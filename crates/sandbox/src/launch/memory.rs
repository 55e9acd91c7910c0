//! The resources of a process group: its processes, their threads and their memory, read from `/proc`.

use std::{collections::BTreeSet, fs};

/// A process of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: i32,
    /// A thread that has not ended. Memory and descriptors are asked for by its number: the first thread of a process can
    /// end before the others, and then nothing of the process can be read by the process's own number.
    pub(super) thread: i32,
    pub(super) threads: u32,
    /// All its threads have ended, and it waits for its parent to notice.
    pub(super) is_zombie: bool,
}

/// The processes of a group but for one.
pub(super) fn members(group: i32, except: i32) -> Vec<Member> {
    let numbers = processes().filter(|pid| *pid != except);
    numbers.filter_map(|pid| stat(pid).filter(|(of, _)| *of == group).map(|(_, member)| member)).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process with its group.
fn stat(pid: i32) -> Option<(i32, Member)> {
    let (has_ended, group, threads) = task(pid)?;
    let thread = if has_ended { other_thread(pid) } else { Some(pid) };
    Some((group, Member { pid, thread: thread.unwrap_or(pid), threads, is_zombie: thread.is_none() }))
}

/// Whether a thread has ended, its group, and how many threads its process has. The name in parentheses may contain
/// anything, so the text after the last parenthesis is parsed.
fn task(thread: i32) -> Option<(bool, i32, u32)> {
    let text = fs::read(format!("/proc/{thread}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let threads = fields.nth(14)?.parse().ok()?;
    Some((state == "Z" || state == "X", group, threads))
}

/// A thread of a process that has not ended.
fn other_thread(pid: i32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let numbers = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|thread| task(*thread).is_some_and(|(has_ended, ..)| !has_ended))
}

/// Whether a process or thread belongs to a group.
pub(super) fn is_member(pid: i32, group: i32) -> bool {
    stat(pid).is_some_and(|(of, _)| of == group)
}

/// The sockets that these processes have, each counted once. A process that made itself unreadable may have as many as
/// `most_each`.
pub(super) fn sockets(members: &[Member], most_each: u32) -> u32 {
    let (mut seen, mut hidden) = (BTreeSet::new(), 0u32);
    for member in members.iter().filter(|member| !member.is_zombie) {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", member.thread)) else {
            hidden = hidden.saturating_add(most_each);
            continue;
        };
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        seen.extend(links.filter(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:")));
    }
    u32::try_from(seen.len()).unwrap_or(u32::MAX).saturating_add(hidden)
}

/// Threads of this user, for the limit that counts them.
pub(super) fn tasks_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::getuid().as_raw();
    let mine = processes().filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == user));
    mine.filter_map(stat).map(|(_, member)| u64::from(member.threads)).sum()
}

/// Whether this process is under a seccomp filter.
pub(super) fn is_filtered() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|text| !text.contains("Seccomp_filters:\t0"))
}

/// The memory of a process in bytes: anonymous and shared memory, its swapped part, and page tables. Memory that it
/// shares with the process it was forked from counts in both. `None` if the thread is gone.
pub(super) fn held(thread: i32) -> Option<u64> {
    sum(thread, "status", &["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:", "HugetlbPages:"])
}

/// The same with shared memory divided among those who share it. Takes longer to find out.
pub(super) fn held_exactly(thread: i32) -> Option<u64> {
    let tables = sum(thread, "status", &["VmPTE:", "HugetlbPages:"])?;
    // A process that made itself unreadable is counted by what everybody can read.
    match sum(thread, "smaps_rollup", &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]) {
        Some(shares) => Some(shares + tables),
        None => held(thread),
    }
}

/// Adds up the named fields, which are in KiB. `None` if none of them exists: an ended process has no memory, but its
/// file still exists.
fn sum(thread: i32, file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/{file}")).ok()?;
    let kib = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(|c: char| c.is_ascii_whitespace())?;
        names.contains(&name).then(|| rest.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())?
    });
    kib.reduce(|sum, more| sum + more).map(|sum| sum << 10)
}

/// Whether a process has memory that it could share with a later child.
pub(super) fn maps_shared_memory(thread: i32) -> bool {
    // What cannot be read may have some.
    fs::read_to_string(format!("/proc/{thread}/maps")).map_or(true, |maps| maps.contains("/dev/zero (deleted)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_group_and_its_memory_is_read() {
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new("sleep").arg("30").process_group(0).spawn().unwrap();
        let pid = child.id() as i32;
        let found = members(pid, 0);
        assert_eq!(found.iter().map(|m| (m.pid, m.threads)).collect::<Vec<_>>(), [(pid, 1)]);
        assert!(members(pid, pid).is_empty());
        let used = held(pid).unwrap();
        assert!((4 << 10..64 << 20).contains(&used), "{used}");
        assert!((4 << 10..64 << 20).contains(&held_exactly(pid).unwrap()));
        assert!(!maps_shared_memory(pid));
        assert!(tasks_of_user() > 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(held(pid), None);
    }
}
