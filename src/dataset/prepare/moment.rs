//! A day, or a number of seconds, as somebody types it ↔ seconds since 1970.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const DAY: i64 = 86_400;

/// Below this (March 1973) a time is no day of a log but a number, such as a place in a sequence.
const FIRST_DAY: i64 = 100_000_000;

/// Seconds since 1970, written as an ISO 8601 day where the moment is the beginning of one in UTC,
/// and as a number otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Moment(pub i64);

impl Moment {
    /// The beginning of the moment's day; numbers below [`FIRST_DAY`] stay.
    pub(super) fn day(self) -> Self {
        if self.0 < FIRST_DAY { self } else { Self(self.0 - self.0 % DAY) }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(seconds) = text.parse() {
            return Ok(Self(seconds));
        }
        let day = day_number(text).filter(|&day| iso(day) == text);
        day.map(|day| Self(day * DAY)).ok_or_else(|| {
            format!("expected a day such as 2024-01-31 or seconds since 1970, found `{text}`")
        })
    }
}

impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> Self {
        moment.to_string()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= FIRST_DAY && self.0 % DAY == 0 {
            return f.write_str(&iso(self.0 / DAY));
        }
        write!(f, "{}", self.0)
    }
}

/// The days since 1970 of `year-month-day`; of a day that does not exist, those of another one.
fn day_number(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let in_range = (0..10_000).contains(&year) && (1..=12).contains(&month);
    // Years begin in March, so that a leap day is the last; 306 days of year 0 come before.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    in_range.then_some(365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// The ISO 8601 form of a day, counted from 1970.
fn iso(days: i64) -> String {
    let days = days + 719_468; // since March of year 0
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_seconds_are_read_and_written_back() {
        for (text, seconds) in [
            ("2024-01-31", 1_706_659_200),
            ("2024-02-29", 1_709_164_800),
            ("2000-03-01", 951_868_800),
            ("2017-07-14", 1_499_990_400),
            ("1500000000", 1_500_000_000),
            ("7", 7),
            ("-3", -3),
        ] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!((moment, moment.to_string().as_str()), (Moment(seconds), text));
        }
        assert_eq!("1970-01-02".parse(), Ok(Moment(DAY)));
        assert_eq!(Moment(1_500_000_000).day().to_string(), "2017-07-14");
        assert_eq!(Moment(90_000).day(), Moment(90_000));
    }

    #[test]
    fn every_day_of_four_hundred_years_comes_back() {
        for day in -146_097..146_097 {
            assert_eq!(day_number(&iso(day)), Some(day));
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in ["", "yesterday", "2023-02-29", "2024-13-01", "2024-1-1", "2024-01-31T10:00"] {
            let message = text.parse::<Moment>().unwrap_err();
            assert!(message.contains("a day such as 2024-01-31"), "{message}");
        }
    }
}
