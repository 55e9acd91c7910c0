//! The dependencies of a package, read and checked before npm runs.
//!
//! Only packages of the registry are accepted: repositories, addresses, files and folders are refused. npm never sees
//! the package's own `package.json`, lockfile or configuration; it gets a `package.json` with only the checked
//! dependencies, and a lockfile with only names, versions and hashes.

use super::source::{is_archive, is_npm_name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::Path};
use toolyard_beneath::{Folder, Links, explained};

/// Maximum size of `package.json`, in bytes.
const MAX_PACKAGE_JSON_BYTES: u64 = 1 << 20;
/// Maximum size of a lockfile, in bytes.
pub(super) const MAX_LOCK_BYTES: u64 = 32 << 20;
/// Maximum number of dependencies of one plugin.
const MAX_DEPENDENCIES: usize = 2_000;
/// A version or range has at most this many bytes.
const MAX_RANGE_BYTES: usize = 256;
/// Names of lockfiles; npm prefers the first.
const LOCKFILES: [&str; 2] = ["npm-shrinkwrap.json", "package-lock.json"];
/// The fields of a lockfile entry that are passed to npm: no address, no program, no script.
const KEPT: [&str; 14] = [
    "name",
    "version",
    "integrity",
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "peerDependenciesMeta",
    "optional",
    "dev",
    "devOptional",
    "peer",
    "inBundle",
    "os",
    "cpu",
];

/// Dependencies that npm is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Dependencies {
    private: bool,
    dependencies: Ranges,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    optional_dependencies: Ranges,
    /// The package's own lockfile, cleaned.
    #[serde(skip)]
    lock: Option<Value>,
}

/// Names and the versions that are acceptable.
type Ranges = BTreeMap<String, String>;

/// The part of `package.json` that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PackageJson {
    dependencies: Ranges,
    optional_dependencies: Ranges,
}

impl Dependencies {
    /// The `package.json` that npm gets.
    pub(super) fn package_json(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|e| e.to_string())
    }

    /// The lockfile for npm, if the package has one.
    pub(super) fn lock(&self) -> Option<Vec<u8>> {
        self.lock.as_ref().map(|lock| lock.to_string().into_bytes())
    }
}

/// The dependencies that a package needs and does not contain; `None` if there are none.
pub(super) fn wanted(package: &Path) -> Result<Option<Dependencies>, String> {
    let folder = Folder::open(package).map_err(|e| explained(e).to_string())?;
    let Some(text) = read(&folder, "package.json", MAX_PACKAGE_JSON_BYTES)? else { return Ok(None) };
    let manifest: PackageJson = serde_json::from_slice(&text).map_err(|e| format!("package.json: {e}"))?;
    let has_modules = folder.folder("node_modules", Links::Refuse).is_ok();
    let mut wanted = Dependencies {
        private: true,
        dependencies: manifest.dependencies,
        optional_dependencies: manifest.optional_dependencies,
        lock: None,
    };
    check_ranges("package.json", &wanted.dependencies)?;
    check_ranges("package.json", &wanted.optional_dependencies)?;
    let needs_nothing = wanted.dependencies.is_empty() && wanted.optional_dependencies.is_empty();
    for name in LOCKFILES {
        if let Some(text) = read(&folder, name, MAX_LOCK_BYTES)? {
            let cleaned = clean_lock(&text, &wanted).map_err(|why| format!("{name}: {why}"))?;
            wanted.lock = wanted.lock.or(cleaned);
        }
    }
    Ok((!needs_nothing && !has_modules).then_some(wanted))
}

fn read(folder: &Folder, name: &str, limit: u64) -> Result<Option<Vec<u8>>, String> {
    match folder.read(name, Links::Refuse, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn check_ranges(place: &str, ranges: &Ranges) -> Result<(), String> {
    if ranges.len() > MAX_DEPENDENCIES {
        return Err(format!("{place} names more than {MAX_DEPENDENCIES} dependencies"));
    }
    for (name, range) in ranges {
        if !is_npm_name(name) {
            return Err(format!("{place} depends on {name:?}, which is no package name"));
        }
        if !is_range(range) {
            return Err(format!(
                "{place} depends on {name} at {range:?}; only packages of the registry are installed, no repositories, addresses, files or folders"
            ));
        }
    }
    Ok(())
}

/// Whether npm looks this up in its registry: a version, a range, a tag, or another package's name with one of these.
fn is_range(text: &str) -> bool {
    let text = match text.strip_prefix("npm:") {
        Some(alias) => {
            let Some(at) = alias.get(1..).and_then(|rest| rest.find('@')).map(|at| at + 1) else {
                return is_npm_name(alias);
            };
            if !is_npm_name(&alias[..at]) {
                return false;
            }
            &alias[at + 1..]
        }
        None => text,
    };
    text.len() <= MAX_RANGE_BYTES
        && !is_archive(text)
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b" .+-^~<>=*|".contains(&b))
}

/// A lockfile with what npm needs to take the same versions with the same hashes; `None` for a format older than npm 7.
fn clean_lock(text: &[u8], wanted: &Dependencies) -> Result<Option<Value>, String> {
    let lock: Map<String, Value> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let Some(packages) = lock.get("packages").and_then(Value::as_object) else { return Ok(None) };
    let mut cleaned = Map::new();
    cleaned.insert(String::new(), json!(wanted));
    for (place, entry) in packages {
        if place.is_empty() {
            continue;
        }
        let entry = check_entry(place, entry)?;
        if let Some(address) = entry.get("resolved")
            && !address.as_str().is_some_and(|text| text.starts_with("https://") || text.starts_with("http://"))
        {
            return Err(format!("{place} comes from {address}; only packages of the registry are installed"));
        }
        let is_bundled = entry.get("inBundle") == Some(&Value::Bool(true));
        if !is_bundled && !entry.get("integrity").is_some_and(Value::is_string) {
            // A version without a hash pins nothing: npm requests it from the registry again, with its hash.
            continue;
        }
        // Addresses are dropped: the registry in use is asked, and the hash must fit.
        let kept = entry.iter().filter(|(key, _)| KEPT.contains(&key.as_str()));
        cleaned.insert(place.clone(), kept.map(|(key, value)| (key.clone(), value.clone())).collect());
    }
    if cleaned.len() > MAX_DEPENDENCIES + 1 {
        return Err(format!("it names more than {MAX_DEPENDENCIES} packages"));
    }
    Ok(Some(json!({"lockfileVersion": 3, "requires": true, "packages": cleaned})))
}

/// Checks the lockfile that npm made: every package is from the registry and has a hash. Gives the places of those that npm
/// must install on every machine.
pub(super) fn check_lock(text: &[u8]) -> Result<Vec<String>, String> {
    let lock: Map<String, Value> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let packages = lock.get("packages").and_then(Value::as_object).ok_or("npm 9 or newer is needed")?;
    if packages.len() > MAX_DEPENDENCIES + 1 {
        return Err(format!("it brings more than {MAX_DEPENDENCIES} packages"));
    }
    let mut required = Vec::new();
    for (place, entry) in packages.iter().filter(|(place, _)| !place.is_empty()) {
        let entry = check_entry(place, entry)?;
        let is_set = |key: &str| entry.get(key) == Some(&Value::Bool(true));
        if !["optional", "devOptional", "dev", "peer", "inBundle"].into_iter().any(is_set) {
            required.push(place.clone());
        }
        if let Some(address) = entry.get("resolved") {
            // npm was configured to leave out addresses of its registry, so any remaining address points elsewhere.
            return Err(format!("{place} comes from {address}; only packages of the registry are installed"));
        }
        let hash = entry.get("integrity").and_then(Value::as_str).unwrap_or_default();
        let is_bundled = entry.get("inBundle") == Some(&Value::Bool(true));
        if !is_bundled && !hash.starts_with("sha512-") && !hash.starts_with("sha1-") {
            return Err(format!("the registry gives no hash for {place}"));
        }
    }
    Ok(required)
}

/// The checks of every entry of a lockfile.
fn check_entry<'a>(place: &str, entry: &'a Value) -> Result<&'a Map<String, Value>, String> {
    let entry = entry.as_object().ok_or_else(|| format!("{place:?} is no object"))?;
    let is_place =
        place.strip_prefix("node_modules/").is_some_and(|rest| rest.split("/node_modules/").all(is_npm_name));
    if !is_place {
        return Err(format!("{place:?} is no place of a package"));
    }
    if entry.get("link").is_some_and(|link| link != &Value::Bool(false)) {
        return Err(format!("{place} is a link to a folder"));
    }
    let version = entry.get("version").and_then(Value::as_str).unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+-".contains(&b);
    if !version.starts_with(|c: char| c.is_ascii_digit()) || !version.bytes().all(plain) {
        return Err(format!("{place} has the version {version:?}; only packages of the registry are installed"));
    }
    if entry.get("name").is_some_and(|name| !name.as_str().is_some_and(is_npm_name)) {
        return Err(format!("{place} has another name that is no package name"));
    }
    for key in ["dependencies", "optionalDependencies"] {
        let Some(ranges) = entry.get(key) else { continue };
        let ranges: Ranges = serde_json::from_value(ranges.clone()).map_err(|e| format!("{place}: {key}: {e}"))?;
        check_ranges(place, &ranges)?;
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, Value)]) -> Result<Option<Dependencies>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content.to_string()).unwrap();
        }
        wanted(dir.path())
    }

    #[test]
    fn only_packages_of_the_registry_are_wanted() {
        for range in
            ["1.2.3", "^1.2", "~1", "*", "", "latest", ">=1 <2 || 3.x", "1.0.0-rc.1+b", "npm:other@^1.0.0", "npm:@s/o"]
        {
            let found = package(&[("package.json", json!({"dependencies": {"a": range}}))]);
            assert!(found.unwrap().is_some(), "{range}");
        }
        for range in [
            "git+ssh://git@e.org/x.git",
            "git://e.org/x",
            "git+file:///srv/x",
            "github:owner/x",
            "owner/x",
            "gist:abc",
            "https://e.org/x.tgz",
            "http://e.org/x",
            "file:../x",
            "file:x.tgz",
            "link:../x",
            "workspace:*",
            "./x",
            "../x",
            "~/x",
            "/srv/x",
            "x.tgz",
            "npm:owner/x@1",
            "npm:x@git://e.org/x",
        ] {
            for key in ["dependencies", "optionalDependencies"] {
                let refused = package(&[("package.json", json!({key: {"a": range}}))]);
                assert!(refused.unwrap_err().contains("only packages of the registry"), "{range}");
            }
        }
        for name in ["../a", "a/b", "-g", ".bin", "A b", "a.tgz"] {
            let refused = package(&[("package.json", json!({"dependencies": {name: "1"}}))]);
            assert!(refused.unwrap_err().contains("no package name"), "{name}");
        }
        assert!(package(&[("package.json", json!({"dependencies": {"a": 7}}))]).is_err());
        assert_eq!(package(&[("package.json", json!({"scripts": {"install": "x"}}))]), Ok(None));
        assert_eq!(package(&[]), Ok(None));
    }

    #[test]
    fn npm_sees_nothing_of_the_package_but_names_and_ranges() {
        let manifest = json!({
            "name": "p", "scripts": {"preinstall": "x"}, "workspaces": ["w"], "gypfile": true, "bin": {"git": "x"},
            "overrides": {"a": "file:x"}, "devDependencies": {"d": "file:x"}, "dependencies": {"a": "1"},
        });
        let wanted = package(&[("package.json", manifest)]).unwrap().unwrap();
        let seen: Value = serde_json::from_slice(&wanted.package_json().unwrap()).unwrap();
        assert_eq!(seen, json!({"private": true, "dependencies": {"a": "1"}}));
    }

    #[test]
    fn a_lockfile_keeps_versions_and_hashes_and_loses_addresses() {
        let manifest = json!({"dependencies": {"a": "^1"}});
        let lock = json!({"lockfileVersion": 3, "packages": {
            "": {"dependencies": {"a": "file:x"}, "scripts": {"install": "x"}},
            "node_modules/a": {"version": "1.2.0", "resolved": "https://evil.example/a.tgz", "integrity": "sha512-x", "bin": {"sh": "x"}, "hasInstallScript": true},
            "node_modules/a/node_modules/@s/b": {"version": "2.0.0", "integrity": "sha512-y"},
        }});
        let files = [("package.json", manifest.clone()), ("package-lock.json", lock)];
        let seen: Value = serde_json::from_slice(&package(&files).unwrap().unwrap().lock().unwrap()).unwrap();
        assert_eq!(seen["packages"][""], json!({"private": true, "dependencies": {"a": "^1"}}));
        assert_eq!(seen["packages"]["node_modules/a"], json!({"version": "1.2.0", "integrity": "sha512-x"}));
        let git = "git+ssh://git@e.org/x.git#abc";
        for (place, entry) in [
            ("node_modules/a", json!({"version": "1.0.0", "resolved": git})),
            ("node_modules/a", json!({"version": git})),
            ("node_modules/a", json!({"version": "1.0.0", "resolved": "file:../x"})),
            ("node_modules/a", json!({"resolved": "../x", "link": true})),
            ("node_modules/../../x", json!({"version": "1.0.0"})),
            ("../x", json!({"version": "1.0.0"})),
            ("packages/x", json!({"version": "1.0.0"})),
            ("node_modules/a", json!({"version": "1.0.0", "dependencies": {"b": git}})),
        ] {
            for name in LOCKFILES {
                let lock = json!({"lockfileVersion": 3, "packages": {place: entry}});
                let refused = package(&[("package.json", manifest.clone()), (name, lock)]);
                assert!(refused.is_err(), "{place} {entry}");
            }
        }
        let old = json!({"lockfileVersion": 1, "dependencies": {"a": {"version": git}}});
        let found = package(&[("package.json", manifest), ("package-lock.json", old)]).unwrap().unwrap();
        assert!(found.lock().is_none(), "a lockfile of the old format is not used");
    }

    #[test]
    fn what_npm_found_must_have_hashes_and_no_addresses() {
        let lock = |entry: Value| json!({"packages": {"": {}, "node_modules/a": entry}}).to_string().into_bytes();
        check_lock(&lock(json!({"version": "1.0.0", "integrity": "sha512-x"}))).unwrap();
        check_lock(&lock(json!({"version": "1.0.0", "inBundle": true}))).unwrap();
        for bad in [
            json!({"version": "1.0.0"}),
            json!({"version": "1.0.0", "integrity": "sha512-x", "resolved": "https://e.org/a.tgz"}),
            json!({"version": "1.0.0", "integrity": "sha512-x", "resolved": "git+ssh://e.org/a"}),
            json!({"link": true, "resolved": "../x"}),
        ] {
            assert!(check_lock(&lock(bad.clone())).is_err(), "{bad}");
        }
    }
}
