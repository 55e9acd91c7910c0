//! Files outside: reading, writing, modes, owners, times, attributes.

use crate::{Attempt, attempt, c, call, outside, readable, victim, works, writable};
use std::{
    fs,
    io::Write,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

fn holds_secret(path: impl AsRef<Path>) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.windows(6).any(|part| part == b"SECRET"))
}

/// Whether something changed a file's mode, owner, times or attributes.
fn changed(path: &Path, change: impl FnOnce(&Path)) -> bool {
    let stamp = || fs::symlink_metadata(path).map(|m| (m.ctime(), m.ctime_nsec(), m.mode(), m.uid())).ok();
    let before = stamp();
    // The file system's clock is coarse.
    std::thread::sleep(std::time::Duration::from_millis(12));
    change(path);
    before.is_some() && stamp() != before
}

fn touched(change: fn(&Path)) -> bool {
    changed(&outside("victim"), change)
}

fn address(path: &std::ffi::CString) -> usize {
    path.as_ptr() as usize
}

const CWD: usize = libc::AT_FDCWD as usize;

fn setuid_file(path: &Path) -> bool {
    let lends = fs::metadata(path).is_ok_and(|about| about.mode() & 0o6000 != 0);
    lends && fs::remove_file(path).is_ok()
}

pub(crate) fn attempts() -> Vec<Attempt> {
    let mut all = reading();
    all.extend(writing());
    all.extend(about_files());
    all
}

fn reading() -> Vec<Attempt> {
    vec![
        attempt("read-file", || holds_secret(outside("secret"))),
        attempt("read-through-symlink", || holds_secret(readable("link"))),
        attempt("read-through-own-symlink", || {
            let link = writable("own-link");
            std::os::unix::fs::symlink(outside("secret"), &link).is_ok() && holds_secret(&link)
        }),
        attempt("read-through-own-hard-link", || {
            let link = writable("own-hard-link");
            fs::hard_link(outside("secret"), &link).is_ok() && holds_secret(&link)
        }),
        attempt("read-through-proc-root", || {
            holds_secret(PathBuf::from("/proc/self/root").join(outside("secret").strip_prefix("/").unwrap()))
        }),
        attempt("read-through-proc-cwd", || {
            std::env::set_current_dir(outside("")).is_ok() && holds_secret("/proc/self/cwd/secret")
        }),
        attempt("read-through-relative-path", || {
            std::env::set_current_dir(readable("")).is_ok() && holds_secret("../outside/secret")
        }),
        attempt("read-through-path-descriptor", || {
            let path = c(&outside("secret"));
            let fd = call(libc::SYS_openat, &[CWD, address(&path), libc::O_PATH as usize]);
            fd >= 0 && holds_secret(format!("/proc/self/fd/{fd}"))
        }),
        attempt("read-with-openat2", || {
            let path = c(&outside("secret"));
            let how = [libc::O_RDONLY as u64, 0, 0];
            let fd = call(libc::SYS_openat2, &[CWD, address(&path), how.as_ptr() as usize, 24]);
            fd >= 0 && holds_secret(format!("/proc/self/fd/{fd}"))
        }),
        attempt("read-with-another-program", || {
            let ran = std::process::Command::new("/bin/cat").arg(outside("secret")).output();
            ran.is_ok_and(|output| output.stdout.starts_with(b"SECRET"))
        }),
        attempt("read-by-handle", || {
            let path = c(&outside("secret"));
            let mut handle = [0u8; 136];
            handle[0] = 128;
            let mut mount = 0i32;
            works(
                libc::SYS_name_to_handle_at,
                &[CWD, address(&path), handle.as_mut_ptr() as usize, &raw mut mount as usize, 0],
            )
        }),
        attempt("list-folder", || fs::read_dir(outside("")).is_ok_and(|mut entries| entries.next().is_some())),
        attempt("list-root", || fs::read_dir("/").is_ok()),
        attempt("read-home", || fs::read_dir("/root").or_else(|_| fs::read_dir("/home")).is_ok()),
        attempt("watch-folder", || {
            let fd = call(libc::SYS_inotify_init1, &[0]);
            let path = c(&outside(""));
            fd >= 0 && works(libc::SYS_inotify_add_watch, &[fd as usize, address(&path), libc::IN_ALL_EVENTS as usize])
        }),
        attempt("fanotify", || works(libc::SYS_fanotify_init, &[0x200, 0])),
        attempt("get-attribute", || {
            let (path, name) = (c(&outside("victim")), c"user.secret");
            let mut value = [0u8; 64];
            works(
                libc::SYS_getxattr,
                &[address(&path), name.as_ptr() as usize, value.as_mut_ptr() as usize, value.len()],
            )
        }),
        attempt("process-memory", || fs::File::open(format!("/proc/{}/mem", victim())).is_ok()),
        attempt("process-environment", || {
            fs::read(format!("/proc/{}/environ", victim())).is_ok_and(|text| !text.is_empty())
        }),
        attempt("process-command-line", || fs::read(format!("/proc/{}/cmdline", victim())).is_ok()),
        attempt("process-maps", || fs::read(format!("/proc/{}/maps", victim())).is_ok_and(|text| !text.is_empty())),
        attempt("process-descriptors", || fs::read_dir(format!("/proc/{}/fd", victim())).is_ok()),
        attempt("process-folder", || fs::read_link(format!("/proc/{}/cwd", victim())).is_ok()),
        attempt("process-root", || {
            let inside = outside("secret").strip_prefix("/").unwrap().to_owned();
            holds_secret(PathBuf::from(format!("/proc/{}/root", victim())).join(inside))
        }),
        attempt("supervisor-memory", || {
            // SAFETY: takes nothing.
            let parent = unsafe { libc::getppid() };
            let above = fs::read_to_string(format!("/proc/{parent}/stat")).ok();
            fs::File::open(format!("/proc/{parent}/mem")).is_ok() && parent == victim()
                || above.is_some() && {
                    let above = above.unwrap_or_default();
                    let above =
                        above.rsplit_once(')').and_then(|(_, r)| r.split_whitespace().nth(1)?.parse::<i32>().ok());
                    above.is_some_and(|pid| fs::File::open(format!("/proc/{pid}/mem")).is_ok())
                }
        }),
        attempt("read-shadow", || fs::read("/etc/shadow").is_ok()),
    ]
}

fn writing() -> Vec<Attempt> {
    vec![
        attempt("create-file", || fs::write(outside("new"), "x").is_ok()),
        attempt("append-file", || {
            fs::OpenOptions::new().append(true).open(outside("append")).is_ok_and(|mut f| f.write_all(b"x").is_ok())
        }),
        attempt("truncate-by-path", || {
            let path = c(&outside("truncate"));
            works(libc::SYS_truncate, &[address(&path), 0])
        }),
        attempt("remove-file", || {
            fs::remove_file(outside("remove")).is_ok() && fs::write(outside("remove"), "x").is_ok()
        }),
        attempt("rename-file", || {
            fs::rename(outside("rename"), outside("renamed")).is_ok()
                && fs::rename(outside("renamed"), outside("rename")).is_ok()
        }),
        attempt("rename-out-of-folder", || {
            fs::write(writable("mine"), "x").is_ok() && fs::rename(writable("mine"), outside("mine")).is_ok()
        }),
        attempt("make-folder", || {
            fs::create_dir(outside("folder")).is_ok() && fs::remove_dir(outside("folder")).is_ok()
        }),
        attempt("make-symlink", || {
            let link = outside("symlink");
            std::os::unix::fs::symlink("x", &link).is_ok() && fs::remove_file(link).is_ok()
        }),
        attempt("make-fifo", || {
            let path = c(&outside("fifo"));
            works(libc::SYS_mknodat, &[CWD, address(&path), (libc::S_IFIFO | 0o600) as usize, 0])
                && fs::remove_file(outside("fifo")).is_ok()
        }),
        attempt("make-device", || {
            let path = c(&writable("device"));
            works(libc::SYS_mknodat, &[CWD, address(&path), (libc::S_IFCHR | 0o600) as usize, 0x103])
                && fs::remove_file(writable("device")).is_ok()
        }),
        attempt("write-what-is-only-readable", || {
            fs::OpenOptions::new().append(true).open(readable("file")).is_ok_and(|mut f| f.write_all(b"x").is_ok())
        }),
        attempt("write-through-hard-link-of-readable", || {
            let link = writable("hard-link-of-readable");
            fs::hard_link(readable("file"), &link).is_ok()
                && fs::OpenOptions::new().append(true).open(&link).is_ok_and(|mut f| f.write_all(b"x").is_ok())
                && fs::remove_file(link).is_ok()
        }),
        attempt("move-readable-to-writable", || {
            fs::rename(readable("file"), writable("moved")).is_ok()
                && fs::rename(writable("moved"), readable("file")).is_ok()
        }),
        attempt("write-through-path-descriptor", || {
            let path = c(&outside("append"));
            let fd = call(libc::SYS_openat, &[CWD, address(&path), libc::O_PATH as usize]);
            let opened = fs::OpenOptions::new().append(true).open(format!("/proc/self/fd/{fd}"));
            fd >= 0 && opened.is_ok_and(|mut f| f.write_all(b"x").is_ok())
        }),
        attempt("write-temporary-folder", || {
            fs::write("/tmp/toolyard-probe", "x").is_ok() && fs::remove_file("/tmp/toolyard-probe").is_ok()
        }),
        attempt("write-shared-memory-folder", || {
            fs::write("/dev/shm/toolyard-probe", "x").is_ok() && fs::remove_file("/dev/shm/toolyard-probe").is_ok()
        }),
        attempt("write-kernel-setting", || {
            fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").is_ok()
        }),
        attempt("write-own-oom-score", || fs::write("/proc/self/oom_score_adj", "0").is_ok()),
        attempt("open-terminal", || {
            fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").is_ok()
                || fs::File::open("/dev/tty").is_ok()
        }),
        attempt("open-kernel-log", || fs::File::open("/dev/kmsg").is_ok()),
        attempt("open-zero-device", || fs::File::open("/dev/zero").is_ok()),
    ]
}

fn about_files() -> Vec<Attempt> {
    vec![
        attempt("chmod", || {
            touched(|path| {
                call(libc::SYS_chmod, &[address(&c(path)), 0o600]);
            })
        }),
        attempt("fchmodat", || {
            touched(|path| {
                call(libc::SYS_fchmodat, &[CWD, address(&c(path)), 0o600]);
            })
        }),
        attempt("fchmodat2", || {
            touched(|path| {
                call(452, &[CWD, address(&c(path)), 0o600, 0]);
            })
        }),
        attempt("fchmod-readable", || {
            changed(&readable("file"), |path| {
                if let Ok(file) = fs::File::open(path) {
                    call(libc::SYS_fchmod, &[file.as_raw_fd() as usize, 0o600]);
                }
            })
        }),
        attempt("chmod-path-descriptor", || {
            touched(|path| {
                let fd = call(libc::SYS_openat, &[CWD, address(&c(path)), libc::O_PATH as usize]);
                call(libc::SYS_chmod, &[address(&c(Path::new(&format!("/proc/self/fd/{fd}")))), 0o600]);
            })
        }),
        attempt("chmod-through-symlink", || {
            touched(|path| {
                let link = writable("chmod-link");
                drop(std::os::unix::fs::symlink(path, &link));
                call(libc::SYS_chmod, &[address(&c(&link)), 0o640]);
            })
        }),
        attempt("chmod-through-parent", || {
            touched(|_| {
                let path = writable("../outside/victim");
                call(libc::SYS_chmod, &[address(&c(&path)), 0o640]);
            })
        }),
        attempt("chown", || {
            touched(|path| {
                call(libc::SYS_chown, &[address(&c(path)), own().0, own().1]);
            })
        }),
        attempt("lchown", || {
            touched(|path| {
                call(libc::SYS_lchown, &[address(&c(path)), own().0, own().1]);
            })
        }),
        attempt("fchownat", || {
            touched(|path| {
                call(libc::SYS_fchownat, &[CWD, address(&c(path)), own().0, own().1, 0]);
            })
        }),
        attempt("fchown-readable", || {
            changed(&readable("file"), |path| {
                if let Ok(file) = fs::File::open(path) {
                    call(libc::SYS_fchown, &[file.as_raw_fd() as usize, own().0, own().1]);
                }
            })
        }),
        attempt("utimensat", || {
            touched(|path| {
                call(libc::SYS_utimensat, &[CWD, address(&c(path)), 0, 0]);
            })
        }),
        attempt("utimensat-through-symlink", || {
            touched(|path| {
                let link = writable("time-link");
                drop(std::os::unix::fs::symlink(path, &link));
                call(libc::SYS_utimensat, &[CWD, address(&c(&link)), 0, 0]);
            })
        }),
        attempt("utimes", || {
            touched(|path| {
                call(libc::SYS_utimes, &[address(&c(path)), 0]);
            })
        }),
        attempt("utime", || {
            touched(|path| {
                call(libc::SYS_utime, &[address(&c(path)), 0]);
            })
        }),
        attempt("futimesat", || {
            touched(|path| {
                call(libc::SYS_futimesat, &[CWD, address(&c(path)), 0]);
            })
        }),
        attempt("set-attribute", || {
            touched(|path| {
                let (path, name) = (c(path), c"user.probe");
                call(libc::SYS_setxattr, &[address(&path), name.as_ptr() as usize, b"x".as_ptr() as usize, 1, 0]);
            })
        }),
        attempt("remove-attribute", || {
            touched(|path| {
                let (path, name) = (c(path), c"user.probe");
                call(libc::SYS_setxattr, &[address(&path), name.as_ptr() as usize, b"y".as_ptr() as usize, 1, 0]);
                call(libc::SYS_removexattr, &[address(&path), name.as_ptr() as usize]);
            })
        }),
        attempt("file-flags", || {
            const SET_FLAGS: usize = 0x4008_6602;
            const NO_DUMP: libc::c_long = 0x40;
            let flags = NO_DUMP;
            fs::File::open(readable("file"))
                .is_ok_and(|f| works(libc::SYS_ioctl, &[f.as_raw_fd() as usize, SET_FLAGS, &raw const flags as usize]))
        }),
        attempt("lend-by-chmod", || {
            let path = writable("lent");
            fs::write(&path, "x").is_ok()
                && call(libc::SYS_chmod, &[address(&c(&path)), 0o4755]) != 1
                && setuid_file(&path)
        }),
        attempt("lend-by-open", || {
            let path = writable("lent-open");
            let flags = (libc::O_CREAT | libc::O_WRONLY) as usize;
            call(libc::SYS_openat, &[CWD, address(&c(&path)), flags, 0o4755]);
            setuid_file(&path)
        }),
        attempt("lend-by-openat2", || {
            let path = writable("lent-openat2");
            let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
            call(libc::SYS_openat2, &[CWD, address(&c(&path)), how.as_ptr() as usize, 24]);
            setuid_file(&path)
        }),
        attempt("lend-by-mknod", || {
            let path = writable("lent-mknod");
            call(libc::SYS_mknodat, &[CWD, address(&c(&path)), (libc::S_IFREG | 0o4755) as usize, 0]);
            setuid_file(&path)
        }),
    ]
}

fn own() -> (usize, usize) {
    // SAFETY: takes nothing.
    unsafe { (libc::getuid() as usize, libc::getgid() as usize) }
}
