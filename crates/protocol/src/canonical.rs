//! Canonical JSON (RFC 8785) and the hashes built on it.
//!
//! Two programs in two languages that hash the same arguments must get the same `argsHash`; canonical JSON is what
//! makes that so. RFC 8785 knows numbers as IEEE doubles only, so integers beyond 2^53 are refused rather than
//! silently rounded: a hash that two different values share would prove nothing.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The largest integer that an IEEE double holds exactly.
pub const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Why a value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// An integer that JSON readers in other languages would round.
    #[error("the integer at {path} is beyond 2^53 and would not survive other JSON readers; send it as a string")]
    UnsafeInteger {
        /// A JSON Pointer to it.
        path: String,
    },
    /// The serialiser refused (non-finite numbers, non-string keys).
    #[error("not representable as canonical JSON: {0}")]
    Unrepresentable(String),
}

/// The canonical bytes of any serialisable value.
pub fn to_vec<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    serde_json_canonicalizer::to_vec(value).map_err(|e| CanonicalError::Unrepresentable(e.to_string()))
}

/// The canonical bytes of a JSON value. The result equals that of [`to_vec`], but for typical arguments (no fractions,
/// no integers beyond 2^53) it is several times as fast.
pub fn value_to_vec(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(256);
    if write_simple(value, &mut out) { Ok(out) } else { to_vec(value) }
}

/// Returns false if the value contains a number that needs the general algorithm.
fn write_simple(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => match number.as_i64() {
            Some(i) if i.unsigned_abs() <= MAX_SAFE_INTEGER as u64 => return serde_json::to_writer(out, &i).is_ok(),
            _ => return false,
        },
        // RFC 8785 escapes what serde_json escapes, in the same way.
        Value::String(text) => return serde_json::to_writer(out, text).is_ok(),
        Value::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                if !write_simple(item, out) {
                    return false;
                }
            }
            out.push(b']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            // Only beyond the basic plane do UTF-16 code units sort in another order than UTF-8 bytes.
            entries.sort_unstable_by(|(a, _), (b, _)| {
                if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
            });
            out.push(b'{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                if serde_json::to_writer(&mut *out, key).is_err() {
                    return false;
                }
                out.push(b':');
                if !write_simple(item, out) {
                    return false;
                }
            }
            out.push(b'}');
        }
    }
    true
}

/// The canonical text of a JSON value.
pub fn to_string(value: &Value) -> Result<String, CanonicalError> {
    serde_json_canonicalizer::to_string(value).map_err(|e| CanonicalError::Unrepresentable(e.to_string()))
}

/// Refuses integers that RFC 8785 cannot carry exactly. Call this on anything that comes from outside before hashing.
pub fn check_integers(value: &Value) -> Result<(), CanonicalError> {
    fn walk(value: &Value, path: &mut Vec<String>) -> Result<(), CanonicalError> {
        match value {
            Value::Number(n) => {
                let safe = match (n.as_i64(), n.as_u64()) {
                    (Some(i), _) => i.unsigned_abs() <= MAX_SAFE_INTEGER as u64,
                    (None, Some(_)) => false,
                    (None, None) => true,
                };
                if safe { Ok(()) } else { Err(CanonicalError::UnsafeInteger { path: format!("/{}", path.join("/")) }) }
            }
            Value::Array(items) => items.iter().enumerate().try_for_each(|(i, item)| {
                if item.is_number() || item.is_array() || item.is_object() {
                    path.push(i.to_string());
                    walk(item, path)?;
                    path.pop();
                }
                Ok(())
            }),
            Value::Object(map) => map.iter().try_for_each(|(key, item)| {
                if item.is_number() || item.is_array() || item.is_object() {
                    path.push(key.replace('~', "~0").replace('/', "~1"));
                    walk(item, path)?;
                    path.pop();
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    }
    walk(value, &mut Vec::new())
}

/// The SHA-256 hash of the bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Lowercase hex of SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// The bytes as lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        out.push(DIGITS[(b >> 4) as usize] as char);
        out.push(DIGITS[(b & 15) as usize] as char);
    }
    out
}

/// Reads a hash in lowercase hex.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != out.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

/// `sha256:<hex>` over the canonical form: the form of `argsHash`, `dataHash`, `planHash` and `policyHash`.
pub fn hash<T: Serialize>(value: &T) -> Result<String, CanonicalError> {
    Ok(format!("sha256:{}", sha256_hex(&to_vec(value)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_rfc_example_of_numbers_and_order() {
        // RFC 8785 section 3.2.2 input, expected output from section 3.2.3.
        let value: Value = serde_json::from_str(
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
                "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
        )
        .unwrap();
        assert_eq!(
            to_string(&value).unwrap(),
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
    }

    #[test]
    fn keys_sort_by_utf16_code_units() {
        let value = json!({"\u{20ac}":1,"\r":2,"\u{fb33}":3,"1":4,"\u{1f600}":5,"\u{80}":6,"\u{f6}":7});
        let keys: Vec<String> = to_string(&value)
            .unwrap()
            .split(['{', ',', '}'])
            .filter(|s| !s.is_empty())
            .map(|s| s.rsplit(':').next().unwrap().to_owned())
            .collect();
        assert_eq!(keys, ["2", "4", "6", "7", "1", "5", "3"]);
    }

    #[test]
    fn the_quick_way_sorts_and_escapes_alike() {
        for value in [
            json!({"\u{1f600}":1,"\u{fb33}":2,"a":3,"\u{7f}":4,"":5}),
            json!(["\u{0}\u{8}\u{b}\u{c}\u{1f}\u{7f}\u{2028}\"\\/", -1, 9007199254740991i64, u64::MAX, 1.5, -0.0]),
        ] {
            assert_eq!(value_to_vec(&value).unwrap(), to_vec(&value).unwrap());
        }
    }

    #[test]
    fn unsafe_integers_are_named_with_their_path() {
        let err = check_integers(&json!({"a":[1,{"b/c":9007199254740993u64}]})).unwrap_err();
        assert_eq!(err, CanonicalError::UnsafeInteger { path: "/a/1/b~1c".into() });
        assert!(check_integers(&json!([9007199254740991i64, -9007199254740991i64, 1e300])).is_ok());
        assert!(check_integers(&json!(u64::MAX)).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-MAX_SAFE_INTEGER..MAX_SAFE_INTEGER).prop_map(Value::from),
            any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    fn reversed(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(reversed).collect(),
            Value::Object(map) => Value::Object(map.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect()),
            other => other.clone(),
        }
    }

    proptest! {
        #[toolyard_shows::shows("002-3.1-07")]
        #[test]
        fn canonical_form_ignores_key_order(value in any_json()) {
            prop_assert_eq!(to_string(&value).unwrap(), to_string(&reversed(&value)).unwrap());
        }

        #[test]
        fn the_quick_way_gives_the_same_bytes(value in any_json()) {
            prop_assert_eq!(value_to_vec(&value).unwrap(), to_vec(&value).unwrap());
        }

        #[test]
        fn canonical_form_is_stable_under_reparsing(value in any_json()) {
            let once = to_string(&value).unwrap();
            let again: Value = serde_json::from_str(&once).unwrap();
            prop_assert_eq!(once, to_string(&again).unwrap());
        }

        #[test]
        fn different_text_means_different_values(a in any_json(), b in any_json()) {
            if to_string(&a).unwrap() == to_string(&b).unwrap() {
                prop_assert_eq!(hash(&a).unwrap(), hash(&b).unwrap());
            } else {
                prop_assert_ne!(hash(&a).unwrap(), hash(&b).unwrap());
            }
        }
    }
}
