//! Detects secrets in notes: private keys, tokens with a known prefix, `password: …`, card numbers. Text that only
//! resembles a secret is not reported: a note about passwords is not a password.

use regex::Regex;
use toolyard_engine::redact::{MARKS, MIN_MARKED};

/// The name before a secret value, as people write it down.
const NAMES: &str = r"pass(?:word|wort|phrase|wd)|kennwort|pwd|(?:api|access|private|secret|encryption)[ _-]?key|(?:access|auth|api|bearer|refresh)[ _-]?token|client[ _-]?secret|bearer|contrase[nñ]a|mot de passe|senha|wachtwoord|l[oö]senord|adgangskode|salasana|has[lł]o|heslo|jelsz[oó]|[sş]ifre|пароль";
/// The same in scripts that put no space before the name.
const NAMES_WITHOUT_SPACES: &str = "密码|密碼|パスワード|비밀번호";
/// Words that stand for a password in example URLs.
const PLACEHOLDERS: [&str; 6] = ["password", "pass", "pwd", "secret", "passwd", "changeme"];
/// Characters allowed between a name and its value besides a colon: spaces, quotes, Markdown markers, a table border.
const AROUND_NAME: &str = r"[\s*_`'\x22|]*";
/// Quotes and Markdown marks that may surround a value.
const AROUND: &str = "*_`\"'|()[]<>,;";
/// A shorter value is an ordinary word.
const MIN_VALUE_CHARS: usize = 6;
/// A value of letters alone is secret from this length on, if upper and lower case alternate.
const MIN_LETTERS: usize = 10;

/// Detects secrets.
#[derive(Debug)]
pub(super) struct SecretFinder {
    private_key: Option<Regex>,
    token: Option<Regex>,
    named: Option<Regex>,
    card: Option<Regex>,
    address: Option<Regex>,
}

impl SecretFinder {
    pub(super) fn new() -> Self {
        let marks: Vec<String> = MARKS.iter().map(|mark| regex::escape(mark)).collect();
        let rule = |pattern: &str| Regex::new(pattern).ok();
        Self {
            private_key: rule(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
            token: rule(&format!(r"(?:^|[^A-Za-z0-9])(?:{})[A-Za-z0-9_.~+/=-]{{{MIN_MARKED},}}", marks.join("|"))),
            named: rule(&format!(
                r"(?i)(?:(?:^|[^\p{{L}}\p{{N}}])(?:{NAMES})|{NAMES_WITHOUT_SPACES}){AROUND_NAME}(?:[:=：＝]|(?:is|ist|es|est)\b)?{AROUND_NAME}(\S+)"
            )),
            address: rule(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]*:([^\s/@]{3,})@"),
            card: rule(r"(?:^|[^\d-])((?:\d{4}[ -]?){3}\d{4}|3[47]\d{2}[ -]?\d{6}[ -]?\d{5})(?:$|[^\d-])"),
        }
    }

    /// Whether a text contains a secret.
    pub(super) fn finds(&self, text: &str) -> bool {
        let has = |rule: &Option<Regex>| rule.as_ref().is_some_and(|rule| rule.is_match(text));
        let captured = |rule: &Option<Regex>, test: fn(&str) -> bool| {
            rule.as_ref()
                .is_some_and(|rule| rule.captures_iter(text).any(|c| c.get(1).is_some_and(|m| test(m.as_str()))))
        };
        has(&self.private_key)
            || has(&self.token)
            || captured(&self.named, is_secret_value)
            || captured(&self.card, is_card)
            || captured(&self.address, is_password)
    }
}

/// Whether the word after `password:` is a password and not part of a sentence.
fn is_secret_value(value: &str) -> bool {
    let value = value.trim_matches(|c| AROUND.contains(c)).trim_end_matches(['.', '!', '?', ':']);
    let has = |test: fn(char) -> bool| value.chars().any(test);
    let is_link = value.contains("://") || value.starts_with(['/', '#', '$', '{']);
    let chars = value.chars().count();
    let is_mixed = has(char::is_uppercase) && value.chars().skip(1).any(char::is_uppercase) && has(char::is_lowercase);
    !is_link
        && chars >= MIN_VALUE_CHARS
        && ((has(|c| c.is_ascii_digit()) && has(char::is_alphabetic)) || (is_mixed && chars >= MIN_LETTERS))
}

/// Whether the text before the host of a URL is a password and not a placeholder.
fn is_password(text: &str) -> bool {
    let is_place =
        text.starts_with(['$', '{', '<', '[', '*', '%']) || text.chars().all(|c| matches!(c, 'x' | 'X' | '.'));
    !is_place && !PLACEHOLDERS.contains(&text.to_lowercase().as_str())
}

/// Whether the digits are a card number: the first digit belongs to an issuer, and the check digit is valid (Luhn).
fn is_card(number: &str) -> bool {
    let digits: Vec<u32> = number.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, &digit)| match (place % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    matches!(digits.first(), Some(2..=6)) && sum.is_multiple_of(10) && sum > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found() {
        let finder = SecretFinder::new();
        let token = format!("ghp_{}", "a1B2".repeat(9));
        for text in [
            "password: hunter2x",
            "**Password:** `Tr0ub4dor&3`",
            "the wifi password is kiwi-7-moon",
            "PASSWORT = geheim99",
            "api_key=9f8e7d6c5b4a",
            "| API key | q1w2e3r4t5 |",
            "client secret: aB3dEfGh",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "Visa 4111 1111 1111 1111, 03/29",
            "4111111111111111",
            "amex 3782-822463-10005",
            "contraseña: perro1234",
            "mot de passe : chien1234",
            "das Passwort ist geheim99",
            "我的密码：abc12345",
            "パスワード: neko2024",
            "DB_URL=postgres://app:s3cr3tpass@db.example/x",
            "git clone https://me:q1w2e3@host.example/r.git",
            token.as_str(),
        ] {
            assert!(finder.finds(text), "{text}");
        }
    }

    #[test]
    fn what_resembles_a_secret_is_left_alone() {
        let finder = SecretFinder::new();
        for text in [
            "change your password every year",
            "password: see the manager",
            "The password is required.",
            "api key rotation policy",
            "password: $HOME/x1",
            "4111 1111 1111 1112",
            "order 9781234567897123",
            "1234-1234-1234-1234-9",
            "token of appreciation 2024",
            "sk-short",
            "postgres://user:password@localhost/x",
            "postgres://user:$PASSWORD@localhost/x",
            "https://host.example:8080/@name",
            "redis://localhost:6379",
            "密码很重要",
            "",
        ] {
            assert!(!finder.finds(text), "{text}");
        }
    }
}
