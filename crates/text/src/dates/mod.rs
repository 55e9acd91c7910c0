//! Recognises dates in text: days and day ranges that are named ("8 May 2023") or relative to a reference day
//! ("yesterday", "two weeks ago", "last summer"), in English and in Chinese characters.
//!
//! Relative expressions are ignored when no reference day is given.

mod reader;

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use reader::{spans_of, tokenize};
use serde::{Deserialize, Serialize};

/// A range of days, both ends included, as days since 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DaySpan {
    /// First day of the range.
    pub from: i32,
    /// Last day of the range.
    pub to: i32,
}

impl DaySpan {
    /// Creates the range between two dates.
    pub fn new(from: Date, to: Date) -> Self {
        Self { from: day_number(from), to: day_number(to) }
    }

    /// Number of days in the range.
    pub fn days(&self) -> i32 {
        self.to.saturating_sub(self.from).saturating_add(1)
    }

    /// Number of days between two ranges; 0 when they touch or overlap.
    pub fn distance(&self, other: &Self) -> i32 {
        self.from.saturating_sub(other.to).max(other.from.saturating_sub(self.to)).max(0)
    }

    /// The first day as a date.
    pub fn first(&self) -> Date {
        date_of(self.from)
    }

    /// The last day as a date.
    pub fn last(&self) -> Date {
        date_of(self.to)
    }
}

/// The number of days from 1970-01-01 to a date.
pub fn day_number(date: Date) -> i32 {
    EPOCH.until(date).map_or(0, |span| span.get_days())
}

/// The date that lies a number of days after 1970-01-01.
pub fn date_of(day: i32) -> Date {
    EPOCH.checked_add(day.days()).unwrap_or(EPOCH)
}

/// The day (in UTC) of a time in milliseconds since 1970.
pub fn day_of_ms(time_ms: i64) -> i32 {
    i32::try_from(time_ms.div_euclid(DAY_MS)).unwrap_or(if time_ms < 0 { i32::MIN } else { i32::MAX })
}

/// The date (in UTC) of a time in milliseconds since 1970.
pub fn date_of_ms(time_ms: i64) -> Date {
    Timestamp::from_millisecond(time_ms).map_or(EPOCH, |time| time.to_zoned(TimeZone::UTC).date())
}

const EPOCH: Date = Date::constant(1970, 1, 1);
const DAY_MS: i64 = 86_400_000;
/// A number on its own is read as a year only within this range.
const YEARS: std::ops::RangeInclusive<i16> = 1900..=2100;
/// Maximum number of day ranges read from one text.
const MAX_SPANS: usize = 16;

/// What a question asks about time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeIntent {
    /// The question asks when something happened or will happen.
    pub asks_when: bool,
    /// The question mentions time in any way.
    pub temporal: bool,
    /// The day ranges that the question names.
    pub spans: Vec<DaySpan>,
}

/// Analyses a question. Relative expressions such as "last week" are resolved against `today`.
pub fn intent(question: &str, today: Option<Date>) -> TimeIntent {
    let tokens = tokenize(question);
    let words: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let follows = |first: &[&str], second: &[&str]| {
        words.windows(2).any(|pair| first.contains(&pair[0]) && second.contains(&pair[1]))
    };
    let asks_when = has(&["when"])
        || follows(&["what", "which"], &["date", "day", "month", "year", "week", "weekend", "time", "season"])
        || follows(&["how"], &["long", "recently"])
        || question.contains("什么时候")
        || question.contains("何时")
        || question.contains("哪天")
        || question.contains("いつ")
        || question.contains("언제");
    let spans = spans_of(&tokens, today);
    let temporal = asks_when
        || !spans.is_empty()
        || has(&["yesterday", "today", "ago", "recently", "lately", "latest", "earlier", "date", "dates"])
        || follows(&["last", "next", "this", "past"], &UNITS);
    TimeIntent { asks_when, temporal, spans }
}

/// The day ranges that a text names. Relative expressions are resolved against `written`, the day the text was written.
pub fn spans(text: &str, written: Option<Date>) -> Vec<DaySpan> {
    spans_of(&tokenize(text), written)
}

/// Whether a text says when something happened or will happen, with or without a date. Such a text can answer a "when"
/// question.
pub fn tells_when(text: &str) -> bool {
    !spans(text, Some(Date::constant(2020, 6, 15))).is_empty()
}

const UNITS: [&str; 10] = ["week", "month", "year", "weekend", "night", "summer", "winter", "spring", "fall", "autumn"];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A Thursday.
    const TODAY: Date = Date::constant(2023, 5, 25);

    fn read(text: &str) -> Vec<String> {
        spans(text, Some(TODAY)).iter().map(|span| format!("{}..{}", span.first(), span.last())).collect()
    }

    #[test]
    fn days_are_read_by_name_and_number() {
        for text in ["on 8 May, 2023", "May 8th, 2023", "8th of May 2023", "2023-05-08", "2023年5月8日"] {
            assert_eq!(read(text), ["2023-05-08..2023-05-08"], "{text}");
        }
        for text in ["29.12.2022, 00:51:12", "29/12/2022", "12/29/22 at noon", "29-12-2022"] {
            assert_eq!(read(text), ["2022-12-29..2022-12-29"], "{text}");
        }
        for text in ["version 1.2.3", "10.0.0.1", "3.14.15926", "99.99.2020"] {
            assert_eq!(read(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(read("in May 2022"), ["2022-05-01..2022-05-31"]);
        assert_eq!(read("the summer of 2022"), ["2022-06-01..2022-08-31"]);
        assert_eq!(read("back in 2019"), ["2019-01-01..2019-12-31"]);
        assert_eq!(read("that may be 300 people"), Vec::<String>::new());
    }

    #[test]
    fn days_are_read_relative_to_the_day() {
        assert_eq!(read("yesterday"), ["2023-05-24..2023-05-24"]);
        assert_eq!(read("I went there last week"), ["2023-05-15..2023-05-21"]);
        assert_eq!(read("two days ago"), ["2023-05-23..2023-05-23"]);
        assert_eq!(read("next month"), ["2023-06-01..2023-06-30"]);
        assert_eq!(read("last Sunday"), ["2023-05-21..2023-05-21"]);
        assert_eq!(read("the sunday before 25 May 2023"), ["2023-05-21..2023-05-21"]);
        assert_eq!(read("the week before 9 June 2023"), ["2023-06-02..2023-06-08"]);
        assert_eq!(read("上周"), ["2023-05-15..2023-05-21"]);
        assert_eq!(read("昨天"), ["2023-05-24..2023-05-24"]);
        assert_eq!(spans("yesterday", None), Vec::new());
    }

    #[test]
    fn a_question_about_time_is_known() {
        assert!(intent("When did Caroline go?", None).asks_when);
        assert!(intent("What did she do last week?", Some(TODAY)).temporal);
        assert!(!intent("What is her favourite book?", Some(TODAY)).temporal);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), day in -100_000i32..100_000) {
            let _ = spans(&text, Some(date_of(day)));
        }

        #[test]
        fn words_of_time_in_any_order_are_read_without_panic(
            words in prop::collection::vec(prop::sample::select(vec!["last", "week", "2", "31", "February", "2023", "before", "after", "ago", "a", "few", "years", "400", "next", "winter", "day", "in", "上", "个", "月", "年"]), 0..12),
            day in -700_000i32..2_000_000,
        ) {
            let _ = intent(&words.join(" "), Some(date_of(day)));
        }
    }
}
