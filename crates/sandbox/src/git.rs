//! Runs git on untrusted repositories: it fetches files and runs nothing of them.
//!
//! Configuration of the system, the user and the repository is not read. Hooks, filters (including LFS), file system
//! monitors, credential helpers, submodules and all transports but one are off. Symbolic links become text files. Use
//! it with [`crate::tool::Tool`], in the sandbox.

use std::path::Path;

/// Settings of every call. Settings of the command line take precedence over those of any file.
const SETTINGS: [&str; 20] = [
    "protocol.allow=never",
    "core.hooksPath=/dev/null",
    "core.symlinks=false",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.sshCommand=/bin/false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.autocrlf=false",
    "credential.helper=",
    "submodule.recurse=false",
    "filter.lfs.smudge=",
    "filter.lfs.clean=",
    "filter.lfs.process=",
    "filter.lfs.required=false",
    "fetch.fsckObjects=true",
    "transfer.bundleURI=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
];

/// The parameters of a clone.
#[derive(Debug, Clone)]
pub struct Clone<'a> {
    /// The repository. The caller has checked that it is an address of the scheme below, and no option.
    pub url: &'a str,
    /// The only transport that is allowed: `https`, `http`, `git` or `file`.
    pub scheme: &'a str,
    /// A branch or tag, if not the default branch.
    pub reference: Option<&'a str>,
    /// The folder to make.
    pub target: &'a Path,
    /// More settings, as `key=value`.
    pub settings: &'a [String],
}

impl Clone<'_> {
    /// Arguments of git for this clone: shallow, one branch, no tags, no submodules, no template.
    pub fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let allowed = format!("protocol.{}.allow=always", self.scheme);
        for setting in SETTINGS.into_iter().chain([allowed.as_str()]).chain(self.settings.iter().map(String::as_str)) {
            args.extend(["-c".to_owned(), setting.to_owned()]);
        }
        args.extend(
            [
                "clone",
                "--quiet",
                "--depth=1",
                "--single-branch",
                "--no-tags",
                "--no-recurse-submodules",
                // A local repository is read through git's protocol, not by copying or linking its files.
                "--no-local",
                "--template=",
            ]
            .map(str::to_owned),
        );
        args.extend(self.reference.map(|reference| format!("--branch={reference}")));
        args.extend(["--".to_owned(), self.url.to_owned(), self.target.display().to_string()]);
        args
    }
}

/// The complete environment of git. `home` is a folder without configuration.
pub fn environment(home: &Path) -> Vec<(String, String)> {
    let home = home.display().to_string();
    [
        ("HOME", home.as_str()),
        ("XDG_CONFIG_HOME", &home),
        ("TMPDIR", &home),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "/bin/false"),
        ("SSH_ASKPASS", "/bin/false"),
        ("GIT_SSH_COMMAND", "/bin/false"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("LC_ALL", "C"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_before_the_command_and_the_address_after_the_last_option() {
        let clone = Clone {
            url: "https://e.org/r",
            scheme: "https",
            reference: Some("main"),
            target: Path::new("/t"),
            settings: &["http.followRedirects=false".to_owned()],
        };
        let args = clone.arguments();
        let command = args.iter().position(|arg| arg == "clone").unwrap();
        assert!(args[..command].chunks(2).all(|pair| pair[0] == "-c" && pair[1].contains('=')));
        assert!(args[..command].contains(&"protocol.https.allow=always".to_owned()));
        assert!(args[..command].contains(&"http.followRedirects=false".to_owned()));
        assert_eq!(args[args.len() - 4..], ["--branch=main", "--", "https://e.org/r", "/t"]);
    }
}
