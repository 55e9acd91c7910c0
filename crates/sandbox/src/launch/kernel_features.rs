//! Detects which sandbox features this kernel has, and names missing ones with the consequence.

use super::sys;
use serde::Serialize;

/// From this Landlock ABI on, truncating a file by its path is judged.
pub(super) const ABI_TRUNCATE: u32 = 3;
/// From this one on, TCP.
const ABI_TCP: u32 = 4;
/// From this one on, requests to devices.
const ABI_DEVICES: u32 = 5;
/// From this one on, signals and abstract sockets.
pub(super) const ABI_SCOPE: u32 = 6;
/// From this one on, connecting to sockets in the file system.
const ABI_SOCKETS: u32 = 9;

/// The features of this kernel for confining programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelFeatures {
    /// The version of Landlock's ABI; 0 if the kernel has none.
    pub landlock_abi: u32,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Whether the supervisor decides about new processes and counts them exactly.
    pub supervised: bool,
    /// The features that this kernel lacks.
    pub missing: Vec<MissingFeature>,
}

/// A sandbox feature that this kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingFeature {
    /// What is missing.
    pub wall: &'static str,
    /// The consequence.
    pub consequence: &'static str,
}

impl KernelFeatures {
    /// Asks the kernel.
    pub fn here() -> Self {
        let seccomp = sys::seccomp_knows(libc::SECCOMP_RET_KILL_PROCESS);
        Self::of(sys::landlock_abi(), seccomp, sys::seccomp_knows(libc::SECCOMP_RET_USER_NOTIF))
    }

    /// Whether the kernel can confine programs. If it cannot, no confined program is started.
    pub fn suffice(&self) -> bool {
        self.landlock_abi > 0 && self.seccomp
    }

    fn of(landlock_abi: u32, seccomp: bool, supervised: bool) -> Self {
        let mut missing = Vec::new();
        let mut lack = |is_missing: bool, wall, consequence| {
            if is_missing {
                missing.push(MissingFeature { wall, consequence });
            }
        };
        lack(landlock_abi == 0, "Landlock", "programs that must be confined are not started");
        lack(!seccomp, "seccomp", "programs that must be confined are not started");
        if landlock_abi > 0 {
            lack(
                landlock_abi < ABI_TRUNCATE,
                "Landlock truncation (ABI 3)",
                "truncating files by path is refused everywhere, also where a program may write",
            );
            lack(landlock_abi < ABI_TCP, "Landlock TCP (ABI 4)", "seccomp alone keeps programs from the network");
            lack(landlock_abi < ABI_DEVICES, "Landlock devices (ABI 5)", "seccomp alone limits requests to devices");
            lack(
                landlock_abi < ABI_SCOPE,
                "Landlock scopes (ABI 6)",
                if supervised {
                    "the supervisor alone keeps signals inside the walls"
                } else {
                    "a confined program can send signals to other processes of the same user"
                },
            );
            lack(
                landlock_abi < ABI_SOCKETS,
                "Landlock pathname sockets (ABI 9)",
                "seccomp alone keeps programs from Unix sockets",
            );
        }
        lack(
            seccomp && !supervised,
            "seccomp notifications",
            "processes are limited by RLIMIT_NPROC, which does not bind root; modes and times of files cannot be changed",
        );
        Self { landlock_abi, seccomp, supervised, missing }
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        if !self.suffice() {
            return "not available: programs that must be confined are not started".to_owned();
        }
        format!("Landlock ABI {}, seccomp allow list, supervised limits on processes and memory", self.landlock_abi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let names = |walls: &KernelFeatures| walls.missing.iter().map(|m| m.wall).collect::<Vec<_>>();
        assert!(KernelFeatures::of(9, true, true).missing.is_empty());
        assert_eq!(names(&KernelFeatures::of(7, true, true)), ["Landlock pathname sockets (ABI 9)"]);
        assert_eq!(KernelFeatures::of(1, true, false).missing.len(), 6);
        let none = KernelFeatures::of(0, false, false);
        assert_eq!(names(&none), ["Landlock", "seccomp"]);
        assert!(!none.suffice() && KernelFeatures::here().suffice());
    }
}
