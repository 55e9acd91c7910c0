//! Secret arguments: which arguments of a call are secret, and what is kept of them.
//!
//! A tool is given its arguments as they are. The record, and everything made from it (events, exports, transcripts), has
//! `(secret hmac-sha256:…)` in place of each secret. The HMAC is keyed, so that a short secret cannot be guessed from the
//! record, and `argsHash` is the hash of the arguments as they are kept: everybody can recompute it from the record, and
//! the holder of the key can prove which secret was used ([`Verifier::proves_secret`]).
//!
//! An argument is secret when the tool's input schema marks it, when a rule of the policy names it, or when its name or
//! its text is that of a credential. Of a longer text, only the credential in it is replaced.
//!
//! A secret that is not kept cannot be used again: a plan that is resumed or forked refuses a step that needs one.

use crate::{
    Store,
    keys::{Signer, Verifier},
    record::Record,
    redact::{credentials, looks_random, redactor},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    ops::ControlFlow,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};
use toolyard_catalog::{EffectivePolicy, Snapshot, ToolEntry};
use toolyard_protocol::{CallId, ErrorCode, Failure, RunId, canonical};

/// The beginning of a placeholder for a secret; the secret's HMAC and `)` follow.
const OPEN: &str = "(secret hmac-sha256:";
const CLOSE: char = ')';
/// Hex digits of an HMAC: 128 bits, as in the tags of records.
const DIGITS: usize = 32;
/// Minimum length of a secret that is looked for in other texts. A shorter one would be found by accident.
const MIN_SEARCHED: usize = 6;
/// Names of arguments that hold secrets, without case and punctuation.
const NAMES: [&str; 9] =
    ["pwd", "passwd", "passcode", "bearer", "bearertoken", "credential", "credentials", "authorization", "accesskey"];
/// Suffixes of names of arguments that hold secrets.
const NAME_ENDS: [&str; 9] = [
    "password",
    "passphrase",
    "secret",
    "apikey",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "privatekey",
    "secretkey",
];

/// Why an argument counts as secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// The tool's input schema.
    Schema,
    /// A rule of the policy.
    Rule,
    /// Its name, or the look of its text.
    Detector,
}

/// An argument of which the record keeps an HMAC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretArgument {
    /// JSON Pointer into the arguments.
    #[serde(rename = "p")]
    pub path: String,
    /// The rule that marks the argument as secret.
    pub by: SecretSource,
}

/// What says which arguments are secret.
#[derive(Clone, Copy)]
pub(crate) struct SecretMarks<'a> {
    /// The tool that is called; `None` when there is no such tool.
    pub(crate) tool: Option<&'a ToolEntry>,
    /// All tools: the arguments of a call may hold another call.
    pub(crate) tools: &'a Snapshot,
    pub(crate) policy: &'a EffectivePolicy,
}

impl<'a> SecretMarks<'a> {
    /// For a call of the tool with this name or id.
    pub(crate) fn of(tools: &'a Snapshot, policy: &'a EffectivePolicy, tool: &str) -> Self {
        Self { tool: tools.get(tool).map(|entry| &**entry), tools, policy }
    }
}

/// Arguments as they are stored: with placeholders instead of secrets.
#[derive(Debug, Clone)]
pub(crate) struct StoredArguments {
    pub(crate) args: Arc<Map<String, Value>>,
    pub(crate) secrets: Vec<SecretArgument>,
}

/// What to do with a text that is already a placeholder for a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholders {
    /// The text comes from the record and is kept unchanged.
    Stay,
    /// A caller wrote it. It is treated as a secret itself, so that it is not taken for one that Toolyard replaced.
    Hide,
}

/// The secrets of one run.
pub(crate) struct RunSecrets {
    signer: Arc<Signer>,
    known: RwLock<Vec<KnownSecret>>,
    /// Whether there are any. If not, nothing needs to be searched.
    is_used: AtomicBool,
}

struct KnownSecret {
    text: String,
    placeholder: String,
}

impl RunSecrets {
    pub(crate) fn new(signer: Arc<Signer>) -> Self {
        Self { signer, known: RwLock::default(), is_used: AtomicBool::new(false) }
    }

    /// Whether the run has secrets.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// The arguments as they are to be kept; `None` when they hold no secret. Remembers the secrets for the rest of the run.
    pub(crate) fn keep(
        &self,
        marks: SecretMarks<'_>,
        args: &Map<String, Value>,
        placeholders: Placeholders,
    ) -> Option<StoredArguments> {
        let mut secrets = whole_values(marks, args);
        if placeholders == Placeholders::Stay {
            let is_kept = |path: &str| at(args, path).and_then(Value::as_str).is_some_and(is_placeholder);
            secrets.retain(|secret| !is_kept(&secret.path));
        }
        let mut pieces = Vec::new();
        each_text(args, &mut String::new(), &mut |path, text| {
            let found = pieces_of(text, placeholders);
            if !found.is_empty() && !secrets.iter().any(|secret| is_within(path, &secret.path)) {
                pieces.push(SecretArgument { path: path.to_owned(), by: SecretSource::Detector });
            }
            found.into_iter().for_each(|piece| self.learn(piece));
        });
        if secrets.is_empty() && pieces.is_empty() && !self.is_used() {
            return None;
        }
        let mut kept = args.clone();
        for secret in &secrets {
            if let Some(value) = at_mut(&mut kept, &secret.path) {
                self.learn_value(value);
                *value = Value::String(self.placeholder(value));
            }
        }
        secrets.extend(pieces);
        self.hide_map(&mut kept);
        (kept != *args).then(|| StoredArguments { args: Arc::new(kept), secrets })
    }

    /// The hash of the arguments as they are to be kept.
    pub(crate) fn hash(
        &self,
        marks: SecretMarks<'_>,
        args: &Map<String, Value>,
        placeholders: Placeholders,
    ) -> Result<String, canonical::CanonicalError> {
        match self.keep(marks, args, placeholders) {
            Some(kept) => canonical::hash(&*kept.args),
            None => canonical::hash(args),
        }
    }

    /// Learns credentials in every text of a value that is not the arguments of a call.
    pub(crate) fn learn_looks(&self, map: &Map<String, Value>) {
        each_text(map, &mut String::new(), &mut |_, text| {
            pieces_of(text, Placeholders::Stay).into_iter().for_each(|piece| self.learn(piece));
        });
    }

    /// Learns every text of a secret value.
    pub(crate) fn learn_value(&self, value: &Value) {
        match value {
            Value::String(text) => self.learn(text),
            Value::Array(items) => items.iter().for_each(|item| self.learn_value(item)),
            Value::Object(map) => map.values().for_each(|item| self.learn_value(item)),
            _ => {}
        }
    }

    fn learn(&self, text: &str) {
        if text.len() < MIN_SEARCHED {
            return;
        }
        redactor().learn_passing(text);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|secret| secret.text == text) {
            let placeholder = self.placeholder(&Value::from(text));
            known.push(KnownSecret { text: text.to_owned(), placeholder });
            // The longest first: if one secret is the beginning of another, replacing the shorter one would leave the
            // rest readable.
            known.sort_by_key(|secret| std::cmp::Reverse(secret.text.len()));
            self.is_used.store(true, Ordering::Release);
        }
    }

    /// The placeholder that replaces a value in the record.
    pub(crate) fn placeholder(&self, value: &Value) -> String {
        let hmac = canonical::hex(&self.signer.secret_hmac(&json_of(value)));
        format!("{OPEN}{}{CLOSE}", &hmac[..DIGITS])
    }

    /// A text without the run's secrets.
    pub(crate) fn hide_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.is_used() {
            return Cow::Borrowed(text);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(&secret.text) { Cow::Owned(text.replace(&secret.text, &secret.placeholder)) } else { text }
        })
    }

    /// Hides the run's secrets in every text of a value, names of fields included.
    pub(crate) fn hide_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(hidden) = self.hide_text(text) {
                    *text = hidden;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_value(item)),
            Value::Object(map) => self.hide_map(map),
            _ => {}
        }
    }

    pub(crate) fn hide_map(&self, map: &mut Map<String, Value>) {
        if !self.is_used() {
            return;
        }
        if map.keys().any(|name| matches!(self.hide_text(name), Cow::Owned(_))) {
            let all = std::mem::take(map).into_iter();
            map.extend(all.map(|(name, item)| (self.hide_text(&name).into_owned(), item)));
        }
        map.values_mut().for_each(|item| self.hide_value(item));
    }

    /// The same for a text that is owned.
    pub(crate) fn hide_string(&self, text: String) -> String {
        match self.hide_text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(hidden) => hidden,
        }
    }

    /// A record without the run's secrets; `None` when it has none. The arguments of a call stay as they are: they are
    /// kept by [`RunSecrets::keep`], and `argsHash` is theirs.
    pub(crate) fn hide_record(&self, record: &Record) -> Option<Record> {
        if !self.is_used() {
            return None;
        }
        let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(&record.encode()) else { return None };
        let before = fields.clone();
        let args = if matches!(record, Record::Call(_)) { fields.remove("a") } else { None };
        self.hide_map(&mut fields);
        fields.extend(args.map(|args| ("a".to_owned(), args)));
        if fields == before {
            return None;
        }
        Record::decode(record.kind() as u8, Value::Object(fields).to_string().as_bytes()).ok()
    }
}

impl Verifier {
    /// Whether this value is the one that a placeholder replaces. `None` for a verifier with only the public key.
    pub fn proves_secret(&self, value: &Value, placeholder: &str) -> Option<bool> {
        let hmac = canonical::hex(&self.secret_hmac(&json_of(value))?);
        Some(digits_of(placeholder).is_some_and(|digits| hmac.starts_with(digits)))
    }
}

/// An argument that is known to have held a certain secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvenSecret {
    /// The call.
    pub call_id: CallId,
    /// JSON Pointer into its arguments.
    pub path: String,
}

/// The recorded arguments of a run in whose place this value stood, or in whose text it stood.
pub fn find_secret(
    store: &dyn Store,
    run_id: RunId,
    verifier: &Verifier,
    value: &Value,
) -> Result<Vec<ProvenSecret>, Failure> {
    let mut calls = Vec::new();
    store.frames(run_id, 1, &mut |frame| {
        match Record::decode(frame.kind, &frame.payload) {
            Ok(Record::Call(call)) => calls.push((call.call_id, Ok(call))),
            Ok(Record::Refused(refused)) => calls.push((refused.call_id, Err(refused.args))),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    let mut found = Vec::new();
    for (call_id, recorded) in calls {
        let args = match recorded {
            Ok(call) => crate::view::call_args(store, &call)?,
            Err(Some(Value::Object(args))) => args,
            Err(_) => continue,
        };
        each_text(&args, &mut String::new(), &mut |path, text| {
            if placeholders(text).iter().any(|kept| verifier.proves_secret(value, kept) == Some(true)) {
                found.push(ProvenSecret { call_id, path: path.to_owned() });
            }
        });
    }
    Ok(found)
}

/// The placeholders in a text.
pub fn placeholders(text: &str) -> Vec<&str> {
    let starts = text.match_indices(OPEN).map(|(at, _)| at);
    starts.filter_map(|at| text.get(at..at + OPEN.len() + DIGITS + 1)).filter(|found| is_placeholder(found)).collect()
}

/// Refuses arguments of which a secret is not kept.
pub(crate) fn demand_secrets(args: &Map<String, Value>) -> Result<(), Failure> {
    let mut missing = Vec::new();
    each_text(args, &mut String::new(), &mut |path, text| {
        if !placeholders(text).is_empty() {
            missing.push(path.to_owned());
        }
    });
    if missing.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(ErrorCode::PreconditionFailed, "a secret argument is needed again and was not kept");
    Err(failure
        .suggest("Run the plan again, or fork it with an edited plan that has the secret.")
        .detail("arguments", missing)
        .retryable(false))
}

fn digits_of(placeholder: &str) -> Option<&str> {
    let digits = placeholder.strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
    (digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digits)
}

pub(crate) fn is_placeholder(text: &str) -> bool {
    digits_of(text).is_some()
}

/// What an HMAC is made of: the value's canonical JSON.
fn json_of(value: &Value) -> Vec<u8> {
    canonical::value_to_vec(value).unwrap_or_else(|_| value.to_string().into_bytes())
}

/// Arguments that are secret as a whole.
pub(crate) fn whole_values(marks: SecretMarks<'_>, args: &Map<String, Value>) -> Vec<SecretArgument> {
    let mut found: Vec<SecretArgument> = Vec::new();
    let mut add = |paths: Vec<String>, by| {
        for path in paths {
            if !found.iter().any(|known| is_within(&path, &known.path)) {
                found.retain(|known| !is_within(&known.path, &path));
                found.push(SecretArgument { path, by });
            }
        }
    };
    if let Some(tool) = marks.tool {
        add(tool.secret_arguments(args), SecretSource::Schema);
        add(marks.policy.secret_arguments(tool, args), SecretSource::Rule);
    }
    each_call_within(marks.tools, args, &mut String::new(), &mut |path, tool, args| {
        let within = |paths: Vec<String>| paths.into_iter().map(|inner| format!("{path}{inner}")).collect();
        add(within(tool.secret_arguments(args)), SecretSource::Schema);
        add(within(marks.policy.secret_arguments(tool, args)), SecretSource::Rule);
    });
    let mut named = Vec::new();
    each_text(args, &mut String::new(), &mut |path, text| {
        let name = path.rsplit('/').next().unwrap_or_default();
        if is_secret_name(name, text) {
            named.push(path.to_owned());
        }
    });
    add(named, SecretSource::Detector);
    found
}

/// Receives the JSON Pointer of a call's arguments, its tool, and the arguments.
type VisitCall<'a> = dyn FnMut(&str, &ToolEntry, &Map<String, Value>) + 'a;

/// Calls with every call that arguments hold, such as those of `tool_call` or the steps of a plan: the JSON Pointer of its
/// arguments, its tool, and the arguments.
fn each_call_within(tools: &Snapshot, map: &Map<String, Value>, path: &mut String, visit: &mut VisitCall<'_>) {
    let name = ["id", "name", "tool"].into_iter().find_map(|key| tools.get(map.get(key)?.as_str()?));
    if let Some(tool) = name {
        for key in ["args", "arguments", "input"] {
            if let Some(Value::Object(args)) = map.get(key) {
                visit(&format!("{path}/{key}"), tool, args);
            }
        }
    }
    let mut step = |key: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(map) => each_call_within(tools, map, path, visit),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Value::Object(map) = item {
                        let length = path.len();
                        path.push_str(&format!("/{index}"));
                        each_call_within(tools, map, path, visit);
                        path.truncate(length);
                    }
                }
            }
            _ => {}
        }
        path.truncate(length);
    };
    for (key, value) in map {
        if value.is_object() || value.is_array() {
            step(key, value);
        }
    }
}

/// Whether an argument of this name holds a secret. A `token` is often the place in a list, so its text must look random.
fn is_secret_name(name: &str, text: &str) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase();
    if text.is_empty() || name.len() > 64 || name.is_empty() {
        return false;
    }
    let plain = || name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase());
    let plain: String = if name.bytes().all(|b| b.is_ascii_alphanumeric()) && !name.contains(is_upper) {
        name.to_owned()
    } else {
        plain().collect()
    };
    NAMES.contains(&plain.as_str())
        || NAME_ENDS.iter().any(|end| plain.ends_with(end))
        || (plain == "token" && looks_random(text))
}

/// The credentials in a text.
fn pieces_of(text: &str, placeholders: Placeholders) -> Vec<&str> {
    let mut found: Vec<&str> = credentials(text).into_iter().filter_map(|span| text.get(span)).collect();
    if placeholders == Placeholders::Hide {
        found.extend(self::placeholders(text));
    }
    found
}

/// Whether a JSON Pointer names the same value as another one, or a value inside it.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Calls with every text in the arguments and its JSON Pointer.
fn each_text(map: &Map<String, Value>, path: &mut String, visit: &mut dyn FnMut(&str, &str)) {
    fn walk(value: &Value, path: &mut String, visit: &mut dyn FnMut(&str, &str)) {
        match value {
            Value::String(text) => visit(path, text),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    step(item, &index.to_string(), path, visit);
                }
            }
            Value::Object(map) => each_text(map, path, visit),
            _ => {}
        }
    }
    fn step(value: &Value, key: &str, path: &mut String, visit: &mut dyn FnMut(&str, &str)) {
        let length = path.len();
        path.push('/');
        if key.contains(['~', '/']) {
            path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        } else {
            path.push_str(key);
        }
        walk(value, path, visit);
        path.truncate(length);
    }
    for (key, value) in map {
        step(value, key, path, visit);
    }
}

fn at<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = split(path)?;
    map.get(&first)?.pointer(rest)
}

fn at_mut<'a>(map: &'a mut Map<String, Value>, path: &str) -> Option<&'a mut Value> {
    let (first, rest) = split(path)?;
    map.get_mut(&first)?.pointer_mut(rest)
}

/// The first name of a JSON Pointer, and the pointer that remains.
fn split(path: &str) -> Option<(String, &str)> {
    let path = path.strip_prefix('/')?;
    let end = path.find('/').unwrap_or(path.len());
    Some((path[..end].replace("~1", "/").replace("~0", "~"), &path[end..]))
}

#[cfg(test)]
mod tests;
