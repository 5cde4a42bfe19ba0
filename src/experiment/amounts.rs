//! Text such as `30 s` or `16 GiB` in a grid goes in; amounts of training and of memory come out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::settings::{BudgetSettings, BudgetUnit};

/// An amount of training: `30 s`, `2000 steps` or `10 epochs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Amount(pub BudgetSettings);

/// An amount of memory in bytes; a grid writes `16 GiB`, or the number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "u64")]
pub struct Bytes(pub u64);

/// The two forms of an amount of memory.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

const UNITS: [(BudgetUnit, &str); 4] = [
    (BudgetUnit::Seconds, "s"),
    (BudgetUnit::Steps, "steps"),
    (BudgetUnit::Epochs, "epochs"),
    (BudgetUnit::Epochs, "epoch"),
];

const GIB: f64 = (1_u64 << 30) as f64;

impl TryFrom<String> for Amount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = || {
            let (amount, unit) = text.trim().split_once(' ')?;
            let (unit, _) = UNITS.into_iter().find(|(_, name)| *name == unit.trim())?;
            let amount = amount.parse().ok().filter(|amount| *amount > 0)?;
            Some(Self(BudgetSettings { unit, amount }))
        };
        let expected = "expected an amount such as `30 s`, `2000 steps` or `10 epochs`";
        read().ok_or_else(|| format!("{expected}, found `{text}`"))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(unit, _)| *unit == self.0.unit);
        write!(f, "{} {}", self.0.amount, unit.map_or("", |(_, name)| *name))
    }
}

impl From<Amount> for String {
    fn from(amount: Amount) -> Self {
        amount.to_string()
    }
}

impl TryFrom<Written> for Bytes {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let text = match written {
            Written::Number(bytes) => return Ok(Self(bytes)),
            Written::Text(text) => text,
        };
        let number = text.trim().strip_suffix("GiB").and_then(|text| text.trim().parse().ok());
        let number = number.filter(|number: &f64| *number > 0.0 && number.is_finite());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0")]
        let bytes = number.map(|number| Self((number * GIB) as u64));
        bytes.ok_or_else(|| format!("expected `16 GiB` or the like, found `{text}`"))
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GiB", self.0 as f64 / GIB)
    }
}
