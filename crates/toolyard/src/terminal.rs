//! The size of the terminal, and text that fits into its columns.

use jiff::{Timestamp, tz::TimeZone};
use std::{fmt::Display, io::IsTerminal};

/// Columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters on a line.
    pub columns: usize,
    /// Lines on the screen.
    pub lines: usize,
}

/// The size of the terminal on standard output; `None` for a file or a pipe, whose lines are never cut.
pub fn size() -> Option<Size> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    let known = Size { columns: usize::from(size.ws_col), lines: usize::from(size.ws_row) };
    (known.columns > 0 && known.lines > 0).then_some(known)
}

/// How many columns a character takes. Letters of East Asian scripts and pictures take two, combining marks none.
fn columns_of(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// A text in exactly this many columns: cut with an ellipsis, or filled with spaces.
pub fn fit(text: &str, columns: usize) -> String {
    let cut = cut(text, columns);
    let missing = columns.saturating_sub(width(&cut));
    cut + &" ".repeat(missing)
}

/// A text in at most this many columns.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += columns_of(c);
        if used > columns {
            break;
        }
        kept.push(c);
    }
    if columns > 0 { kept + "…" } else { kept }
}

/// A time as a person reads it: the clock within a day, with the date otherwise.
pub fn time(at: Timestamp, now: Timestamp) -> String {
    let zoned = at.to_zoned(TimeZone::system());
    let is_near = now.duration_since(at).abs() < jiff::SignedDuration::from_hours(20);
    zoned.strftime(if is_near { "%H:%M:%S" } else { "%-d %b %H:%M" }).to_string()
}

/// A length of time with at most two units: `12 ms`, `4.6 s`, `1 min 4 s`, `5 h 41 min`, `2 d 3 h`.
pub fn length(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..=59 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=172_799 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// What is left until a time, with the time: `9 min 58 s left, until 16:32:10`.
pub fn left(until: Timestamp, now: Timestamp) -> String {
    let ms = until.as_millisecond() - now.as_millisecond();
    if ms <= 0 {
        format!("expired {}", time(until, now))
    } else {
        format!("{} left, until {}", length(ms), time(until, now))
    }
}

/// A number with its noun: `1 note`, `3 notes`.
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;

    #[test]
    fn a_text_fits_its_columns() {
        assert_eq!(fit("roof", 6), "roof  ");
        assert_eq!(fit("Repair the roof", 8), "Repair …");
        assert_eq!(fit("畑の記録", 6), "畑の… ");
        assert_eq!(width(&fit("e\u{301}te\u{301} in the garden", 5)), 5);
        assert_eq!(cut("roof", 0), "");
    }

    #[test]
    fn a_length_has_at_most_two_units() {
        let lengths = [0, 12, 4620, 64_000, 20_460_000, 183_600_000].map(length);
        assert_eq!(lengths, ["0 ms", "12 ms", "4.6 s", "1 min 4 s", "5 h 41 min", "2 d 3 h"]);
    }

    #[test]
    fn one_thing_is_not_many() {
        assert_eq!([0_u64, 1, 2].map(|number| counted(number, "note")), ["0 notes", "1 note", "2 notes"]);
    }

    #[test]
    fn an_older_time_has_its_date() {
        let now: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        assert_eq!(time(now, now).len(), "12:00:00".len());
        let before = now.checked_sub(72.hours()).unwrap();
        assert!(time(before, now).contains("Nov"), "{}", time(before, now));
        assert!(left(now, now).starts_with("expired"));
    }
}
