//! Restricts a sandboxed program's view of the file system with Landlock.

use super::{Confinement, hidden};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::{Path, PathBuf};

/// The newest Landlock rights known here.
const RIGHTS: ABI = ABI::V9;

/// What every program may read: the system's programs and libraries, and what they need to know of the machine. Nothing
/// of the user's; of `/proc` only itself and the machine, because other processes' environments hold secrets. Not
/// `/dev/zero`, because memory mapped from it escapes the memory limit.
pub(super) const SYSTEM: [&str; 37] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/dev/urandom",
    "/dev/random",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/os-release",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
];

/// Restricts this process and all it starts. `hidden` is left out of the system's folders; the grants are without it already.
pub(super) fn restrict(walls: &Confinement, hidden: &[PathBuf]) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("Landlock: {e}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|e| failed(&e))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))
        .map_err(|e| failed(&e))?;
    if !walls.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(RIGHTS)).map_err(|e| failed(&e))?;
    }
    let ruleset = ruleset.scope(Scope::from_all(RIGHTS)).map_err(|e| failed(&e))?;
    let mut created = ruleset.create().map_err(|e| failed(&e))?;
    let java = java_settings();
    let system = SYSTEM.iter().map(PathBuf::from).chain(java).flat_map(|path| hidden::around(&path, hidden));
    for path in system.chain(walls.read.iter().cloned()) {
        created = allow(created, &path, AccessFs::from_read(RIGHTS)).map_err(|e| failed(&e))?;
    }
    let null = [PathBuf::from("/dev/null")];
    for path in walls.write.iter().chain(&null) {
        // A granted folder never includes the right to connect to a Unix socket in it.
        let rights = AccessFs::from_all(RIGHTS) & !AccessFs::ResolveUnix;
        created = allow(created, path, rights).map_err(|e| failed(&e))?;
    }
    let status = created.restrict_self().map_err(|e| failed(&e))?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err("Landlock: the kernel does not enforce it".to_owned());
    }
    Ok(())
}

/// Where distributions keep the settings that Java does not start without.
fn java_settings() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    all.filter(|entry| entry.file_name().to_string_lossy().starts_with("java-")).map(|entry| entry.path()).collect()
}

/// Allows existing paths; a missing path cannot be accessed anyway.
fn allow(
    ruleset: landlock::RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(ruleset) };
    // Rights on folders mean nothing on a file, and the kernel refuses them there.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RIGHTS) };
    ruleset.add_rule(PathBeneath::new(fd, access))
}
