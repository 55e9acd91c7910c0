//! How long a server asks to wait: the `Retry-After` header of an HTTP answer, in both of its forms.

use http::{HeaderMap, header};
use jiff::{Timestamp, fmt::rfc2822};
use std::time::Duration;

/// The wait that the headers ask for. A date in the past asks for none; what is neither a number of seconds nor a date is
/// left out.
pub(crate) fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let asked = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is an unlimited delay, which the policy's limit cuts.
        return Some(Duration::from_secs(asked.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(asked).ok()?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// A wait in the milliseconds of a failure's details.
pub(crate) fn as_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn asked(text: &str) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        let now: Timestamp = "2015-10-21T07:27:30Z".parse().unwrap();
        asked_wait(&headers, now).map(as_ms)
    }

    #[test]
    fn seconds_and_dates_are_understood_and_nothing_else() {
        assert_eq!(asked("7"), Some(7_000));
        assert_eq!(asked(" 0 "), Some(0));
        assert_eq!(asked("Wed, 21 Oct 2015 07:28:00 GMT"), Some(30_000));
        assert_eq!(asked("Wed, 21 Oct 2015 07:00:00 GMT"), Some(0), "the time has come already");
        assert!(asked("99999999999999999999999").unwrap() > 1_000_000_000);
        for nonsense in ["", "soon", "-3", "1.5", "7 seconds"] {
            assert_eq!(asked(nonsense), None, "{nonsense:?}");
        }
        assert_eq!(asked_wait(&HeaderMap::new(), Timestamp::UNIX_EPOCH), None);
    }
}
