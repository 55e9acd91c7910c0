//! Parses words into day ranges.

use super::{DaySpan, MAX_SPANS, YEARS, day_number};
use jiff::{
    ToSpan,
    civil::{Date, Weekday},
};

pub(super) struct Token {
    pub(super) text: String,
    number: Option<i32>,
    /// The character between this token and the previous one, if there is exactly one.
    joint: Option<char>,
}

/// Tokenizer state.
#[derive(Default)]
struct Words {
    tokens: Vec<Token>,
    current: String,
    /// The characters between the previous word and the current one: their count, and the last of them.
    gap: (usize, char),
}

impl Words {
    fn end(&mut self) {
        if !self.current.is_empty() {
            let text = std::mem::take(&mut self.current);
            let number = text.parse().ok().or_else(|| ordinal(&text)).or_else(|| number_word(&text));
            let joint = (self.gap.0 == 1).then_some(self.gap.1);
            self.tokens.push(Token { text, number, joint });
            self.gap = (0, ' ');
        }
    }
}

pub(super) fn tokenize(text: &str) -> Vec<Token> {
    let mut words = Words::default();
    let mut digits = false;
    for c in text.chars() {
        if matches!(c, '\'' | '’') {
            continue;
        }
        if !c.is_alphanumeric() {
            words.end();
            words.gap = (words.gap.0 + 1, c);
            continue;
        }
        if crate::scripts::is_unspaced(c) {
            // Each character is its own token, because dates in Chinese and Japanese are parsed character by character.
            words.end();
            words.current.push(c);
            words.end();
            continue;
        }
        let may_end_ordinal = matches!(c.to_ascii_lowercase(), 's' | 'n' | 'r' | 't' | 'd' | 'h');
        if !words.current.is_empty() && digits && !c.is_ascii_digit() && !may_end_ordinal {
            words.end();
        }
        digits = c.is_ascii_digit();
        words.current.extend(c.to_lowercase());
    }
    words.end();
    words.tokens
}

fn ordinal(text: &str) -> Option<i32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|suffix| text.strip_suffix(suffix))?;
    digits.parse().ok()
}

fn number_word(text: &str) -> Option<i32> {
    Some(match text {
        "one" | "first" => 1,
        "two" | "second" => 2,
        "three" | "third" => 3,
        "four" | "fourth" => 4,
        "five" | "fifth" => 5,
        "six" => 6,
        "seven" => 7,
        "eight" => 8,
        "nine" => 9,
        "ten" => 10,
        "eleven" => 11,
        "twelve" => 12,
        _ => return None,
    })
}

fn month_of(text: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let at = MONTHS
        .iter()
        .position(|month| *month == text || (text.len() >= 3 && text.len() <= 4 && month.starts_with(text)))?;
    Some(at as i8 + 1)
}

fn weekday_of(text: &str) -> Option<Weekday> {
    Some(match text {
        "monday" | "mon" => Weekday::Monday,
        "tuesday" | "tue" | "tues" => Weekday::Tuesday,
        "wednesday" | "wed" => Weekday::Wednesday,
        "thursday" | "thu" | "thurs" => Weekday::Thursday,
        "friday" | "fri" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => return None,
    })
}

/// First and last month of a season in the northern hemisphere.
fn season_of(text: &str) -> Option<(i8, i8)> {
    Some(match text {
        "spring" => (3, 5),
        "summer" => (6, 8),
        "autumn" | "fall" => (9, 11),
        "winter" => (12, 2),
        _ => return None,
    })
}

pub(super) fn spans_of(tokens: &[Token], day: Option<Date>) -> Vec<DaySpan> {
    let reader = Reader { tokens, day };
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() && found.len() < MAX_SPANS {
        match reader.at(at) {
            Some((span, used)) => {
                if let Some(span) = span
                    && !found.contains(&span)
                {
                    found.push(span);
                }
                at += used.max(1);
            }
            None => at += 1,
        }
    }
    found
}

struct Reader<'a> {
    tokens: &'a [Token],
    day: Option<Date>,
}

/// A parsed day range and the number of tokens it used. The range is `None` when the words are about time but name no
/// day, for example because there is no reference day.
type ParsedRange = Option<(Option<DaySpan>, usize)>;

impl Reader<'_> {
    fn word(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn number(&self, at: usize) -> Option<i32> {
        self.tokens.get(at)?.number
    }

    /// A number that is written in digits and not as an ordinal.
    fn plain(&self, at: usize) -> Option<i16> {
        self.tokens.get(at).filter(|token| token.text.bytes().all(|b| b.is_ascii_digit()))?.text.parse().ok()
    }

    fn year(&self, at: usize) -> Option<i16> {
        self.plain(at).filter(|year| YEARS.contains(year))
    }

    fn at(&self, at: usize) -> ParsedRange {
        self.before_or_after(at)
            .or_else(|| self.calendar(at))
            .or_else(|| self.relative(at))
            .or_else(|| self.ideographic(at))
    }

    /// "the week before 9 June 2023", "the Sunday before May 25", "two days after ...".
    fn before_or_after(&self, at: usize) -> ParsedRange {
        let (count, unit_at) = match self.number(at) {
            Some(count) if (1..=60).contains(&count) => (count, at + 1),
            _ => (1, at),
        };
        let unit = self.word(unit_at).trim_end_matches('s').to_owned();
        let weekday = weekday_of(&unit);
        if weekday.is_none() && !matches!(unit.as_str(), "day" | "week" | "month" | "year" | "weekend") {
            return None;
        }
        let backward = match self.word(unit_at + 1) {
            "before" => true,
            "after" => false,
            _ => return None,
        };
        let (anchor, used) = self.calendar(unit_at + 2)?;
        let anchor = anchor?;
        let total = unit_at + 2 + used - at;
        let sign = if backward { -1 } else { 1 };
        let span = if let Some(weekday) = weekday {
            let edge = if backward { anchor.first() } else { anchor.last() };
            edge.nth_weekday(sign, weekday).ok().map(|date| DaySpan::new(date, date))
        } else if backward {
            shift(anchor.first(), &unit, -count).map(|from| DaySpan { from: day_number(from), to: anchor.from - 1 })
        } else {
            shift(anchor.last(), &unit, count).map(|to| DaySpan { from: anchor.to + 1, to: day_number(to) })
        };
        Some((span, total))
    }

    /// Calendar dates, by name or by number.
    fn calendar(&self, at: usize) -> ParsedRange {
        // 2023-05-08
        if let (Some(year), Some(month), Some(day)) = (self.year(at), self.plain(at + 1), self.plain(at + 2))
            && let Ok(date) = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?)
        {
            return Some((Some(DaySpan::new(date, date)), 3));
        }
        if let Some(date) = self.numeric(at) {
            return Some((Some(DaySpan::new(date, date)), 3));
        }
        // 8 May[,] [2023], 8th of May
        if let Some(day) = self.number(at).filter(|day| (1..=31).contains(day)) {
            let of = usize::from(self.word(at + 1) == "of");
            if let Some(month) = month_of(self.word(at + 1 + of)) {
                return self.day_month(day, month, at, 2 + of);
            }
        }
        if let Some(month) = month_of(self.word(at)) {
            // May 8[th][,] [2023]; but not "May 2023", and not "may" the verb
            if let Some(day) = self.number(at + 1).filter(|day| (1..=31).contains(day)) {
                return self.day_month(day, month, at, 2);
            }
            let of = usize::from(self.word(at + 1) == "of");
            if let Some(year) = self.year(at + 1 + of) {
                return Some((month_span(year, month), 2 + of));
            }
            let before = at.checked_sub(1).map_or("", |before| self.word(before));
            let certain = matches!(
                before,
                "in" | "last" | "next" | "this" | "since" | "during" | "until" | "by" | "early" | "late" | "mid" | "of"
            );
            if certain
                || !matches!(self.word(at), "may" | "march" | "mar" | "dec" | "sep" | "sept" | "jun" | "jul" | "jan")
            {
                let span = self.day.and_then(|day| month_span(year_near(day, month, before == "next"), month));
                return Some((span, 1));
            }
            return None;
        }
        if let Some((first, last)) = season_of(self.word(at)) {
            let of = usize::from(self.word(at + 1) == "of");
            if let Some(year) = self.year(at + 1 + of) {
                return Some((season_span(year, first, last), 2 + of));
            }
            return None;
        }
        // A year alone counts only after a preposition or adverb that marks it as a year.
        if let Some(year) = self.year(at) {
            let before = at.checked_sub(1).map_or("", |before| self.word(before));
            if matches!(
                before,
                "in" | "of" | "since" | "during" | "year" | "until" | "by" | "early" | "late" | "mid" | "from"
            ) {
                return Some((year_span(year), 1));
            }
        }
        None
    }

    /// Numeric dates such as 29.12.2023, 29/12/2023 and 12/29/23: three numbers with the same separator and the year
    /// last. With dots and hyphens the day comes first. With slashes the month comes first, unless that number is
    /// greater than 12.
    fn numeric(&self, at: usize) -> Option<Date> {
        let joint = self.tokens.get(at + 1)?.joint.filter(|joint| matches!(joint, '.' | '/' | '-'))?;
        if self.tokens.get(at + 2)?.joint != Some(joint) {
            return None;
        }
        let (first, second, year) = (self.plain(at)?, self.plain(at + 1)?, self.plain(at + 2)?);
        let year = match self.word(at + 2).len() {
            // A two-digit year needs a two-digit day and month: one-digit parts usually mean a version number.
            2 if self.word(at).len() == 2 && self.word(at + 1).len() == 2 => 2000 + year,
            4 => Some(year).filter(|year| YEARS.contains(year))?,
            _ => return None,
        };
        let month_first = (joint == '/' && first <= 12) || second > 12;
        let (day, month) = if month_first { (second, first) } else { (first, second) };
        Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
    }

    fn day_month(&self, day: i32, month: i8, at: usize, used: usize) -> ParsedRange {
        let day = i8::try_from(day).ok()?;
        if let Some(year) = self.year(at + used) {
            let date = Date::new(year, month, day).ok()?;
            return Some((Some(DaySpan::new(date, date)), used + 1));
        }
        let date = self.day.and_then(|today| Date::new(year_near(today, month, false), month, day).ok());
        Some((date.map(|date| DaySpan::new(date, date)), used))
    }

    /// Expressions relative to the reference day.
    fn relative(&self, at: usize) -> ParsedRange {
        let day = self.day;
        let single =
            |offset: i32| day.and_then(|day| day.checked_add(offset.days()).ok()).map(|date| DaySpan::new(date, date));
        match self.word(at) {
            "today" | "tonight" => return Some((single(0), 1)),
            "yesterday" => return Some((single(-1), 1)),
            "tomorrow" => return Some((single(1), 1)),
            _ => {}
        }
        if self.word(at) == "day" && matches!(self.word(at + 1), "before" | "after") {
            match self.word(at + 2) {
                "yesterday" => return Some((single(-2), 3)),
                "tomorrow" => return Some((single(2), 3)),
                _ => {}
            }
        }
        self.ago(at).or_else(|| self.last_next(at))
    }

    /// "two weeks ago", "a few days ago", "in 3 days".
    fn ago(&self, at: usize) -> ParsedRange {
        let (count, unit_at) = match (self.word(at), self.word(at + 1), self.word(at + 2)) {
            ("a", "few", _) | ("a", "couple", _) => {
                let of = usize::from(self.word(at + 2) == "of");
                (if self.word(at + 1) == "few" { 3 } else { 2 }, at + 2 + of)
            }
            ("couple", "of", _) => (2, at + 2),
            ("few", ..) => (3, at + 1),
            ("a" | "an", ..) => (1, at + 1),
            _ => (self.number(at).filter(|count| (1..=400).contains(count))?, at + 1),
        };
        let unit = self.word(unit_at).trim_end_matches('s').to_owned();
        if !matches!(unit.as_str(), "day" | "week" | "month" | "year" | "weekend" | "decade") {
            return None;
        }
        let before = at.checked_sub(1).map_or("", |before| self.word(before));
        let sign = match self.word(unit_at + 1) {
            "ago" | "back" | "earlier" => -1,
            _ if matches!(before, "in" | "within") => 1,
            _ if matches!(before, "past" | "last" | "for" | "about") => -1,
            _ => return None,
        };
        let used = unit_at + 2 - at - usize::from(!matches!(self.word(unit_at + 1), "ago" | "back" | "earlier"));
        let span = self.day.and_then(|day| shift(day, &unit, sign * count)).map(|date| around(date, &unit));
        Some((span, used))
    }

    /// "last week", "next Monday", "this month", "last summer", "on Friday".
    fn last_next(&self, at: usize) -> ParsedRange {
        let step = match self.word(at) {
            "last" | "past" | "previous" => -1,
            "this" | "current" => 0,
            "next" | "coming" | "upcoming" => 1,
            "on" => {
                let weekday = weekday_of(self.word(at + 1))?;
                let span = self.day.and_then(|day| day.yesterday().ok()?.nth_weekday(1, weekday).ok());
                return Some((span.map(|date| DaySpan::new(date, date)), 2));
            }
            _ => return None,
        };
        let unit = self.word(at + 1);
        if let Some(weekday) = weekday_of(unit) {
            let date = self.day.and_then(|day| match step {
                -1 => day.nth_weekday(-1, weekday).ok(),
                0 => day.yesterday().ok()?.nth_weekday(1, weekday).ok(),
                _ => day.nth_weekday(1, weekday).ok(),
            });
            return Some((date.map(|date| DaySpan::new(date, date)), 2));
        }
        if let Some((first, last)) = season_of(unit) {
            let span = self.day.and_then(|day| {
                let started = day.month() >= first;
                let year = match step {
                    -1 if day.month() > last && last >= first => day.year(),
                    -1 => day.year() - 1,
                    0 => day.year(),
                    _ if started => day.year() + 1,
                    _ => day.year(),
                };
                season_span(year, first, last)
            });
            return Some((span, 2));
        }
        let span = match unit {
            "night" | "evening" => {
                self.day.and_then(|day| day.checked_add(step.days()).ok()).map(|date| DaySpan::new(date, date))
            }
            "week" | "weeks" => self.day.and_then(|day| week_span(day, step)),
            "weekend" => self.day.and_then(|day| weekend_span(day, step)),
            "month" => {
                self.day.and_then(|day| shift(day, "month", step)).and_then(|day| month_span(day.year(), day.month()))
            }
            "year" => self.day.and_then(|day| year_span(day.year() + step as i16)),
            _ => return None,
        };
        Some((span, 2))
    }

    /// 2023年5月8日, 昨天, 上周, 去年.
    fn ideographic(&self, at: usize) -> ParsedRange {
        let pair = (self.word(at), self.word(at + 1));
        if let (Some(year), "年") = (self.plain(at), self.word(at + 1)) {
            if let (Some(month), "月") = (self.plain(at + 2).and_then(|m| i8::try_from(m).ok()), self.word(at + 3)) {
                if let (Some(day), "日" | "号") =
                    (self.plain(at + 4).and_then(|d| i8::try_from(d).ok()), self.word(at + 5))
                {
                    let date = Date::new(year, month, day).ok()?;
                    return Some((Some(DaySpan::new(date, date)), 6));
                }
                return Some((month_span(year, month), 4));
            }
            return Some((year_span(year), 2));
        }
        if let (Some(month), "月") = (self.plain(at).and_then(|m| i8::try_from(m).ok()), self.word(at + 1)) {
            if let (Some(day), "日" | "号") = (self.plain(at + 2).and_then(|d| i8::try_from(d).ok()), self.word(at + 3))
            {
                let date = self.day.and_then(|today| Date::new(year_near(today, month, false), month, day).ok());
                return Some((date.map(|date| DaySpan::new(date, date)), 4));
            }
            return Some((self.day.and_then(|day| month_span(year_near(day, month, false), month)), 2));
        }
        let offset = match pair {
            ("今", "天") | ("今", "日") => Some(0),
            ("昨", "天") | ("昨", "日") => Some(-1),
            ("前", "天") => Some(-2),
            ("明", "天") | ("明", "日") => Some(1),
            ("后", "天") => Some(2),
            _ => None,
        };
        if let Some(offset) = offset {
            let date = self.day.and_then(|day| day.checked_add(offset.days()).ok());
            return Some((date.map(|date| DaySpan::new(date, date)), 2));
        }
        let step = match pair.0 {
            "上" | "去" | "昨" => -1,
            "本" | "这" | "今" => 0,
            "下" | "明" => 1,
            _ => return None,
        };
        let skip = usize::from(pair.1 == "个");
        let span = match self.word(at + 1 + skip) {
            "周" | "週" => self.day.and_then(|day| week_span(day, step)),
            "月" => {
                self.day.and_then(|day| shift(day, "month", step)).and_then(|day| month_span(day.year(), day.month()))
            }
            "年" => self.day.and_then(|day| year_span(day.year() + step as i16)),
            _ => return None,
        };
        Some((span, 2 + skip))
    }
}

fn shift(day: Date, unit: &str, count: i32) -> Option<Date> {
    let span = match unit {
        "day" => count.days(),
        "week" | "weekend" => count.weeks(),
        "month" => count.months(),
        "year" => count.years(),
        "decade" => (count.checked_mul(10)?).years(),
        _ => return None,
    };
    day.checked_add(span).ok()
}

/// "Two weeks ago" means approximately that day, so the range grows with the unit.
fn around(day: Date, unit: &str) -> DaySpan {
    let give = match unit {
        "day" => 0,
        "week" => 3,
        "weekend" => 3,
        "month" => 15,
        _ => 182,
    };
    let number = day_number(day);
    DaySpan { from: number - give, to: number + give }
}

/// The year of the named month that is nearest to the reference day, or of the next such month.
fn year_near(day: Date, month: i8, next: bool) -> i16 {
    let ahead = i32::from(month) - i32::from(day.month());
    match ahead {
        _ if next => day.year() + i16::from(ahead <= 0),
        // People refer to the past more often than to a month more than a season ahead.
        4.. => day.year() - 1,
        ..=-9 => day.year() + 1,
        _ => day.year(),
    }
}

fn month_span(year: i16, month: i8) -> Option<DaySpan> {
    let first = Date::new(year, month, 1).ok()?;
    Some(DaySpan::new(first, first.last_of_month()))
}

fn year_span(year: i16) -> Option<DaySpan> {
    Some(DaySpan::new(Date::new(year, 1, 1).ok()?, Date::new(year, 12, 31).ok()?))
}

fn season_span(year: i16, first: i8, last: i8) -> Option<DaySpan> {
    let end_year = if last < first { year.checked_add(1)? } else { year };
    Some(DaySpan::new(Date::new(year, first, 1).ok()?, Date::new(end_year, last, 1).ok()?.last_of_month()))
}

/// Monday to Sunday of the week that is `step` weeks from the week of `day`.
fn week_span(day: Date, step: i32) -> Option<DaySpan> {
    let monday = day.checked_sub(i32::from(day.weekday().to_monday_zero_offset()).days()).ok()?;
    let from = shift(monday, "week", step)?;
    Some(DaySpan { from: day_number(from), to: day_number(from) + 6 })
}

fn weekend_span(day: Date, step: i32) -> Option<DaySpan> {
    let week = week_span(day, step)?;
    Some(DaySpan { from: week.to - 1, to: week.to })
}
