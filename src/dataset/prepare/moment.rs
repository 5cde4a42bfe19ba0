//! A day, a time, or a number, as a log or somebody writes it ↔ seconds since 1970.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
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
        seconds(text).map(Self).ok_or_else(|| {
            format!(
                "expected a day such as 2024-01-31, a time such as 2024-01-31T17:05:00+01:00, or a number \
                 since 1970, found `{text}`"
            )
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
        match DateTime::from_timestamp(self.0, 0) {
            Some(time) if self.0 >= FIRST_DAY && self.0 % DAY == 0 => {
                write!(f, "{}", time.date_naive())
            }
            _ => write!(f, "{}", self.0),
        }
    }
}

/// Seconds since 1970 of a cell of a log, or of a moment that somebody types.
pub(super) fn seconds(text: &str) -> Option<i64> {
    text.parse().ok().and_then(in_seconds).or_else(|| iso_8601(text))
}

/// No log is of the year 5138, so what would be later counts milli-, micro- or nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "less than 1e11")]
pub(super) fn in_seconds(number: f64) -> Option<i64> {
    let seconds = [1.0, 1e3, 1e6, 1e9].map(|unit| number / unit);
    let seconds = seconds.into_iter().find(|seconds| seconds.abs() < 1e11)?;
    Some(seconds.floor() as i64)
}

/// Seconds since 1970 of an ISO 8601 day, such as 2024-01-31, or of a time of one, such as 2024-01-31T18:05:00+01:00:
/// with a blank for the `T`, without seconds or the minutes of an offset, and in UTC without an offset.
fn iso_8601(text: &str) -> Option<i64> {
    let whole = |missing| format!("{text}{missing}").parse::<DateTime<Utc>>().ok();
    let time = || ["", "Z", ":00", ":00Z"].into_iter().find_map(whole);
    day(text).or_else(|| time().map(|time| time.timestamp()))
}

/// Seconds since 1970 of the beginning of a day in UTC, written as the day is displayed.
fn day(text: &str) -> Option<i64> {
    let day: NaiveDate = text.parse().ok()?;
    (day.to_string() == text).then(|| day.and_time(NaiveTime::MIN).and_utc().timestamp())
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
        // As a column of times may write them.
        let moment = Moment(1_706_720_700);
        for text in [
            "2024-01-31T18:05:00+01:00",
            "2024-01-31 17:05",
            "1706720700000",
            "1706720700.5",
            "1706720700000000000",
        ] {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        assert_eq!(moment.to_string().parse(), Ok(moment));
        assert_eq!(Moment(1_500_000_000).day().to_string(), "2017-07-14");
        assert_eq!(Moment(90_000).day(), Moment(90_000));
    }

    #[test]
    fn times_of_several_writers_are_read() {
        let time = 1_706_720_700;
        for text in [
            "2024-01-31T17:05:00Z",
            "2024-01-31T18:05:00+01:00",
            "2024-01-31 17:05:00",
            "2024-01-31 17:05:00.999999",
            "2024-01-31T17:05:00",
            "2024-01-31 17:05:00 UTC",
            "2024-01-31 17:05:00+00",
            "2024-01-31 18:05:00+0100",
            "2024-01-31 18:05:00 +01:00",
        ] {
            assert_eq!(iso_8601(text), Some(time), "{text}");
        }
        assert_eq!(iso_8601("2024-01-31 17:05"), Some(time));
        assert_eq!(iso_8601("2024-01-31"), Some(time - time % DAY));
        for text in ["", "31/01/2024", "2024-01-32 10:00:00", "2024-01-31 25:00:00", "noon"] {
            assert_eq!(iso_8601(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in ["", "yesterday", "2023-02-29", "2024-13-01", "2024-1-1", "NaN"] {
            let message = text.parse::<Moment>().unwrap_err();
            assert!(message.contains("a day such as 2024-01-31"), "{message}");
        }
    }
}
