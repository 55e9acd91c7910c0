//! Redaction: secrets are not shown in configuration, logs, errors, events, exports or metrics.
//!
//! [`redactor`] is the redactor of this process. It is given secret values where they are read (configuration, token
//! files, OAuth) and hides them in outgoing text: log lines, error messages, and output of upstream servers and
//! plugins. [`url`] and [`argument`] show a value that may contain a secret without the secret. It hides known secrets
//! and text that looks like a credential. It does not change arguments and outputs on their way to tools and callers.
//! [`crate::secrets`] decides what the record keeps of them, and passes the secrets that it finds to the redactor.

use memchr::memmem::Finder;
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_protocol::Failure;

/// The text that replaces a secret.
pub const HIDDEN: &str = "(hidden)";
/// Minimum length of a secret. A shorter value would be found by accident.
const MIN_BYTES: usize = 8;
/// A value without a telling name counts as secret from this length on, if it looks random.
const MIN_RANDOM: usize = 12;
/// A line of a secret of several lines is looked for from this length on.
const MIN_LINE: usize = 16;
/// The largest number of known values; beyond that, the oldest are dropped.
const MAX_VALUES: usize = 4096;
/// Words in the name of a variable, header, flag or parameter that indicate a secret value.
const TELLING: [&str; 14] = [
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "pwd",
    "auth",
    "credential",
    "cookie",
    "session",
    "private",
    "signature",
    "bearer",
    "dsn",
];
/// Beginnings of credentials that their issuers made recognisable.
pub const MARKS: [&str; 10] =
    ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "xoxb-", "xoxp-", "glpat-", "AKIA", "eyJhbGciOi"];
/// Words before a credential in an `Authorization` header.
const SCHEMES: [&str; 4] = ["Bearer ", "bearer ", "Basic ", "basic "];
/// The end of the line that a private key begins with.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";
/// Characters after such a beginning that make it a credential.
pub const MIN_MARKED: usize = 12;

/// The largest number of secret arguments that are kept for log lines; beyond that, the oldest are dropped.
const MAX_PASSING: usize = 256;

/// A value that is looked for.
#[derive(Clone)]
struct SecretValue {
    text: Arc<str>,
    finder: Finder<'static>,
}

/// Knows secret values and hides them.
#[derive(Default)]
pub struct Redactor {
    values: RwLock<Arc<Vec<SecretValue>>>,
    /// Secret arguments of recent calls.
    passing: RwLock<VecDeque<SecretValue>>,
    /// Whether any secret is known. If not, texts need not be searched.
    is_used: AtomicBool,
}

/// The redactor of this process. Logs belong to the process, and so does their redaction.
pub fn redactor() -> &'static Redactor {
    static REDACTOR: OnceLock<Redactor> = OnceLock::new();
    REDACTOR.get_or_init(Redactor::default)
}

impl Redactor {
    /// Adds a secret, in its own form and as it appears in JSON and in addresses. A value that is too short is ignored.
    pub fn learn(&self, secret: &str) {
        let secret = secret.trim();
        if secret.len() < MIN_BYTES || secret.bytes().all(|b| b.is_ascii_digit()) {
            return;
        }
        let mut forms = vec![secret.to_owned()];
        let json = Value::String(secret.to_owned()).to_string();
        forms.push(json[1..json.len() - 1].to_owned());
        forms.push(percent_decoded(secret));
        forms.push(percent_encoded(secret));
        // A key of several lines is printed line by line.
        let lines = secret.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE && !line.starts_with("-----"));
        forms.extend(lines.map(str::to_owned));
        let mut held = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let mut values: Vec<SecretValue> = held.to_vec();
        for form in forms {
            if form.len() >= MIN_BYTES && !values.iter().any(|known| *known.text == *form) {
                let finder = Finder::new(form.as_bytes()).into_owned();
                values.push(SecretValue { text: form.into(), finder });
            }
        }
        let over = values.len().saturating_sub(MAX_VALUES);
        values.drain(..over);
        *held = Arc::new(values);
        self.is_used.store(true, Ordering::Release);
    }

    /// Adds a secret argument of a call. Only those of recent calls are remembered, however many calls there are.
    pub(crate) fn learn_passing(&self, secret: &str) {
        if secret.len() < MIN_BYTES {
            return;
        }
        let mut passing = self.passing.write().unwrap_or_else(PoisonError::into_inner);
        if passing.iter().any(|known| *known.text == *secret) {
            return;
        }
        if passing.len() >= MAX_PASSING {
            passing.pop_front();
        }
        passing.push_back(SecretValue { text: secret.into(), finder: Finder::new(secret.as_bytes()).into_owned() });
        self.is_used.store(true, Ordering::Release);
    }

    /// Learns the value of a variable, header or setting if its name or its form indicates a secret.
    pub fn learn_named(&self, name: &str, value: &str) {
        if is_telling(name) || looks_random(value) {
            self.learn(value);
        }
        // `Authorization: Bearer TOKEN`
        if let Some((_, credential)) = value.trim().rsplit_once(' ')
            && (is_telling(name) || looks_random(credential))
        {
            self.learn(credential);
        }
        if value.contains("://") {
            self.learn_url(value);
        }
    }

    /// Learns what [`url`] hides.
    pub fn learn_url(&self, address: &str) {
        for secret in url_secrets(address) {
            self.learn(secret);
        }
    }

    /// Learns what [`argument`] hides of a command line, as far as it can be a secret: no flag, path or plain word.
    pub fn learn_arguments<S: AsRef<str>>(&self, arguments: &[S]) {
        let mut before = "";
        for argument in arguments {
            let argument = argument.as_ref();
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with('-') || is_telling(name) => (name, value),
                _ if argument.starts_with('-') => ("", ""),
                _ => (if before.starts_with('-') { before } else { "" }, argument),
            };
            self.learn_named(name, value);
            before = argument;
        }
    }

    fn values(&self) -> Option<Arc<Vec<SecretValue>>> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        Some(self.values.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Hides the secrets that are known.
    pub fn known<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.values() {
            Some(values) => hide(text, values.iter()),
            None => Cow::Borrowed(text),
        }
    }

    /// The same for a message of another program that has not been read yet. Bytes that are no text stay as they are.
    pub fn known_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Ok(text) = std::str::from_utf8(bytes) else { return Cow::Borrowed(bytes) };
        match self.known(text) {
            Cow::Borrowed(_) => Cow::Borrowed(bytes),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    /// Hides the secrets that are known, secret arguments of recent calls, and what looks like a credential: for log
    /// lines and error messages. Outputs are not searched for secret arguments, because a weak password can be an
    /// ordinary word.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(values) = self.values() else { return patterns(text) };
        let passing = self.passing.read().unwrap_or_else(PoisonError::into_inner);
        match hide(text, values.iter().chain(&*passing)) {
            Cow::Borrowed(text) => patterns(text),
            Cow::Owned(text) => Cow::Owned(patterns(&text).into_owned()),
        }
    }

    /// Hides secrets in every text of a value.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(shown) = self.text(text) {
                    *text = shown;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                let names_secret = map.keys().any(|name| matches!(self.text(name), Cow::Owned(_)));
                if names_secret {
                    let all = std::mem::take(map).into_iter();
                    map.extend(all.map(|(name, item)| (self.text(&name).into_owned(), item)));
                }
                map.values_mut().for_each(|item| self.value(item));
            }
            _ => {}
        }
    }

    /// The failure with secrets hidden in its texts.
    pub fn failure(&self, mut failure: Failure) -> Failure {
        if let Cow::Owned(shown) = self.text(&failure.message) {
            failure.message = shown;
        }
        if let Some(Cow::Owned(shown)) = failure.suggestion.as_deref().map(|text| self.text(text)) {
            failure.suggestion = Some(shown);
        }
        if let Some(details) = failure.details.as_mut() {
            details.values_mut().for_each(|value| self.value(value));
        }
        failure
    }
}

fn hide<'a, 'v>(text: &'a str, values: impl Iterator<Item = &'v SecretValue>) -> Cow<'a, str> {
    let mut found: Vec<&SecretValue> = values.filter(|value| value.finder.find(text.as_bytes()).is_some()).collect();
    // The longest first: if one secret is the beginning of another, replacing the shorter one would leave the rest
    // readable.
    found.sort_by_key(|value| std::cmp::Reverse(value.text.len()));
    found.into_iter().fold(Cow::Borrowed(text), |shown, value| Cow::Owned(shown.replace(&*value.text, HIDDEN)))
}

/// Whether a name indicates that its value is secret.
pub fn is_telling(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TELLING.iter().any(|word| name.contains(word))
}

/// Whether a value looks like a credential: long, without spaces, no path, no plain words.
pub(crate) fn looks_random(value: &str) -> bool {
    let has = |test: fn(&u8) -> bool| value.as_bytes().iter().any(test);
    let is_place = value.starts_with(['/', '.', '~', '@', '-']) || value.contains("://");
    let is_long = value.len() >= if value.contains('/') { 2 * MIN_RANDOM } else { MIN_RANDOM };
    let is_mixed = has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && value.len() > MIN_RANDOM + 3);
    is_long && !is_place && is_mixed && has(u8::is_ascii_alphabetic) && !has(u8::is_ascii_whitespace)
}

/// Options of a database's address that hold no secret.
const DATABASE_OPTIONS: [&str; 7] =
    ["application_name", "connect_timeout", "host", "port", "sslmode", "sslrootcert", "target_session_attrs"];

/// The parts of an address that may be secret: user, password, the values of its query, its fragment, and parts of its
/// path that look random.
///
/// The user of a database without a password and [`DATABASE_OPTIONS`] are plain words. Hiding them would hide these words
/// in every message.
fn url_secrets(address: &str) -> Vec<&str> {
    let Some((scheme, rest)) = address.split_once("://") else { return Vec::new() };
    let is_database = matches!(scheme, "postgres" | "postgresql");
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let mut found = Vec::new();
    if let Some((user, _)) = host.rsplit_once('@').filter(|(user, _)| !is_database || user.contains(':')) {
        found.push(user);
        found.extend(user.split_once(':').map(|(_, password)| password));
    }
    let is_plain = |name: &str| is_database && DATABASE_OPTIONS.contains(&name);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    found.extend(pairs.filter(|(name, _)| !is_plain(name)).map(|(_, value)| value));
    found.extend(query.split('&').filter(|pair| !pair.contains('=')));
    found.push(fragment);
    found.extend(path.split('/').filter(|part| looks_random(part)));
    found.retain(|part| !part.is_empty());
    found
}

/// An address without what may be secret in it.
pub fn url(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return if looks_random(address) { HIDDEN.to_owned() } else { address.to_owned() };
    };
    let (rest, fragment) = rest.split_once('#').map_or((rest, ""), |(rest, _)| (rest, "#(hidden)"));
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let (host, path) = place.split_once('/').map_or((place, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit_once('@').map_or_else(|| host.to_owned(), |(_, host)| format!("{HIDDEN}@{host}"));
    let mut shown = format!("{scheme}://{host}");
    if let Some(path) = path {
        let parts: Vec<&str> = path.split('/').map(|part| if looks_random(part) { HIDDEN } else { part }).collect();
        shown.push('/');
        shown.push_str(&parts.join("/"));
    }
    if let Some(query) = query {
        let pairs: Vec<String> = query
            .split('&')
            .map(|pair| pair.split_once('=').map_or_else(|| HIDDEN.to_owned(), |(name, _)| format!("{name}={HIDDEN}")))
            .collect();
        shown.push('?');
        shown.push_str(&pairs.join("&"));
    }
    shown + fragment
}

/// An argument of a command without its value: the name of a long flag stays.
pub fn argument(argument: &str) -> String {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    let is_flag = name.strip_prefix("--").is_some_and(|flag| {
        (1..=32).contains(&flag.len()) && flag.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    });
    match (is_flag, name.len() < argument.len()) {
        (true, true) => format!("{name}={HIDDEN}"),
        (true, false) => name.to_owned(),
        (false, _) => HIDDEN.to_owned(),
    }
}

/// Hides what looks like a credential.
fn patterns(text: &str) -> Cow<'_, str> {
    let found = credentials(text);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for Range { start, end } in found {
        out.push_str(&text[at..start]);
        out.push_str(HIDDEN);
        at = end;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// Where a text holds what looks like a credential: `Bearer …`, `Basic …`, users and passwords in addresses, tokens with a
/// known prefix, private keys.
pub(crate) fn credentials(text: &str) -> Vec<Range<usize>> {
    let names_scheme = SCHEMES.iter().any(|scheme| text.contains(scheme));
    let marked = MARKS.iter().any(|mark| text.contains(mark));
    let names_user = text.contains("://") && text.contains('@');
    let holds_key = text.contains(PRIVATE_KEY);
    if !(names_scheme || marked || names_user || holds_key) {
        return Vec::new();
    }
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let before = text[..at].chars().next_back();
        // Text directly after a credential is judged as if it were at the beginning.
        let boundary = !before.is_some_and(|c| c.is_ascii_alphanumeric()) || found.last().is_some_and(|f| f.end == at);
        match credential_at(&text[at..], boundary) {
            Some(span) => {
                let end = at + span.end;
                found.push(at + span.start..end);
                at = end;
            }
            None => at += next.len_utf8(),
        }
    }
    found
}

/// The credential at the beginning of a text, or after a prefix such as `Bearer ` or `://`.
fn credential_at(text: &str, boundary: bool) -> Option<Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '/' | '=');
    let end_of = |text: &str| text.find(|c| !is_part(c)).unwrap_or(text.len());
    if let Some(scheme) = SCHEMES.iter().find(|scheme| text.starts_with(**scheme)) {
        let after = &text[scheme.len()..];
        let end = end_of(after);
        let is_credential = after[..end].bytes().any(|b| b.is_ascii_digit() || b == b'=');
        if end >= MIN_BYTES && is_credential {
            return Some(scheme.len()..scheme.len() + end);
        }
    }
    if let Some(after) = text.strip_prefix("://") {
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | ')'));
        let (user, _) = after[..end.unwrap_or(after.len())].rsplit_once('@')?;
        return (!user.is_empty()).then_some(3..3 + user.len());
    }
    if text.starts_with("-----BEGIN ") {
        let line = text.lines().next().unwrap_or_default();
        let key = line.contains(PRIVATE_KEY).then(|| text.find("-----END ").unwrap_or(text.len()))?;
        return (key > line.len()).then_some(line.len()..key);
    }
    let mark = MARKS.iter().find(|mark| boundary && text.starts_with(**mark))?;
    let end = end_of(text);
    (end >= mark.len() + MIN_MARKED).then_some(0..end)
}

/// A text as it appears in an address: everything except unreserved characters is escaped.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A text with `%41` read as `A`.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolyard_protocol::ErrorCode;

    #[test]
    fn plain_words_of_a_databases_address_are_not_hidden_in_messages() {
        let plain = "postgres://toolyard@db1/toolyard?sslmode=verify-full&sslrootcert=/etc/ca.pem";
        assert!(url_secrets(plain).is_empty(), "{:?}", url_secrets(plain));
        let secret = "postgres://ada:pass-word@db/x?password=another&sslmode=require";
        assert_eq!(url_secrets(secret), ["ada:pass-word", "pass-word", "another"]);
        assert_eq!(url_secrets("https://token@host/x"), ["token"]);
    }

    #[test]
    fn a_secret_that_begins_another_leaves_nothing_of_it() {
        let redactor = Redactor::default();
        redactor.learn("abcd1234");
        redactor.learn("abcd1234-efgh5678");
        assert_eq!(redactor.known("it is abcd1234-efgh5678 or abcd1234"), "it is (hidden) or (hidden)");
    }

    #[test]
    fn what_was_learned_is_hidden_everywhere() {
        let redactor = Redactor::default();
        assert_eq!(redactor.text("nothing is known"), "nothing is known");
        redactor.learn("s3cret \"value\"");
        redactor.learn("short");
        redactor.learn("12345678901");
        let failure = Failure::new(ErrorCode::Unavailable, "it said s3cret \"value\"")
            .suggest("not s3cret \"value\"")
            .detail("deep", json!([{"said": "s3cret \"value\"", "n": 12_345_678_901_u64}]));
        let shown = serde_json::to_string(&redactor.failure(failure)).unwrap();
        assert!(!shown.contains("s3cret") && shown.contains(HIDDEN) && shown.contains("12345678901"), "{shown}");
        let raw = json!({"a": "s3cret \"value\"", "b": "short"}).to_string();
        let hidden = redactor.known_bytes(raw.as_bytes()).into_owned();
        let hidden: Value = serde_json::from_slice(&hidden).unwrap();
        assert_eq!(hidden, json!({"a": HIDDEN, "b": "short"}));
    }

    #[test]
    fn a_secret_is_hidden_in_addresses_line_by_line_and_as_a_name() {
        let redactor = Redactor::default();
        redactor.learn("p@ss/word+1");
        let key = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG\n9w0BAQEFAASCAUAwggE8\n-----END KEY-----";
        redactor.learn(key);
        let said = "http://h/?k=p%40ss%2Fword%2B1 MIIBVgIBADANBgkqhkiG | 9w0BAQEFAASCAUAwggE8 Basic YWRhOmh1c2g=";
        assert_eq!(redactor.text(said), "http://h/?k=(hidden) (hidden) | (hidden) Basic (hidden)");
        assert_eq!(redactor.text("a Basic idea"), "a Basic idea");
        let mut value = json!({"a": {"p@ss/word+1": 1, "b": 2}});
        redactor.value(&mut value);
        assert_eq!(value, json!({"a": {HIDDEN: 1, "b": 2}}));
    }

    #[test]
    fn names_and_looks_tell_what_is_secret() {
        let redactor = Redactor::default();
        for (name, value) in [
            ("API_KEY", "correct-horse"),
            ("X-Whatever", "Zm9vYmFyYmF6cXV4MTIz"),
            ("Authorization", "Bearer hush-hush-1"),
            ("DATABASE", "postgres://ada:pass-word@db/x?sslkey=abcdefghi"),
        ] {
            redactor.learn_named(name, value);
        }
        redactor.learn_named("NODE_ENV", "production");
        redactor.learn_named("Accept", "application/json");
        redactor.learn_arguments(&[
            "-y",
            "@scope/server-files",
            "/home/ada/shared",
            "--token",
            "open-sesame",
            "--db=SuperSecret99",
        ]);
        let text = "correct-horse Zm9vYmFyYmF6cXV4MTIz hush-hush-1 pass-word abcdefghi open-sesame SuperSecret99";
        assert_eq!(redactor.text(text), [HIDDEN; 7].join(" "));
        let plain = "production application/json /home/ada/shared @scope/server-files -y";
        assert_eq!(redactor.text(plain), plain);
    }

    #[test]
    fn addresses_and_arguments_are_shown_without_their_secrets() {
        for (address, shown) in [
            ("https://x.org/mcp", "https://x.org/mcp"),
            (
                "https://ada:pw@x.org:8/mcp?key=abc&flag#frag",
                "https://(hidden)@x.org:8/mcp?key=(hidden)&(hidden)#(hidden)",
            ),
            ("https://x.org/s/a1b2c3d4e5f6a7b8/mcp", "https://x.org/s/(hidden)/mcp"),
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("index", "index"),
        ] {
            assert_eq!(url(address), shown);
        }
        for (given, shown) in [
            ("--token=abc", "--token=(hidden)"),
            ("--stdio", "--stdio"),
            ("abc", HIDDEN),
            ("-pabc", HIDDEN),
            ("--SECRETabc123", HIDDEN),
        ] {
            assert_eq!(argument(given), shown);
        }
    }

    #[test]
    fn credentials_are_known_by_their_looks() {
        let redactor = Redactor::default();
        for (text, shown) in [
            ("sent Authorization: Bearer abc.def-123456 twice", "sent Authorization: Bearer (hidden) twice"),
            ("GET https://ada:pw@x.org/a failed", "GET https://(hidden)@x.org/a failed"),
            ("the key sk-abcdefghijklmnop12 is bad", "the key (hidden) is bad"),
            ("mail ada@x.org about https://x.org", "mail ada@x.org about https://x.org"),
            ("a Bearer token is needed; task-force", "a Bearer token is needed; task-force"),
        ] {
            assert_eq!(redactor.text(text), shown);
        }
    }
}
