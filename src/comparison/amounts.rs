//! Amounts as a grid writes them, with their unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::settings::{BudgetSettings, BudgetUnit};

/// An amount of training: `30 s`, `2000 steps` or `10 epochs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Amount(pub BudgetSettings);

/// An amount of memory: `16 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const GIB: f64 = (1_u64 << 30) as f64;

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected an amount such as `30 s`, `2000 steps` or `10 epochs`, found `{text}`"
            )
        };
        let (amount, unit) = text.trim().split_once(' ').ok_or_else(expected)?;
        let unit = match unit.trim() {
            "s" => BudgetUnit::Seconds,
            "steps" => BudgetUnit::Steps,
            "epochs" | "epoch" => BudgetUnit::Epochs,
            _ => return Err(expected()),
        };
        let amount = amount.parse().ok().filter(|amount| *amount > 0).ok_or_else(expected)?;
        Ok(Self(BudgetSettings { unit, amount }))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.0.unit {
            BudgetUnit::Seconds => "s",
            BudgetUnit::Steps => "steps",
            BudgetUnit::Epochs => "epochs",
        };
        write!(f, "{} {unit}", self.0.amount)
    }
}

impl TryFrom<String> for Amount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Amount> for String {
    fn from(amount: Amount) -> Self {
        amount.to_string()
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix("GiB").and_then(|text| text.trim().parse().ok());
        let number = number.filter(|number: &f64| *number > 0.0 && number.is_finite());
        let number =
            number.ok_or_else(|| format!("expected `16 GiB` or the like, found `{text}`"))?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0")]
        Ok(Self((number * GIB) as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GiB", self.0 as f64 / GIB)
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}
