//! Quiet hours: the hours of a day, in a time zone, in which no notification is sent.

use crate::{QuietConfig, QuietStatus};
use jiff::{Timestamp, ToSpan, civil::Time, tz::TimeZone};

/// Quiet hours that are set.
#[derive(Debug, Clone)]
pub(crate) struct QuietHours {
    from: Time,
    to: Time,
    zone: TimeZone,
    /// Whether critical questions are sent nevertheless.
    pub(crate) passes_urgent: bool,
}

fn time(key: &str, text: &str) -> Result<Time, String> {
    Time::strptime("%H:%M", text).map_err(|_| format!("{key} must be a time such as 22:00"))
}

impl QuietHours {
    /// Reads the settings; `None` where no quiet hours are set.
    pub(crate) fn read(config: &QuietConfig) -> Result<Option<Self>, String> {
        let zone = match &config.time_zone {
            Some(name) => TimeZone::get(name).map_err(|_| "timeZone is not the name of a time zone".to_owned())?,
            None => TimeZone::system(),
        };
        match (&config.from, &config.to) {
            (None, None) => Ok(None),
            (Some(from), Some(to)) => {
                let (from, to) = (time("from", from)?, time("to", to)?);
                if from == to {
                    return Err("from and to are the same time".to_owned());
                }
                Ok(Some(Self { from, to, zone, passes_urgent: config.urgent }))
            }
            _ => Err("set both from and to".to_owned()),
        }
    }

    /// When the quiet hours end; `None` outside of them.
    pub(crate) fn ends_after(&self, now: Timestamp) -> Option<Timestamp> {
        let here = now.to_zoned(self.zone.clone());
        let (clock, today) = (here.time(), here.date());
        let is_overnight = self.from > self.to;
        let is_quiet = match is_overnight {
            false => (self.from..self.to).contains(&clock),
            true => clock >= self.from || clock < self.to,
        };
        if !is_quiet {
            return None;
        }
        let day = if is_overnight && clock >= self.from { today.checked_add(1.day()).ok()? } else { today };
        let end = day.to_datetime(self.to).to_zoned(self.zone.clone()).ok()?.timestamp();
        // A clock that was set back repeats the hour: the end must lie ahead.
        (end > now).then_some(end)
    }

    pub(crate) fn status(&self, now: Timestamp) -> QuietStatus {
        QuietStatus {
            from: self.from.strftime("%H:%M").to_string(),
            to: self.to.strftime("%H:%M").to_string(),
            time_zone: self.zone.iana_name().map(str::to_owned),
            now: self.ends_after(now).is_some(),
            urgent: self.passes_urgent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(from: &str, to: &str) -> QuietHours {
        let config = QuietConfig {
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
            time_zone: Some("Europe/Berlin".to_owned()),
            urgent: true,
        };
        QuietHours::read(&config).unwrap().unwrap()
    }

    fn end(quiet: &QuietHours, now: &str) -> Option<String> {
        quiet.ends_after(now.parse().unwrap()).map(|end| end.to_string())
    }

    #[test]
    fn hours_are_those_of_the_time_zone_and_may_span_midnight() {
        // Berlin is at UTC+1 in winter.
        let night = quiet("22:00", "07:00");
        assert_eq!(end(&night, "2026-01-10T20:59:59Z"), None);
        assert_eq!(end(&night, "2026-01-10T21:00:00Z").as_deref(), Some("2026-01-11T06:00:00Z"));
        assert_eq!(end(&night, "2026-01-11T05:59:59Z").as_deref(), Some("2026-01-11T06:00:00Z"));
        assert_eq!(end(&night, "2026-01-11T06:00:00Z"), None);
        let noon = quiet("12:00", "13:30");
        assert_eq!(end(&noon, "2026-07-10T10:30:00Z").as_deref(), Some("2026-07-10T11:30:00Z"), "UTC+2 in summer");
        assert_eq!(end(&noon, "2026-07-10T11:30:00Z"), None);
    }

    #[test]
    fn the_night_in_which_clocks_change_ends_at_its_hour() {
        let night = quiet("22:00", "07:00");
        assert_eq!(end(&night, "2026-03-28T22:00:00Z").as_deref(), Some("2026-03-29T05:00:00Z"));
    }

    #[test]
    fn half_of_the_settings_and_unknown_words_are_refused() {
        for config in [
            QuietConfig { from: Some("22:00".to_owned()), ..QuietConfig::default() },
            QuietConfig { from: Some("22".to_owned()), to: Some("07:00".to_owned()), ..QuietConfig::default() },
            QuietConfig { from: Some("07:00".to_owned()), to: Some("07:00".to_owned()), ..QuietConfig::default() },
            QuietConfig { time_zone: Some("Nowhere/Land".to_owned()), ..QuietConfig::default() },
        ] {
            assert!(QuietHours::read(&config).is_err(), "{config:?}");
        }
        assert!(QuietHours::read(&QuietConfig::default()).unwrap().is_none());
    }
}
