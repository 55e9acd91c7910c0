//! CPU time and memory, as the kernel reports them.
#![allow(unsafe_code)]

use anyhow::{Context, Result, ensure};

/// The process whose CPU time is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    /// All threads of this process.
    Ours,
    /// Child processes that have exited and were waited for.
    Children,
}

/// User and system time so far, in microseconds.
pub(crate) fn cpu_micros(whose: Whose) -> Result<f64> {
    let who = match whose {
        Whose::Ours => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in our record. All of its fields are numbers, for which zero is a valid value.
    let usage = unsafe {
        ensure!(libc::getrusage(who, usage.as_mut_ptr()) == 0, "the kernel does not say how much CPU was used");
        usage.assume_init()
    };
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(micros(usage.ru_utime) + micros(usage.ru_stime))
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Memory that belongs to the process alone and that the kernel cannot drop: dirty private pages, including those
    /// swapped out. Targets refer to this figure.
    pub(crate) private: f64,
    /// All mapped and present pages, including file pages that the kernel can drop.
    pub(crate) resident: f64,
}

impl Memory {
    /// Reads the kernel's totals over all mappings of a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let figure = |name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok());
            kilobytes.map(|kilobytes: f64| kilobytes * 1024.0).with_context(|| format!("{path} has no {name}"))
        };
        Ok(Self { private: figure("Private_Dirty:")? + figure("Swap:")?, resident: figure("Rss:")? })
    }

    /// Both figures in megabytes, the private one first.
    pub(crate) fn megabytes(self) -> (f64, f64) {
        (self.private / 1e6, self.resident / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_cpu_and_a_process_has_memory() {
        let before = cpu_micros(Whose::Ours).unwrap();
        let mut n = 1u64;
        for i in 0..20_000_000u64 {
            n = std::hint::black_box(n.wrapping_mul(31) ^ i);
        }
        assert!(cpu_micros(Whose::Ours).unwrap() > before, "{n}");
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.private > 10_000.0 && memory.resident > memory.private, "{memory:?}");
        assert!(Memory::of(0).is_err());
    }
}
