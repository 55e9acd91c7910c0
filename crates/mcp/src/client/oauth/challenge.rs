//! The `Bearer` challenge of `WWW-Authenticate` that a server sends when it refuses a request.

use http::{HeaderMap, header};

/// A header longer than this is not read.
const MAX_HEADER: usize = 8 << 10;
/// Scopes of one challenge that are read; the rest are left out.
const MAX_SCOPES: usize = 64;
/// A scope longer than this is left out.
const MAX_SCOPE: usize = 256;

/// A `Bearer` challenge.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Challenge {
    /// Where the metadata of the protected resource is.
    pub(crate) resource_metadata: Option<String>,
    /// The required scopes; `None` if the server does not say.
    pub(crate) scopes: Option<Vec<String>>,
    /// An error code such as `invalid_token` or `insufficient_scope`.
    pub(crate) error: Option<String>,
}

impl Challenge {
    /// The first `Bearer` challenge of an answer.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok().filter(|text| text.len() <= MAX_HEADER))
            .find_map(Self::parse)
    }

    /// Whether the token is good, but allows too little.
    pub(crate) fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return found;
            }
            let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
            let Some(value) = value else {
                // A word without a value is a scheme, and the parameters after it belong to that scheme.
                if found.is_some() {
                    return found;
                }
                if word.eq_ignore_ascii_case("bearer") {
                    found = Some(Self::default());
                }
                rest = after;
                continue;
            };
            let (value, after) = take_value(value.trim_start_matches([' ', '\t']));
            rest = after;
            if let Some(challenge) = &mut found {
                match word.to_ascii_lowercase().as_str() {
                    "resource_metadata" => challenge.resource_metadata = Some(value),
                    "scope" => challenge.scopes = Some(scopes(&value)),
                    "error" => challenge.error = Some(value),
                    _ => {}
                }
            }
        }
    }
}

/// A token or a quoted string, and what comes after it.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            _ => value.push(letter),
        }
    }
    (value, "")
}

/// The scopes of a list, without duplicates, in order. Invalid ones are left out.
pub(crate) fn scopes(list: &str) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    for scope in list.split(' ').filter(|scope| is_scope(scope)).take(MAX_SCOPES) {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    scopes
}

/// Whether a text can be a scope, by RFC 6749.
pub(crate) fn is_scope(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !text.is_empty() && text.len() <= MAX_SCOPE && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        headers.insert(header::WWW_AUTHENTICATE, text.parse().unwrap());
        Challenge::of(&headers)
    }

    #[test]
    fn what_a_challenge_says_is_read_in_any_order_and_writing() {
        let challenge = read(
            r#"bearer  error="insufficient_scope",scope="a:read  b a:read", resource_metadata = "https://x/y?a=b,c""#,
        );
        let challenge = challenge.unwrap();
        assert!(challenge.wants_more());
        assert_eq!(challenge.scopes.unwrap(), ["a:read", "b"]);
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://x/y?a=b,c"));
        let token = read("Bearer error=invalid_token, realm=x").unwrap();
        assert_eq!((token.error.as_deref(), token.scopes), (Some("invalid_token"), None));
        assert_eq!(read("Bearer"), Some(Challenge::default()));
        assert_eq!(read(r#"Bearer scope="""#).unwrap().scopes, Some(Vec::new()));
    }

    #[test]
    fn only_the_bearer_challenge_counts_among_several() {
        let several =
            read(r#"Basic realm="a, Bearer scope=x", Negotiate abc==, Bearer scope="good", Basic scope="bad""#);
        assert_eq!(several.unwrap().scopes.unwrap(), ["good"]);
        assert_eq!(read(r#"Basic realm="x""#), None);
        let mut headers = HeaderMap::new();
        headers.append(header::WWW_AUTHENTICATE, "Basic realm=x".parse().unwrap());
        headers.append(header::WWW_AUTHENTICATE, r#"Bearer scope="s""#.parse().unwrap());
        assert_eq!(Challenge::of(&headers).unwrap().scopes.unwrap(), ["s"]);
    }

    #[test]
    fn what_is_broken_or_hostile_does_no_harm() {
        for text in [
            r#"Bearer scope="unclosed"#,
            r#"Bearer scope="a\"#,
            "Bearer =,=,==",
            "= = =",
            ",,,",
            r#"Bearer scope="a\"b c""#,
        ] {
            let _ = read(text);
        }
        assert_eq!(read(r#"Bearer scope="a\"b c""#).unwrap().scopes.unwrap(), ["c"], "a quote is no part of a scope");
        assert_eq!(read(&format!("Bearer scope=\"{}\"", "x ".repeat(9000))), None);
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        assert_eq!(scopes(&many.join(" ")).len(), MAX_SCOPES);
    }
}
