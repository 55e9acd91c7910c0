//! Path rules: which vault-relative paths a call may name. The rules compare text; the vault itself checks links and
//! files.

use super::layers::PolicyError;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolyard_protocol::Sandbox;
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// Why a path is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathDenial {
    /// The reason that is reported to the caller.
    pub(super) reason: String,
    /// The configuration key that refused it.
    pub(super) rule: String,
}

/// The path rules, ready to check with.
#[derive(Debug)]
pub(super) struct PathRules {
    key: String,
    enabled: bool,
    roots: Vec<String>,
    patterns: Vec<String>,
    globs: PathGlobs,
}

impl PathRules {
    pub(super) fn new(key: &str, sandbox: &Sandbox) -> Result<Self, PolicyError> {
        let mut roots = Vec::new();
        for root in &sandbox.allowed_roots {
            let root = normal(root);
            if root.split('/').any(|segment| segment == "..") {
                return Err(PolicyError::new(format!("{key}.allowedRoots"), "a root cannot contain \"..\""));
            }
            roots.push(root);
        }
        if sandbox.deny_patterns.iter().any(String::is_empty) {
            return Err(PolicyError::new(format!("{key}.denyPatterns"), "an empty pattern would refuse every path"));
        }
        Ok(Self {
            key: key.to_owned(),
            enabled: sandbox.enabled,
            roots,
            patterns: sandbox.deny_patterns.clone(),
            globs: PathGlobs::new(&format!("{key}.denyGlobs"), &sandbox.deny_globs, LetterCase::Ignored)?,
        })
    }

    /// Refuses a path that is outside the allowed roots or matches a deny rule.
    pub(super) fn check(&self, path: &str) -> Result<(), PathDenial> {
        if !self.enabled {
            return Ok(());
        }
        let shown: String = path.chars().take(120).collect();
        let deny = |reason, rule: &str| Err(PathDenial { reason, rule: format!("{}.{rule}", self.key) });
        for pattern in &self.patterns {
            // "a..b.md" is a fine name; ".." as a whole segment leaves the folder.
            let hit = if pattern == ".." {
                path.split(['/', '\\']).any(|s| s == "..")
            } else {
                path.contains(pattern.as_str())
            };
            if hit {
                return deny(format!("the path {shown:?} contains {pattern:?}"), "denyPatterns");
            }
        }
        let path = normal(path);
        if let Some(glob) = self.globs.matching(&path) {
            return deny(format!("the path {shown:?} is off limits ({glob})"), "denyGlobs");
        }
        if !self.roots.iter().any(|root| is_below(&path, root)) {
            let roots = self.roots.iter().map(|root| format!("/{root}")).collect::<Vec<_>>().join(", ");
            return deny(format!("the path {shown:?} lies outside {roots}"), "allowedRoots");
        }
        Ok(())
    }
}

/// The path rules of a policy snapshot, for tools that find paths by themselves (lists, searches, link rewriting): such
/// a tool must not return a path that the call may not name.
#[derive(Debug)]
pub struct PathFilter(PathRules);

impl PathFilter {
    /// The rules of a sandbox. A sandbox that cannot be read admits nothing.
    pub fn new(sandbox: &Sandbox) -> Self {
        let nothing = || PathRules {
            key: String::new(),
            enabled: true,
            roots: Vec::new(),
            patterns: Vec::new(),
            globs: PathGlobs { set: GlobSet::empty(), words: Vec::new() },
        };
        Self(PathRules::new("policy.sandbox", sandbox).unwrap_or_else(|_| nothing()))
    }

    /// Whether a path may be touched.
    pub fn allows(&self, path: &str) -> bool {
        self.0.check(path).is_ok()
    }

    /// Whether a folder contains an allowed path.
    pub fn leads_to_allowed(&self, folder: &str) -> bool {
        let folder = normal(folder);
        !self.0.enabled || self.allows(&folder) || self.0.roots.iter().any(|root| is_below(root, &folder))
    }
}

/// The roots that are inside both lists.
pub(super) fn common_roots(a: &[String], b: &[String]) -> Vec<String> {
    let mut common: Vec<String> = Vec::new();
    for (x, y) in a.iter().flat_map(|x| b.iter().map(move |y| (normal(x), normal(y)))) {
        let deeper = if is_below(&x, &y) { Some(x) } else { is_below(&y, &x).then_some(y) };
        if let Some(root) = deeper.map(|root| format!("/{root}"))
            && !common.contains(&root)
        {
            common.push(root);
        }
    }
    common
}

fn is_below(path: &str, root: &str) -> bool {
    root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// NFC, without empty and `.` segments and without a slash at either end; `""` is the vault's root.
pub(super) fn normal(path: &str) -> String {
    let composed: String = if is_nfc(path) { path.to_owned() } else { path.nfc().collect() };
    let segments: Vec<&str> = composed.split(['/', '\\']).filter(|s| !s.is_empty() && *s != ".").collect();
    segments.join("/")
}

/// Whether letter case makes a difference. On some disks it makes none, and a rule that guards `.obsidian` must guard
/// `.Obsidian` there too; on others, a rule that frees `Notes` must not free `notes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LetterCase {
    /// For rules that deny paths: `Notes` also matches `notes`.
    Ignored,
    /// For rules that allow paths.
    Matters,
}

/// Globs on vault-relative paths.
#[derive(Debug)]
pub(super) struct PathGlobs {
    set: GlobSet,
    /// The words of the set, by position.
    words: Vec<String>,
}

impl PathGlobs {
    pub(super) fn new(key: &str, globs: &[String], letter_case: LetterCase) -> Result<Self, PolicyError> {
        let ignore_case = letter_case == LetterCase::Ignored;
        let mut set = GlobSetBuilder::new();
        let mut words = Vec::new();
        for word in globs {
            let relative = word.trim_start_matches('/');
            if relative.is_empty() {
                return Err(PolicyError::new(key, "an empty glob; \"**\" stands for everything"));
            }
            // "x/**" is meant to cover the folder x itself as well.
            let folder = relative.strip_suffix("/**").filter(|folder| !folder.is_empty());
            for pattern in std::iter::once(relative).chain(folder) {
                let glob = GlobBuilder::new(pattern).literal_separator(true).case_insensitive(ignore_case).build();
                let glob =
                    glob.map_err(|error| PolicyError::new(key, format!("{word:?} is not a glob: {}", error.kind())))?;
                set.add(glob);
                words.push(word.clone());
            }
        }
        let set = set.build().map_err(|error| PolicyError::new(key, error.kind().to_string()))?;
        Ok(Self { set, words })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The glob that a normalised path matches.
    fn matching(&self, normal_path: &str) -> Option<&str> {
        if self.words.is_empty() {
            return None;
        }
        let first = self.set.matches(normal_path).into_iter().next()?;
        self.words.get(first).map(String::as_str)
    }

    pub(super) fn is_match(&self, path: &str) -> bool {
        self.matching(&normal(path)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(change: impl FnOnce(&mut Sandbox)) -> PathRules {
        let mut sandbox = Sandbox::default();
        change(&mut sandbox);
        PathRules::new("policy.sandbox", &sandbox).unwrap()
    }

    fn rule_of(rules: &PathRules, path: &str) -> Option<String> {
        rules.check(path).err().map(|denial| denial.rule)
    }

    #[test]
    fn the_defaults_guard_what_they_say() {
        let rules = rules(|_| {});
        for fine in ["a.md", "/a.md", "folder/a..b.md", "...", "", "/", "obsidian/x", "a/.gitkeep"] {
            assert_eq!(rules.check(fine), Ok(()), "{fine}");
        }
        for (bad, rule) in [
            ("../a.md", "denyPatterns"),
            ("a/../b", "denyPatterns"),
            ("a/..", "denyPatterns"),
            ("a\\..\\b", "denyPatterns"),
            ("file://x", "denyPatterns"),
            (".obsidian", "denyGlobs"),
            (".obsidian/app.json", "denyGlobs"),
            (".Obsidian/app.json", "denyGlobs"),
            ("./.git/config", "denyGlobs"),
            ("//.trash//x/", "denyGlobs"),
        ] {
            assert_eq!(rule_of(&rules, bad), Some(format!("policy.sandbox.{rule}")), "{bad}");
        }
    }

    #[test]
    fn roots_hold_whole_folders() {
        let rules = rules(|s| s.allowed_roots = vec!["/Notes".into(), "Work/2024/".into()]);
        for fine in ["Notes", "Notes/a.md", "/Notes/b/c.md", "Work/2024/x"] {
            assert_eq!(rules.check(fine), Ok(()), "{fine}");
        }
        for bad in ["", "Notes2/a.md", "notes/a.md", "Work", "Work/2023"] {
            assert_eq!(rule_of(&rules, bad).as_deref(), Some("policy.sandbox.allowedRoots"), "{bad}");
        }
    }

    #[test]
    fn composed_and_decomposed_letters_are_the_same_path() {
        let rules = rules(|s| s.deny_globs = vec!["caf\u{e9}/**".into()]);
        assert!(rules.check("cafe\u{301}/x").is_err());
    }

    #[test]
    fn off_is_off_and_no_roots_is_nothing() {
        assert!(rules(|s| s.enabled = false).check("../.git/config").is_ok());
        assert!(rules(|s| s.allowed_roots.clear()).check("a").is_err());
    }

    #[test]
    fn common_roots_are_the_deeper_ones() {
        let list = |roots: &[&str]| roots.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>();
        assert_eq!(common_roots(&list(&["/"]), &list(&["A", "B/c"])), ["/A", "/B/c"]);
        assert_eq!(common_roots(&list(&["/A/x", "B"]), &list(&["A", "B/c", "C"])), ["/A/x", "/B/c"]);
        assert_eq!(common_roots(&list(&["A"]), &list(&["AB"])), Vec::<String>::new());
    }

    #[test]
    fn bad_rules_name_their_key() {
        let error = |change: fn(&mut Sandbox)| {
            let mut sandbox = Sandbox::default();
            change(&mut sandbox);
            PathRules::new("policy.sandbox", &sandbox).unwrap_err().key
        };
        assert_eq!(error(|s| s.deny_globs = vec!["a[".into()]), "policy.sandbox.denyGlobs");
        assert_eq!(error(|s| s.deny_globs = vec!["/".into()]), "policy.sandbox.denyGlobs");
        assert_eq!(error(|s| s.allowed_roots = vec!["a/../b".into()]), "policy.sandbox.allowedRoots");
        assert_eq!(error(|s| s.deny_patterns = vec![String::new()]), "policy.sandbox.denyPatterns");
    }

    proptest! {
        #[test]
        fn any_glob_is_refused_or_works_on_any_path(glob in any::<String>(), path in any::<String>()) {
            if let Ok(globs) = PathGlobs::new("k", std::slice::from_ref(&glob), LetterCase::Ignored) {
                let _ = globs.is_match(&path);
            }
            let _ = rules(|_| {}).check(&path);
        }

        #[test]
        fn normalising_twice_changes_nothing(path in any::<String>()) {
            prop_assert_eq!(normal(&normal(&path)), normal(&path));
        }
    }
}
