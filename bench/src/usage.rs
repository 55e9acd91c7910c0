//! CPU time and memory, as the kernel counts them.
#![allow(unsafe_code)]

use anyhow::{Context, Result, ensure};
/// Whose CPU time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    /// All threads of this process.
    Ours,
    /// Child processes that ended and were waited for.
    Children,
}

/// User and system time so far, in microseconds.
pub(crate) fn cpu_micros(whose: Whose) -> Result<f64> {
    let who = match whose {
        Whose::Ours => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in a record of ours, all of whose fields are numbers, for which zero is a value.
    let usage = unsafe {
        ensure!(libc::getrusage(who, usage.as_mut_ptr()) == 0, "the kernel does not say how much CPU was used");
        usage.assume_init()
    };
    let micros = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    Ok(micros(usage.ru_utime) + micros(usage.ru_stime))
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("{path} has no VmRSS"))?;
    Ok(kilobytes * 1024)
}

/// Memory that a process alone has and cannot drop: dirty private pages, and what of them was swapped out.
pub(crate) fn private_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let figure = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok());
        kilobytes.map(|kilobytes: u64| kilobytes * 1024).with_context(|| format!("{path} has no {name}"))
    };
    Ok(figure("Private_Dirty:")? + figure("Swap:")?)
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
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
        assert!(resident_bytes(0).is_err());
        assert!(private_bytes(std::process::id()).unwrap() > 10_000);
    }
}
