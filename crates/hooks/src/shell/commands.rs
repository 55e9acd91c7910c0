//! The risk of programs, by their names and arguments. This list says nothing about a program that it does not contain.

use super::{Classification, CommandContext, lex::Word, line};
use crate::locations::{PathLocation, joined};
use std::path::Path;
use toolyard_catalog::native::NativeClass::{Destroy, Leave, Read, Shell};

/// Programs that only read, whatever their arguments are.
const READERS: &[&str] = &[
    "ls",
    "cat",
    "head",
    "tail",
    "wc",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "echo",
    "printf",
    "pwd",
    "true",
    "false",
    "test",
    "[",
    "stat",
    "file",
    "du",
    "df",
    "date",
    "whoami",
    "id",
    "uname",
    "printenv",
    "which",
    "type",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "cut",
    "tr",
    "diff",
    "cmp",
    "comm",
    "nl",
    "tac",
    "rev",
    "column",
    "jq",
    "od",
    "hexdump",
    "strings",
    "md5sum",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "tree",
    "ps",
    "sleep",
    "seq",
    "exit",
    "return",
    "break",
    "continue",
    "read",
    "[[",
    "set",
    "export",
    "unset",
    "local",
    "shift",
    "wait",
    "umask",
    "hostname",
    "nproc",
    "free",
    "uptime",
    "arch",
    "getconf",
    "locale",
    "less",
    "more",
    "fold",
    "paste",
    "join",
    "expr",
    ":",
];
/// Programs that change the files they name.
const WRITERS: &[&str] = &["touch", "mkdir", "cp", "mv", "ln", "tee", "chmod", "install", "patch", "sponge"];
/// Programs that run the project's own build or tests.
const BUILDERS: &[&str] = &[
    "make",
    "cmake",
    "ninja",
    "cargo",
    "rustc",
    "rustfmt",
    "go",
    "gofmt",
    "npm",
    "pnpm",
    "yarn",
    "tsc",
    "eslint",
    "prettier",
    "jest",
    "vitest",
    "pytest",
    "ruff",
    "black",
    "mypy",
    "tox",
    "mvn",
    "gradle",
    "gcc",
    "g++",
    "clang",
    "cc",
    "ld",
    "ctest",
    "shellcheck",
    "clang-format",
    "biome",
];
/// Programs that destroy.
const DESTROYERS: &[&str] = &[
    "rm", "rmdir", "unlink", "shred", "truncate", "dd", "mkfs", "fdisk", "parted", "wipefs", "kill", "pkill", "killall",
];
/// Programs that reach other machines, other users or the system.
const LEAVERS: &[&str] = &[
    "curl",
    "wget",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "nc",
    "ncat",
    "netcat",
    "telnet",
    "ftp",
    "socat",
    "gh",
    "glab",
    "docker",
    "podman",
    "kubectl",
    "helm",
    "terraform",
    "aws",
    "gcloud",
    "az",
    "sudo",
    "doas",
    "su",
    "pip",
    "pip3",
    "pipx",
    "uv",
    "uvx",
    "npx",
    "bunx",
    "apt",
    "apt-get",
    "dnf",
    "yum",
    "brew",
    "snap",
    "systemctl",
    "service",
    "crontab",
    "at",
    "mount",
    "umount",
    "chown",
    "chgrp",
    "useradd",
    "usermod",
    "passwd",
    "iptables",
    "mail",
    "open",
    "xdg-open",
    "toolyard",
];
/// Words of build programs that fetch from, or publish to, the network.
const FETCHES: &[&str] = &[
    "install",
    "i",
    "ci",
    "add",
    "publish",
    "login",
    "logout",
    "update",
    "upgrade",
    "fetch",
    "get",
    "mod",
    "exec",
    "dlx",
    "deploy",
    "link",
    "owner",
    "yank",
    "uninstall",
    "remove",
];
/// A command of a build program is among its first words.
const COMMAND_WORDS: usize = 3;
/// Git commands that only read.
const GIT_READS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "blame",
    "grep",
    "ls-files",
    "ls-tree",
    "rev-parse",
    "describe",
    "shortlog",
    "cat-file",
    "rev-list",
    "merge-base",
    "name-rev",
    "whatchanged",
    "help",
    "version",
    "for-each-ref",
    "check-ignore",
];
/// Git commands that add to the project and lose nothing.
const GIT_WRITES: &[&str] = &["add", "commit", "init", "mv", "apply", "am", "cherry-pick", "merge", "revert"];
/// Git commands that speak to other machines.
const GIT_LEAVES: &[&str] = &["push", "pull", "fetch", "clone", "remote", "submodule", "send-email", "lfs"];

pub(super) fn classify(program: &Word, arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    if program.is_open {
        return Classification::unclear("its program is only known when it runs");
    }
    let name = program.text.strip_prefix("/usr/bin/").or_else(|| program.text.strip_prefix("/bin/"));
    let name = name.unwrap_or(&program.text);
    match name {
        "cd" | "pushd" => change_folder(arguments, context),
        "git" => git(arguments, context),
        "find" | "fd" => find(arguments, context),
        "sed" | "perl" | "sort" | "yq" | "awk" | "gawk" | "tar" => rewriting(name, arguments, context),
        "bash" | "sh" | "zsh" | "dash" => nested_shell(arguments, context),
        "xargs" | "env" | "nice" | "nohup" | "timeout" | "command" | "exec" | "stdbuf" => {
            wrapper(name, arguments, context)
        }
        "uniq" => match operands(arguments).nth(1) {
            Some(target) => writes(name, &[target], context),
            None => reads(arguments, context),
        },
        "export" | "declare" | "readonly" if operands(arguments).any(super::steers) => {
            Classification::unclear("it sets a variable that decides which program runs")
        }
        "rg" | "tree" if options(arguments).any(|o| o.starts_with("--pre") || o.starts_with("-o")) => {
            Classification::unclear(format_args!("{name} runs a program or writes a file"))
        }
        name if READERS.contains(&name) => reads(arguments, context),
        name if WRITERS.contains(&name) => writes(name, arguments, context),
        name if BUILDERS.contains(&name) => builds(name, arguments, context),
        name if DESTROYERS.contains(&name) => destroys(name, arguments, context),
        name if LEAVERS.contains(&name) => Classification::new(Leave, format!("{name} reaches beyond the project")),
        name => Classification::unclear(format_args!("what {name:?} does is not known")),
    }
}

fn options<'a>(arguments: &'a [&Word]) -> impl Iterator<Item = &'a str> {
    arguments.iter().map(|word| word.text.as_str()).filter(|text| text.starts_with('-'))
}

fn operands<'a>(arguments: &'a [&'a Word]) -> impl Iterator<Item = &'a Word> {
    arguments.iter().copied().filter(|word| !word.text.starts_with('-') || word.is_open)
}

fn reads(arguments: &[&Word], context: &CommandContext<'_>) -> Classification {
    let mut worst = Classification::new(Read, "it reads");
    operands(arguments).for_each(|path| worst.raise(context.read(path)));
    worst
}

/// Every operand is taken for a file that changes. A source that is only read and lies outside is not counted.
fn writes(name: &str, arguments: &[&Word], context: &CommandContext<'_>) -> Classification {
    let mut worst = Classification::new(Shell, format!("{name} changes files"));
    let targets: Vec<&Word> = operands(arguments).collect();
    let targets = match (name, targets.split_last()) {
        // What a link points at can be changed through it, so its target counts as written.
        ("cp" | "install", Some((last, sources))) => {
            sources.iter().for_each(|source| worst.raise(context.read(source)));
            vec![*last]
        }
        _ => targets,
    };
    targets.into_iter().for_each(|target| worst.raise(context.write(target)));
    worst
}

fn destroys(name: &str, arguments: &[&Word], context: &CommandContext<'_>) -> Classification {
    let mut worst = Classification::new(Destroy, format!("{name} destroys"));
    for target in operands(arguments) {
        if !matches!(
            context.location(target),
            Some(PathLocation::Inside | PathLocation::Protected | PathLocation::Sink)
        ) {
            worst.raise(Classification::new(Leave, format!("{name} destroys outside the project: {}", target.text)));
        }
    }
    worst
}

fn builds(name: &str, arguments: &[&Word], context: &CommandContext<'_>) -> Classification {
    let mut words = operands(arguments).take(COMMAND_WORDS);
    let fetches = operands(arguments).take(COMMAND_WORDS).find(|word| FETCHES.contains(&word.text.as_str()));
    let outside = operands(arguments).find(|word| {
        let is_path = word.text.contains('/') && !word.is_open;
        is_path && matches!(context.location(word), Some(PathLocation::Outside | PathLocation::Private))
    });
    if let Some(word) = fetches.or(outside) {
        return Classification::new(Leave, format!("{name} {} reaches beyond the project", word.text));
    }
    match words.next() {
        // Without a command it installs.
        None if name == "yarn" => Classification::new(Leave, "yarn reaches beyond the project"),
        Some(word) if word.text == "clean" => Classification::new(Destroy, format!("{name} clean destroys")),
        _ => Classification::new(Shell, format!("{name} runs the project's own programs")),
    }
}

/// Once a command has left the project, or may have, it does not come back for us: a change of folder can fail, or can
/// be part of a branch that is not taken.
fn change_folder(arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    let to = operands(arguments).next();
    let known = to.filter(|word| matches!(context.location(word), Some(PathLocation::Inside)) && word.text != "-");
    context.cwd = match (known, context.cwd.as_deref()) {
        (Some(word), Some(cwd)) => Some(joined(cwd, Path::new(&word.text))),
        _ => None,
    };
    Classification::new(Read, "it reads")
}

fn git(arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    let mut rest = arguments;
    // Options before the command: another folder, or settings that can name programs.
    while let Some((first, more)) = rest.split_first() {
        match first.text.as_str() {
            "-C" => match more.split_first() {
                Some((folder, more)) => {
                    change_folder(&[folder], context);
                    rest = more;
                }
                None => return Classification::unclear("git -C names no folder"),
            },
            "--no-pager" | "-P" => rest = more,
            option if option.starts_with('-') => {
                return Classification::unclear(format_args!("git has the option {option}"));
            }
            _ => break,
        }
    }
    let Some((command, arguments)) = rest.split_first() else { return Classification::new(Read, "it reads") };
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.text.as_str()));
    // Short options can be written together: -fd.
    let short = |letters: &[char]| options(arguments).any(|o| !o.starts_with("--") && o.contains(letters));
    match command.text.as_str() {
        "grep" if short(&['O']) || options(arguments).any(|o| o.starts_with("--open")) => {
            Classification::unclear("git grep runs a program")
        }
        name if GIT_READS.contains(&name) && !options(arguments).any(|o| o.starts_with("--output")) => {
            Classification::new(Read, "it reads")
        }
        name if GIT_LEAVES.contains(&name) => {
            Classification::new(Leave, format!("git {name} speaks to another machine"))
        }
        name if GIT_WRITES.contains(&name) => Classification::new(Shell, format!("git {name} changes the repository")),
        "branch" | "tag" if !short(&['d', 'D', 'f', 'M', 'C']) && !has(&["--delete", "--force"]) => {
            Classification::new(Shell, "git changes the repository")
        }
        "stash" if !has(&["drop", "clear", "pop"]) => Classification::new(Shell, "git stash changes the repository"),
        "switch" if !short(&['f', 'C']) && !has(&["--force", "--discard-changes"]) => {
            Classification::new(Shell, "git switch changes the repository")
        }
        "checkout" if has(&["-b"]) => Classification::new(Shell, "git checkout makes a branch"),
        "config" if has(&["--get", "--list", "-l", "get", "list"]) => Classification::new(Read, "it reads"),
        name => Classification::new(Destroy, format!("git {name} can lose work")),
    }
}

fn find(arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    const RUNS: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    if arguments.iter().any(|word| word.text == "-delete") {
        return Classification::new(Destroy, "find -delete destroys");
    }
    if arguments.iter().any(|word| word.text.starts_with("-fprint") || word.text == "-fls") {
        return Classification::unclear("find writes its list to a file");
    }
    match arguments.iter().position(|word| RUNS.contains(&word.text.as_str())) {
        Some(at) => {
            let mut roots = arguments.iter().take_while(|word| !word.text.starts_with('-'));
            let is_inside = roots.all(|root| context.location(root) == Some(PathLocation::Inside));
            let words = arguments.get(at + 1..).unwrap_or_default();
            let words: Vec<Word> = words.iter().map(|word| found(word, is_inside)).collect();
            wrapped(&words.iter().collect::<Vec<_>>(), context)
        }
        None => reads(arguments, context),
    }
}

/// A word of a command that find runs: `{}` stands for what was found.
fn found(word: &Word, is_inside: bool) -> Word {
    let is_open = word.is_open || !is_inside && word.text.contains("{}");
    Word { is_open, ..word.clone() }
}

/// Programs that read unless an option makes them write, or a script of their own that can do anything.
fn rewriting(name: &str, arguments: &[&Word], context: &CommandContext<'_>) -> Classification {
    let in_place = options(arguments).any(|o| o.starts_with("-i") || o.starts_with("--in-place"));
    match name {
        // Several scripts, or one from a file.
        "sed" if options(arguments).any(|o| ["-e", "-f", "--e", "--f"].iter().any(|start| o.starts_with(start))) => {
            Classification::unclear("a script of sed")
        }
        "sed" => {
            // `w` and `e` in a script write files and run commands.
            let script = operands(arguments).next().map_or("", |word| word.text.as_str());
            let is_plain = script.starts_with('s') || script.ends_with('p') || script.ends_with('d');
            let runs = script.rsplit(['/', '|', '#', ',']).next().is_some_and(|flags| flags.contains(['e', 'w']));
            match (is_plain && !runs, in_place) {
                (false, _) => Classification::unclear("a script of sed"),
                (true, false) => reads(arguments, context),
                (true, true) => writes(name, &operands(arguments).skip(1).collect::<Vec<_>>(), context),
            }
        }
        "sort" if options(arguments).any(|o| o.starts_with("-o") || o.starts_with("--output")) => {
            writes(name, arguments, context)
        }
        "sort" if options(arguments).any(|o| o.starts_with("--c")) => Classification::unclear("sort runs a program"),
        "sort" => reads(arguments, context),
        "yq" if in_place => writes(name, arguments, context),
        "yq" => reads(arguments, context),
        "tar" => {
            let first = arguments.first().map_or("", |word| word.text.trim_start_matches('-'));
            if first.starts_with('t') || first == "list" {
                reads(arguments, context)
            } else {
                Classification::unclear("what tar unpacks or packs")
            }
        }
        name => Classification::unclear(format_args!("a script of {name}")),
    }
}

/// `bash -c COMMAND`.
fn nested_shell(arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    match arguments {
        [option, command, ..] if matches!(option.text.as_str(), "-c" | "-lc" | "-ec") && !command.is_open => {
            line(&command.text, context)
        }
        _ => Classification::unclear("a script of a shell"),
    }
}

/// A program that runs another one.
fn wrapper(name: &str, arguments: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    let mut rest = arguments;
    while let Some((first, more)) = rest.split_first() {
        let text = first.text.as_str();
        match name {
            "command" if matches!(text, "-v" | "-V") => return Classification::new(Read, "it reads"),
            "xargs" if matches!(text, "-n" | "-I" | "-P" | "-L" | "-d") => rest = more.get(1..).unwrap_or_default(),
            "nice" if text == "-n" => rest = more.get(1..).unwrap_or_default(),
            "timeout" if text.starts_with(|c: char| c.is_ascii_digit()) => rest = more,
            "env" if text == "-S" || text.starts_with("--split") => {
                return Classification::unclear("env splits a text");
            }
            "env" if super::assigned(first).is_some() => return Classification::unclear("env sets variables"),
            _ if text.starts_with('-') => rest = more,
            _ => break,
        }
    }
    if name != "xargs" {
        return wrapped(rest, context);
    }
    // More arguments come from elsewhere, so where they lead is not known.
    let unknown = Word { is_open: true, ..Word::default() };
    let words: Vec<&Word> = rest.iter().copied().chain([&unknown].into_iter().filter(|_| !rest.is_empty())).collect();
    wrapped(&words, context)
}

/// A command that is given as words.
fn wrapped(words: &[&Word], context: &mut CommandContext<'_>) -> Classification {
    match words.split_first() {
        None => Classification::new(Read, "it reads"),
        Some((program, arguments)) => {
            context.depth += 1;
            let classified = if context.depth > super::MAX_DEPTH {
                Classification::unclear("it is nested too deeply")
            } else {
                classify(program, arguments, context)
            };
            context.depth -= 1;
            classified
        }
    }
}
