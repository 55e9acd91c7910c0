//! File names in packages: which are refused, and which pairs would be the same file on another system.

use std::collections::HashMap;
use unicode_normalization::UnicodeNormalization;

/// A name has at most this many bytes, as file systems have it.
const MAX_NAME_BYTES: usize = 255;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 64;

/// The names of one package so far, as a file system would compare them that ignores case and Unicode's spellings.
#[derive(Default)]
pub(super) struct Names {
    seen: HashMap<String, String>,
}

impl Names {
    /// Takes a relative path with `/` between its parts. The same path may be taken again; one that differs from an earlier
    /// one only in case or in Unicode's spelling is refused.
    pub(super) fn take(&mut self, path: &str) -> Result<(), String> {
        let parts: Vec<&str> = path.split('/').collect();
        if parts.len() > MAX_DEPTH {
            return Err(format!("{} lies more than {MAX_DEPTH} folders deep", shown(path)));
        }
        let mut end = 0;
        for part in parts {
            check(part)?;
            end += part.len();
            let upto = &path[..end];
            let earlier = self.seen.entry(folded(upto)).or_insert_with(|| upto.to_owned());
            if earlier != upto {
                return Err(format!(
                    "{} and {} differ only in case or in Unicode's spelling",
                    shown(earlier),
                    shown(upto)
                ));
            }
            end += 1;
        }
        Ok(())
    }
}

/// Whether a single name is acceptable.
pub(super) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(format!("{} leads out of the package", shown(name)));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("a name is longer than {MAX_NAME_BYTES} bytes: {}", shown(name)));
    }
    match name.chars().find(|c| c.is_control() || is_invisible(*c)) {
        Some(_) => {
            Err(format!("{} has a character that is not shown or changes the direction of writing", shown(name)))
        }
        None => Ok(()),
    }
}

/// Zero-width characters and characters that change the writing direction: two names could look the same.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// One spelling for all that a file system may take for the same: compatible characters, case (with the dotless i), accents
/// in one piece.
fn folded(path: &str) -> String {
    let upper: String = path.nfkc().flat_map(char::to_uppercase).collect();
    let lower: String = upper.chars().flat_map(char::to_lowercase).collect();
    // The lower case of İ is an i with a dot above.
    lower.replace("i\u{307}", "i").nfkc().collect()
}

/// A name for an error message, with what cannot be shown escaped.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(120).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_one_elsewhere_are_refused() {
        for (a, b) in [
            ("README.md", "readme.md"),
            ("src/a.js", "SRC/b.js"),
            ("caf\u{e9}", "cafe\u{301}"),
            ("lib/I", "lib/\u{131}"),
            ("\u{130}x", "ix"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{212a}ey", "key"),
            ("\u{fb01}le", "file"),
            ("\u{17f}et", "set"),
        ] {
            let mut names = Names::default();
            names.take(a).unwrap();
            let why = names.take(b).unwrap_err();
            assert!(why.contains("differ only"), "{a} {b}: {why}");
            assert!(names.take(a).is_ok(), "the same again");
        }
        let mut names = Names::default();
        for good in ["a/b/c.js", "a/b/d.js", "a/B2", "übung.md", "日本語.md", "node_modules/@s/x"] {
            names.take(good).unwrap();
        }
    }

    #[test]
    fn names_that_deceive_or_lead_out_are_refused() {
        let long = "x".repeat(256);
        let deep = vec!["d"; 65].join("/");
        for bad in
            ["..", "a/../b", "a//b", "/etc", ".", "a\u{202e}gpj.exe", "a\u{200b}", "a\nb", "a\u{1b}[2J", &long, &deep]
        {
            assert!(Names::default().take(bad).is_err(), "{bad:?}");
        }
    }
}
