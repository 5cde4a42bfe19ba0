//! A log of what was shown → what another policy would have earned, and what it can learn.
//!
//! A slate is a function of the perturbed query `z = h₀ + σε` and of the request. An answer that explores
//! logs z, σ and h₀, so the chance that another policy would have shown the same slate for the same
//! reason is a ratio of Gaussian densities in `R^L` ([`Drawn`]): exact, whatever K and P are, and
//! without a search.
//!
//! # What has to hold
//! - The two policies have one σ. A row brings its own; where σ is a multiple of ‖h‖, the other query is
//!   stretched to the logged one's length, and rows whose h₀ is so short that σ has stopped shrinking
//!   are left out.
//! - The slate is the same function of z and the request for both: the same action vectors and the same
//!   search, which may be approximate, and nothing that looked at h₀. Rows of other vectors or another
//!   search, degraded answers and re-ranked ones are left out.
//! - Exploring did not depend on what happened.
//!
//! What is estimated is the value of the policy that *explores*, `h + σε`. The value of its decision
//! without noise cannot be told from such a log.
//!
//! Rows that are left out are counted by their reason ([`Unused`]).

mod doubts;
mod martingales;
mod rows;
mod value;
mod weights;

pub mod positions;
pub mod rewards;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use martingales::{Prior, RISK, smoothing};
pub use rows::{Logged, Outcome, Reading, ShownSlates};
pub use value::{Value, Weighed};
pub use weights::{Drawn, Ratio};

use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::seed::Seed;

/// How many rows were left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Unused(pub BTreeMap<String, u64>);

impl Unused {
    fn add(&mut self, reason: &str) {
        *self.0.entry(reason.to_owned()).or_default() += 1;
    }
}

/// The least and the most that a reward can be, declared before the log is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The least.
    pub low: f64,
    /// The most, where it is known: a bound above a value needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl Bounds {
    const KEY: &str = "reward-bounds";

    /// The width; 1 without an upper end, so that numbers keep their unit.
    fn range(self) -> f64 {
        self.high.map_or(1.0, |high| high - self.low)
    }

    fn mapped(self, reward: f64) -> f64 {
        (reward - self.low) / self.range()
    }

    fn unmapped(self, value: f64) -> f64 {
        self.low + value * self.range()
    }

    /// Fails unless there is an upper end.
    fn closed(self) -> Result<()> {
        if self.high.is_some() {
            return Ok(());
        }
        let problem = "needs the least and the most that a reward can be, such as 0,1";
        Err(Error::setting(Self::KEY, problem))
    }

    fn check(self, rewards: &[f64]) -> Result<()> {
        let Self { low, high } = self;
        if !low.is_finite() || high.is_some_and(|high| !high.is_finite() || high <= low) {
            let problem = "expected two finite numbers, the least before the most";
            return Err(Error::setting(Self::KEY, problem));
        }
        // Values that are added up are off by rounding.
        let off = |bound: f64| 1e-9 * bound.abs();
        let within = |reward: f64| {
            reward >= low - off(low) && high.is_none_or(|high| reward <= high + off(high))
        };
        let Some(found) = rewards.iter().copied().find(|reward| !within(*reward)) else {
            return Ok(());
        };
        let expected = match high {
            None => format!("at least {low}"),
            Some(high) => format!("from {low} to {high}"),
        };
        Err(Error::setting(Self::KEY, format!("a slate earned {found}, expected {expected}")))
    }
}

/// How the persons of a log are divided: three fifths are learned from, one fifth says when to stop,
/// and one fifth judges. The same seed gives a person the same part in every log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cut(pub Seed);

impl Cut {
    /// The part of a person: to train on, to stop by, to judge by.
    #[must_use]
    pub fn part(self, person: &str) -> Split {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.0.to_le_bytes()).update(person.as_bytes());
        match u16::from(hasher.finalize().as_bytes()[0]) * 10 / 256 {
            0..6 => Split::Train,
            6..8 => Split::Validation,
            _ => Split::Test,
        }
    }
}
