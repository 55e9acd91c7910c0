//! Dates in file names and front matter.

use jiff::civil::Date;

pub use toolyard_text::dates::{day_number, day_of_ms as day_of_millis};

/// The date at the start of a file name (`2024-03-05`, `2024_03_05`, `2024.03.05`, `20240305`), which makes the file a
/// date note.
pub fn leading_date(stem: &str) -> Option<Date> {
    date_at(stem, 0)
}

/// The first date anywhere in a file name.
pub fn date_in_name(stem: &str) -> Option<Date> {
    let bytes = stem.as_bytes();
    (0..bytes.len())
        .filter(|&at| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit()))
        .find_map(|at| date_at(stem, at))
}

/// Parses a date without other text: a day, or a day with a time.
pub fn parse_date(text: &str) -> Option<Date> {
    let text = unwrapped(text);
    let date = date_at(text, 0)?;
    let rest = after_date(text);
    let time = rest.strip_prefix(['T', 't', ' ']).map(str::trim_start);
    let is_time = |time: &str| {
        let digits = time.bytes().take_while(u8::is_ascii_digit).count();
        let known = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.' | ',' | '+' | '-' | 'Z' | 'z' | ' ');
        digits >= 2 && time.chars().all(known)
    };
    (rest.is_empty() || time.is_some_and(is_time)).then_some(date)
}

/// A date in front matter: text after it must be separated (`2024-03-05 Tuesday`).
pub(super) fn written_date(text: &str) -> Option<Date> {
    let text = unwrapped(text);
    let date = date_at(text, 0)?;
    let set_apart = after_date(text).chars().next().is_none_or(|c| !c.is_alphanumeric());
    if set_apart { Some(date) } else { parse_date(text) }
}

/// Strips quotes and link brackets.
fn unwrapped(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'', '[', ']'])
}

/// The text after a date at the start of a text.
fn after_date(text: &str) -> &str {
    let is_compact = text.as_bytes().get(4).is_some_and(u8::is_ascii_digit);
    text.get(if is_compact { 8 } else { 10 }..).unwrap_or_default()
}

fn date_at(text: &str, at: usize) -> Option<Date> {
    let bytes = text.as_bytes().get(at..)?;
    let digits = |from: usize, count: usize| -> Option<i16> {
        let part = bytes.get(from..from + count).filter(|part| part.iter().all(u8::is_ascii_digit))?;
        std::str::from_utf8(part).ok()?.parse().ok()
    };
    let separator = *bytes.get(4)?;
    let (month_at, day_at, end) = if matches!(separator, b'-' | b'_' | b'.' | b'/') {
        (bytes.get(7) == Some(&separator)).then_some((5, 8, 10))?
    } else {
        (4, 6, 8)
    };
    if bytes.get(end).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(month_at, 2)?, digits(day_at, 2)?);
    (year >= 1000).then_some(())?;
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn dates_are_read_in_the_forms_people_use() {
        for text in ["2024-03-05", "2024_03_05 Tuesday", "2024.03.05", "20240305", "2024/03/05"] {
            assert_eq!(leading_date(text), Some(date(2024, 3, 5)), "{text}");
        }
        for text in ["2024-13-05", "2024-02-30", "202403051", "x2024-03-05", "0001-01-01", "2024-03_05", ""] {
            assert_eq!(leading_date(text), None, "{text}");
        }
        assert_eq!(date_in_name("Meeting 2024-03-05 with Anna"), Some(date(2024, 3, 5)));
        assert_eq!(date_in_name("日記2024-03-05"), Some(date(2024, 3, 5)));
        assert_eq!(date_in_name("tel 12024-03-05"), None);
        for text in ["\"2024-03-05T10:00:00Z\"", "2024-03-05 10:00", "20240305", "20240305T1000", "[[2024-03-05]]"] {
            assert_eq!(parse_date(text), Some(date(2024, 3, 5)), "{text}");
            assert_eq!(written_date(text), Some(date(2024, 3, 5)), "{text}");
        }
        for text in ["2024-03-05garbage", "20240305x", "2024-03-05Ténèbres", "2024-03-05日"] {
            assert_eq!((parse_date(text), written_date(text)), (None, None), "{text}");
        }
        assert_eq!(parse_date("2024-03-05 or so"), None);
        assert_eq!(written_date("2024-03-05 Tuesday"), Some(date(2024, 3, 5)));
    }

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(day_number(date(1970, 1, 2)), 1);
        assert_eq!(day_number(date(1969, 12, 31)), -1);
        assert_eq!(day_number(date(2024, 3, 5)), 19_787);
        assert_eq!(day_of_millis(19_787 * 86_400_000 + 5), 19_787);
        assert_eq!(day_of_millis(-1), -1);
    }
}
