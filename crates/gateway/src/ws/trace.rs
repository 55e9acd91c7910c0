//! The W3C `traceparent` of a request. Log lines written while the request runs carry its ids, so that both sides' logs
//! can be matched. An invalid one is ignored, as the W3C specification requires.

/// Where a request belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    /// The whole trace, 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// The caller's span, 16 hexadecimal digits.
    pub(crate) parent_id: String,
}

/// Reads a `traceparent`.
pub(crate) fn parse(text: &str) -> Option<Trace> {
    let text = text.trim().to_ascii_lowercase();
    let mut parts = text.split('-');
    let mut part = |length: usize| {
        parts.next().filter(|p| p.len() == length && p.bytes().all(|b| b.is_ascii_hexdigit())).map(str::to_owned)
    };
    let (version, trace_id, parent_id, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    // Version 0 has four parts; later ones may have more.
    let known = version != "ff" && (version != "00" || parts.next().is_none());
    let is_set = |id: &str| id.bytes().any(|b| b != b'0');
    (known && is_set(&trace_id) && is_set(&parent_id)).then_some(Trace { trace_id, parent_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_w3c_allows_is_read_and_nothing_else() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01";
        let read = parse(good).unwrap();
        assert_eq!(read.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(read.parent_id, "00f067aa0ba902b7");
        assert!(parse(&good.replacen("00-", "01-", 1).replace("-01", "-01-more")).is_some());
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
