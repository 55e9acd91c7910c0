//! Gives up all rights: files, network, processes, and all system calls except those that computing needs.
//!
//! There are three layers: Landlock denies every right that it knows, seccomp kills the process at the first system
//! call that is not on a short list, and resource limits restrict the rest. If a layer cannot be set up, the process
//! must not run a script.

use crate::limits::{CHILD_ADDRESS_BYTES, CHILD_DATA_BYTES, CHILD_EXTRA_CPU_SECONDS, Limits};
use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// The newest Landlock rights known here; an older kernel handles those it knows, and at least those on files.
const RIGHTS: ABI = ABI::V9;

/// Sets up all three layers. `Err` names the one that failed.
pub(super) fn confine(limits: &Limits) -> Result<(), String> {
    // Landlock needs a descriptor for a moment, so it comes before the limit on descriptors; seccomp forbids setting
    // limits, so it comes last.
    restrict_files()?;
    restrict_resources(limits)?;
    restrict_calls()
}

/// Landlock: no file, no TCP port, no signal or abstract socket beyond this process. Sets `no_new_privs` as well.
pub fn restrict_files() -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("Landlock: {e}");
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|e| failed(&e))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))
        .and_then(|r| r.handle_access(AccessNet::from_all(RIGHTS)))
        .and_then(|r| r.scope(Scope::from_all(RIGHTS)))
        .and_then(Ruleset::create)
        .map_err(|e| failed(&e))?;
    let status = ruleset.restrict_self().map_err(|e| failed(&e))?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err("Landlock: the kernel does not enforce it".to_owned());
    }
    Ok(())
}

/// No new descriptors, no processes, no files, no core dump; bounded memory and processor time.
pub fn restrict_resources(limits: &Limits) -> Result<(), String> {
    let cpu = limits.time_ms.div_ceil(1000) + CHILD_EXTRA_CPU_SECONDS;
    for (resource, most) in [
        (Resource::Nofile, 3),
        (Resource::Nproc, 0),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Data, CHILD_DATA_BYTES),
        (Resource::As, CHILD_ADDRESS_BYTES),
        (Resource::Cpu, cpu),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(|e| format!("resource limit {resource:?}: {e}"))?;
    }
    Ok(())
}

/// seccomp: allows memory, time, the three pipes and exit; the kernel kills the process at any other call.
pub fn restrict_calls() -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("seccomp: {e}");
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    let rules = allowed_calls().map_err(|e| failed(&e))?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch).map_err(|e| failed(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    seccompiler::apply_filter(&program).map_err(|e| failed(&e))
}

fn allowed_calls() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    let is = |argument: u8, value: u64| SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value);
    let without =
        |argument: u8, bits: i32| SeccompCondition::new(argument, Qword, SeccompCmpOp::MaskedEq(bits as u64), 0);
    let with = |argument: u8, bits: i32| {
        SeccompCondition::new(argument, Qword, SeccompCmpOp::MaskedEq(bits as u64), bits as u64)
    };
    let this = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in [
        // memory
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // time, locks, random numbers
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_sched_yield,
        // ending, and dying as it should
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_getpid,
        libc::SYS_gettid,
    ] {
        rules.insert(call, Vec::new());
    }
    // The pipes, and nothing else.
    rules.insert(libc::SYS_read, vec![SeccompRule::new(vec![is(0, 0)?])?]);
    rules.insert(libc::SYS_write, vec![SeccompRule::new(vec![is(0, 1)?])?, SeccompRule::new(vec![is(0, 2)?])?]);
    // Memory that holds data: never a file, never executable.
    rules.insert(
        libc::SYS_mmap,
        vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC)?, with(3, libc::MAP_ANONYMOUS)?])?],
    );
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC)?])?]);
    // `abort` sends itself a signal.
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![is(0, this)?])?]);
    Ok(rules)
}
