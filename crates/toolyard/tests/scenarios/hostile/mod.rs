//! Packages that try to run code, read or write files of the user, or fill the disk while they are installed. Each is
//! installed by the real program under [`trace`]. For each package, nothing of it runs, no program runs outside the
//! sandbox, nothing changes outside the folder of plugins, and a refused package leaves nothing behind.

mod cases;
mod packages;
mod trace;

use crate::harness::Place;
use packages::Registry;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use trace::Executed;

/// A home with files that a package could steal or destroy, and a registry.
struct TestHome {
    place: Place,
    /// Files of the user. Nothing may change here.
    outside: PathBuf,
    /// What a package would make if any of its code ran.
    witness: PathBuf,
    registry: Registry,
}

/// The result of an installation.
struct Outcome {
    code: i32,
    answer: Value,
    executed: Vec<Executed>,
    /// The folder of the installed plugin.
    folder: PathBuf,
}

impl TestHome {
    fn new() -> Self {
        let place = Place::new();
        let outside = place.vault.parent().unwrap().join("outside");
        for folder in [outside.join("keys"), place.home.clone()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(outside.join("keys/SKILL.md"), "---\nname: key\ndescription: d\n---\nhush").unwrap();
        let witness = outside.join("witness");
        let registry = Registry::start();
        place.config(&format!("[plugins]\nnpmRegistry = \"{}\"\n", registry.url));
        let test_home = Self { place, outside, witness, registry };
        test_home.configure_the_user();
        test_home
    }

    /// Configuration of the user that a package could make use of: git and npm would run the payload for any package.
    fn configure_the_user(&self) {
        let payload = self.payload();
        let hooks = self.outside.join("template/hooks");
        std::fs::create_dir_all(&hooks).unwrap();
        for hook in ["post-checkout", "post-merge", "reference-transaction"] {
            std::fs::copy(&payload, hooks.join(hook)).unwrap();
        }
        let (payload, template) = (payload.display(), self.outside.join("template").display().to_string());
        let gitconfig = format!(
            "[filter \"evil\"]\n\tsmudge = {payload}\n\tprocess = {payload}\n\trequired = true\n[filter \"lfs\"]\n\tsmudge = {payload}\n\tprocess = {payload}\n\trequired = true\n[core]\n\tfsmonitor = {payload}\n\thooksPath = {template}/hooks\n\tsshCommand = {payload}\n[init]\n\ttemplateDir = {template}\n[credential]\n\thelper = {payload}\n[protocol]\n\tallow = always\n[submodule]\n\trecurse = true\n"
        );
        std::fs::write(self.place.home.join(".gitconfig"), gitconfig).unwrap();
        let npmrc = format!("git={payload}\nscript-shell={payload}\nignore-scripts=false\nprefix={template}\n");
        std::fs::write(self.place.home.join(".npmrc"), npmrc).unwrap();
    }

    /// A program that makes the witness.
    fn payload(&self) -> PathBuf {
        let path = self.outside.join("payload");
        std::fs::write(&path, self.payload_text()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn payload_text(&self) -> String {
        format!("#!/bin/sh\ntouch {}\n", self.witness.display())
    }

    /// A folder with a valid package: a manifest with one skill, and further files.
    fn package(&self, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.place.vault.parent().unwrap().join("package");
        write_files(&folder, &[("openclaw.plugin.json", MANIFEST), ("skills/good/SKILL.md", "# Good")]);
        write_files(&folder, files);
        folder
    }

    /// Installs a package and checks the rules for every package.
    fn install(&self, source: &str) -> Outcome {
        let before = snapshot(&self.outside);
        let program = PathBuf::from(env!("CARGO_BIN_EXE_toolyard")).canonicalize().unwrap();
        let text = |path: &Path| path.display().to_string();
        let (home, vault) = (text(&self.place.home), text(&self.place.vault));
        let args = ["--home", &home, "--vault", &vault, "plugins", "install", source, "--json"].map(str::to_owned);
        let env = [("PATH", "/usr/bin:/bin"), ("HOME", &home), ("USER", "tester")];
        let env = env.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let scratch = tempfile::tempdir().unwrap();
        let traced = trace::trace(&program, &args, &env, scratch.path());
        let answer: Value = serde_json::from_str(traced.stdout.trim())
            .unwrap_or_else(|e| panic!("{source}: {e}: {}{}", traced.stdout, traced.stderr));
        let own = |executed: &Executed| {
            executed.program == program || executed.program == program.with_file_name("toolyard-script")
        };
        assert!(traced.executed.iter().any(own), "the trace saw the program itself: {:?}", traced.executed);
        for executed in traced.executed.iter().filter(|executed| !own(executed)) {
            assert!(executed.confined, "{source}: {executed:?} ran outside walls");
            assert!(!executed.arguments.contains("payload"), "{source}: {executed:?} is the package's");
        }
        assert!(!self.witness.exists(), "{source}: code of the package ran: {:?}", traced.executed);
        assert_eq!(snapshot(&self.outside), before, "{source}: files of the user changed");
        let plugins = self.place.home.join("plugins");
        let staging: Vec<_> = std::fs::read_dir(plugins.join(".staging")).into_iter().flatten().flatten().collect();
        assert!(staging.is_empty(), "{source}: {staging:?} is left behind");
        let executed = traced.executed.into_iter().filter(|executed| !own(executed)).collect();
        Outcome { code: traced.code, answer, executed, folder: plugins.join("hostile/package") }
    }

    /// Installs a package that must be refused, and checks the error's code and text.
    fn refuse(&self, source: &str, code: &str, why: &str) -> Outcome {
        let outcome = self.install(source);
        let error = &outcome.answer["error"];
        assert_ne!(outcome.code, 0, "{source}: {}", outcome.answer);
        assert_eq!(error["code"], code, "{source}: {}", outcome.answer);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(why), "{source}: {why:?} is not in {message:?}");
        let plugins = self.place.home.join("plugins");
        let left: Vec<_> = std::fs::read_dir(&plugins)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name != ".staging")
            .collect();
        assert!(left.is_empty(), "{source}: {left:?} is left behind");
        outcome
    }

    /// Installs a package that is accepted because nothing of it runs.
    fn accept(&self, source: &str) -> Outcome {
        let outcome = self.install(source);
        assert_eq!(outcome.code, 0, "{source}: {}", outcome.answer);
        assert_eq!(outcome.answer["plugin"]["id"], "hostile", "{source}: {}", outcome.answer);
        outcome
    }

    /// A repository of files, with more done to it before the commit.
    fn repository(&self, files: &[(&str, &str)], more: impl FnOnce(&Path)) -> String {
        let folder = self.package(files);
        git(&folder, &["init", "-q"]);
        more(&folder);
        git(&folder, &["add", "-A"]);
        git(&folder, &["commit", "-q", "-m", "first"]);
        format!("git:file://{}", folder.display())
    }

    fn tarball(&self, entries: &[Vec<u8>]) -> String {
        let file = self.place.vault.parent().unwrap().join("package.tgz");
        let mut all = vec![
            packages::entry("p/openclaw.plugin.json", b'0', "", MANIFEST.as_bytes()),
            packages::entry("p/skills/good/SKILL.md", b'0', "", b"# Good"),
        ];
        all.extend_from_slice(entries);
        std::fs::write(&file, packages::packed(&all)).unwrap();
        file.display().to_string()
    }
}

const MANIFEST: &str = r#"{"id": "hostile", "configSchema": {"type": "object"}, "skills": ["skills"]}"#;

/// Runs git for a test, without the user's configuration.
fn git(folder: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    let mut command = std::process::Command::new("/usr/bin/git");
    command.current_dir(folder).args(identity).args(["-c", "protocol.file.allow=always"]).args(args);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn write_files(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Every path below a folder with what it holds and its mode.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = std::fs::symlink_metadata(&path).unwrap();
            let content = if about.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if about.is_dir() {
                open.push(path.clone());
            }
            found.insert(path, (about.permissions().mode(), content));
        }
    }
    found
}

/// Names of files below an installed plugin.
fn installed_names(folder: &Path) -> Vec<String> {
    let names = snapshot(folder).into_keys();
    names.map(|path| path.strip_prefix(folder).unwrap().display().to_string()).collect()
}

/// Fails the test where a program that it runs is missing.
fn need(program: &str) {
    assert!(Path::new("/usr/bin").join(program).exists(), "{program} is missing from /usr/bin: install it");
}

/// Everything a package can put beside its files to have npm run code.
fn npm_traps(test_home: &TestHome) -> Vec<(String, String)> {
    let payload = test_home.payload().display().to_string();
    let npmrc = format!(
        "git=./payload\nscript-shell={payload}\nshell={payload}\nnode-options=--require ./payload.js\nprefix={out}\ncafile={out}/keys/SKILL.md\nignore-scripts=false\nallow-git=all\nregistry=http://127.0.0.1:1/\n",
        out = test_home.outside.display()
    );
    let code = format!("require('fs').writeFileSync({:?}, 'x')", test_home.witness.display().to_string());
    let gyp =
        format!("{{'targets': [{{'target_name': 'x', 'sources': ['<!(touch {})']}}]}}", test_home.witness.display());
    [
        (".npmrc", npmrc),
        ("payload", test_home.payload_text()),
        ("payload.js", code),
        ("binding.gyp", gyp),
        ("node-gyp", test_home.payload_text()),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

/// Scripts that npm knows, all of them the payload.
fn scripts(test_home: &TestHome) -> Value {
    let payload = test_home.payload().display().to_string();
    let names =
        ["preinstall", "install", "postinstall", "prepare", "prepack", "postpack", "prepublish", "dependencies"];
    let all: serde_json::Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(payload))).collect();
    Value::Object(all)
}
