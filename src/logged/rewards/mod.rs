//! A log of whole slates, with an outcome for each position → rewards to train on. The context of a
//! reward is the number of a row of the log.
//!
//! Each estimate assumes something about the outcomes; its own page says what. None of them is certain
//! where the log never shows an item.

mod cascade;
mod direct;
mod doubly_robust;
mod examination;
mod ips;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use cascade::CascadeClicks;
pub use direct::Direct;
pub use doubly_robust::DoublyRobust;
pub use examination::PositionBased;
pub use ips::PositionIps;

use crate::dataset::Split;
use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::reward::SlateReward;
use crate::seed::Seed;

/// The mean attraction counts as so many rows of each item in the click models.
const PRIOR_ROWS: f64 = 10.0;

/// n slates that were shown, with what happened at each position.
#[derive(Clone, Debug)]
pub struct Shown {
    /// M(X), `[n, D]`.
    pub contexts: Matrix,
    /// The actions of each slate, best first, `[n, K]`.
    pub slates: Vec<u32>,
    /// K.
    pub slate_size: usize,
    /// What happened at each position, such as 1 for a click, `[n, K]`.
    pub outcomes: Vec<f32>,
    /// The probability that the policy that logged shows this action at this position, given the
    /// context, `[n, K]`.
    pub propensities: Option<Vec<f32>>,
    /// The part of each row's person, `[n]`: only rows to train on are fitted. What the others clicked on
    /// chooses checkpoints and judges.
    pub parts: Vec<Split>,
}

impl Shown {
    /// n.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.contexts.rows()
    }

    /// Each shown action with its position from 0 and its outcome, row after row.
    fn places(&self) -> impl Iterator<Item = (usize, u32, f32)> {
        let actions = self.slates.iter().zip(&self.outcomes).enumerate();
        actions.map(|(at, (action, outcome))| (at % self.slate_size, *action, *outcome))
    }

    /// True for a row to train on.
    fn is_fitted(&self, row: usize) -> bool {
        self.parts[row] == Split::Train
    }

    /// The [`places`](Self::places) of the rows to train on.
    fn fitted_places(&self) -> impl Iterator<Item = (usize, u32, f32)> {
        let places = self.places().enumerate();
        places.filter(|(at, _)| self.is_fitted(at / self.slate_size)).map(|(_, place)| place)
    }

    /// Refuses what no reward can be made of; β has `num_actions` rows.
    ///
    /// # Errors
    /// [`Error::Shape`] for parts that do not fit; [`Error::NotFinite`]; [`Error::Setting`] for an action
    /// without a vector, or a propensity that is not above 0 and at most 1.
    fn check(&self, num_actions: usize) -> Result<()> {
        let (rows, size) = (self.rows(), self.slate_size);
        let lengths = [
            ("slates", Some(self.slates.len())),
            ("outcomes", Some(self.outcomes.len())),
            ("propensities", self.propensities.as_ref().map(Vec::len)),
        ];
        for (what, found) in lengths {
            if found.is_some_and(|found| size == 0 || found != rows * size) {
                return Err(Error::Shape {
                    what: format!("logged {what}"),
                    expected: format!("[{rows}, {size}], and at least one position"),
                    found: format!("{} numbers", found.unwrap_or_default()),
                });
            }
        }
        if self.parts.len() != rows {
            return Err(Error::Shape {
                what: "parts of the logged rows".into(),
                expected: format!("[{rows}]"),
                found: format!("[{}]", self.parts.len()),
            });
        }
        self.contexts.require_finite("logged contexts")?;
        if let Some(at) = self.outcomes.iter().position(|outcome| !outcome.is_finite()) {
            let (row, column, value) = (at / size, at % size, self.outcomes[at]);
            return Err(Error::NotFinite { what: "logged outcomes".into(), row, column, value });
        }
        if let Some(at) = self.slates.iter().position(|action| *action as usize >= num_actions) {
            let (row, position, found) = (at / size, at % size, self.slates[at]);
            let problem = format!(
                "row {} of the log shows action {found} at position {}, expected one of the \
                 {num_actions} that have vectors",
                row + 1,
                position + 1
            );
            return Err(Error::setting(LoggedReward::KEY, problem));
        }
        let probability = |found: &f32| *found > 0.0 && *found <= 1.0;
        let propensities = self.propensities.as_deref().unwrap_or_default();
        if let Some(at) = propensities.iter().position(|found| !probability(found)) {
            let (row, position, found) = (at / size, at % size, propensities[at]);
            let problem = format!(
                "row {} of the log has the propensity {found} at position {}, expected a \
                 probability above 0 and at most 1",
                row + 1,
                position + 1
            );
            return Err(Error::setting(LoggedReward::KEY, problem));
        }
        Ok(())
    }
}

/// The rewards that are estimated from a log, by their names in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoggedReward {
    /// [`PositionIps`]. Assumes that the outcome at a position depends on the context and its own item
    /// only, and that the propensities are right. Unbiased then, and noisy: most slates earn 0 in most
    /// rows.
    Ips,
    /// [`Direct`]. Assumes that the mean outcome is linear in its features. Needs no propensities; is
    /// biased where the model is wrong.
    Direct,
    /// [`DoublyRobust`]. Assumes what [`Ips`](Self::Ips) assumes of outcomes, and that the propensities
    /// or the direct model are right. Less noisy than `ips`.
    DoublyRobust,
    /// [`PositionBased`]. Assumes that a click needs a look at the position, whatever the item, and an
    /// attractive item, whatever the position and the context. Needs no propensities, but items that
    /// were shown at several positions.
    PositionBased,
    /// [`CascadeClicks`]. Assumes that people read from the top, click on the first attractive item
    /// and leave. Needs no propensities.
    CascadeClicks,
}

impl fmt::Display for LoggedReward {
    /// The name in the settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl LoggedReward {
    const KEY: &str = "estimate";

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Ips, Self::Direct, Self::DoublyRobust, Self::PositionBased, Self::CascadeClicks];

    /// Estimates the reward from a log; `actions` is β `[P, L]`, and `seed` divides the rows into folds.
    ///
    /// # Errors
    /// [`Error::Setting`] if the reward needs propensities and the log has none, or for a row that
    /// cannot be; [`Error::Shape`] and [`Error::NotFinite`] for numbers that do not fit.
    pub fn init(
        self,
        shown: &Shown,
        actions: &Arc<ActionEmbeddings>,
        seed: Seed,
    ) -> Result<Arc<dyn SlateReward>> {
        shown.check(actions.num_actions())?;
        let propensities = || {
            shown.propensities.as_deref().ok_or_else(|| {
                let problem = format!(
                    "`{self}` needs the propensity of each position, and this log has none; use \
                     direct, position-based or cascade-clicks"
                );
                Error::setting(Self::KEY, problem)
            })
        };
        Ok(match self {
            Self::Ips => Arc::new(PositionIps::new(shown, propensities()?)),
            Self::Direct => Arc::new(Direct::fit(shown, actions, seed)?),
            Self::DoublyRobust => {
                let propensities = propensities()?;
                Arc::new(DoublyRobust::new(Direct::fit(shown, actions, seed)?, shown, propensities))
            }
            Self::PositionBased => Arc::new(PositionBased::fit(shown, actions.num_actions())),
            Self::CascadeClicks => Arc::new(CascadeClicks::fit(shown, actions.num_actions())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Purpose;

    /// Contexts of two numbers, five actions of two, and slates of three that a seed draws uniformly.
    pub(super) fn drawn(rows: usize, click: impl Fn(&[f32], u32, usize) -> f64) -> Shown {
        let mut shown = Shown {
            contexts: Matrix::zeros(rows, 2),
            slates: Vec::new(),
            slate_size: 3,
            outcomes: Vec::new(),
            propensities: Some(vec![0.2; rows * 3]),
            parts: vec![Split::Train; rows],
        };
        let mut stream = Seed(7).stream(Purpose::Synthetic, 0, 0);
        stream.fill_normals(shown.contexts.as_mut_slice());
        for row in 0..rows {
            let mut slate = [0, 1, 2, 3, 4];
            stream.shuffle(&mut slate);
            for (position, action) in slate.into_iter().take(3).enumerate() {
                let chance = click(shown.contexts.row(row), action, position);
                shown.slates.push(action);
                shown.outcomes.push(f32::from(u8::from(stream.uniform() < chance)));
            }
        }
        shown
    }

    /// β of five actions.
    pub(super) fn actions() -> Arc<ActionEmbeddings> {
        let beta = vec![1.0, 0.0, 0.0, 1.0, 0.7, 0.7, -1.0, 0.0, 0.0, -0.5];
        Arc::new(ActionEmbeddings::new(Matrix::new(beta, 2).unwrap()).unwrap())
    }

    #[test]
    fn every_reward_has_its_name_and_earns_something() {
        // The shortest vector of all is the one to show.
        let shown = drawn(300, |_, action, _| if action == 4 { 0.9 } else { 0.1 });
        for kind in LoggedReward::ALL {
            let name: String = serde_json::from_value(serde_json::to_value(kind).unwrap()).unwrap();
            assert_eq!(name, kind.to_string());
            let reward = kind.init(&shown, &actions(), Seed(0)).unwrap();
            let mean =
                |slate: &[u32]| (0..300).map(|row| reward.reward(row, slate)).sum::<f32>() / 300.0;
            assert!(mean(&[4, 1, 0]) > mean(&[3, 1, 0]) + 0.3, "{kind}");
        }
        assert_eq!(
            LoggedReward::ALL.map(|kind| kind.to_string()).join(" "),
            "ips direct doubly-robust position-based cascade-clicks"
        );
    }

    /// A policy that learns from a reward is judged on others; what these clicked on is not in it.
    #[test]
    fn nobody_who_chooses_or_judges_is_fitted() {
        let mut shown = drawn(300, |_, action, _| f64::from(action) / 5.0);
        for row in 200..300 {
            shown.parts[row] = if row < 250 { Split::Validation } else { Split::Test };
        }
        let mut other = shown.clone();
        other.outcomes[600..].fill(1.0);
        let kinds =
            [LoggedReward::Direct, LoggedReward::PositionBased, LoggedReward::CascadeClicks];
        for kind in kinds {
            let [one, two] =
                [&shown, &other].map(|shown| kind.init(shown, &actions(), Seed(0)).unwrap());
            for row in [0, 199, 200, 299] {
                assert_eq!(one.reward(row, &[1, 0, 4]), two.reward(row, &[1, 0, 4]), "{kind}");
            }
        }
    }

    #[test]
    fn propensities_are_needed_by_those_who_weigh_by_them() {
        let shown = Shown { propensities: None, ..drawn(20, |_, _, _| 0.5) };
        for kind in LoggedReward::ALL {
            let reward = kind.init(&shown, &actions(), Seed(0));
            let needs = matches!(kind, LoggedReward::Ips | LoggedReward::DoublyRobust);
            assert_eq!(reward.is_err(), needs, "{kind}");
            if let Err(error) = reward {
                let expected = format!(
                    "setting `estimate`: `{kind}` needs the propensity of each position, and this \
                     log has none; use direct, position-based or cascade-clicks"
                );
                assert_eq!(error.to_string(), expected);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        type Spoil = fn(&mut Shown);
        let spoils: [(Spoil, &str); 6] = [
            (|shown| shown.slates[4] = 5, "row 2 of the log shows action 5 at position 2"),
            (|shown| shown.outcomes[2] = f32::NAN, "logged outcomes: row 1, column 3 is NaN"),
            (
                |shown| shown.outcomes.truncate(shown.outcomes.len() - 1),
                "logged outcomes: expected shape [20, 3]",
            ),
            (|shown| shown.slate_size = 0, "at least one position"),
            (|shown| shown.contexts.row_mut(3)[1] = f32::INFINITY, "logged contexts: row 4"),
            (
                |shown| shown.propensities = Some(vec![0.0; 60]),
                "row 1 of the log has the propensity 0 at position 1",
            ),
        ];
        for (spoil, says) in spoils {
            let mut shown = drawn(20, |_, _, _| 0.5);
            spoil(&mut shown);
            for kind in LoggedReward::ALL {
                let error = kind.init(&shown, &actions(), Seed(0)).unwrap_err().to_string();
                assert!(error.contains(says), "{error}");
            }
        }
    }
}
