//! Logs of positions → stationary policies: the probability π(item | position) of each item, the same
//! for everybody.

use std::collections::HashMap;

use serde::Serialize;

use super::PositionLog;
use crate::error::{Error, Result};

/// A policy that draws the item of each position by itself, the same for everybody, over the items of
/// one log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stationary {
    /// What it is, in words.
    pub name: String,
    /// The sum of the probabilities at each position before they were divided by it.
    pub sums: Vec<f64>,
    /// The probability of items that the log does not have, at each position.
    pub elsewhere: Vec<f64>,
    /// π, `[positions, items]`.
    #[serde(skip)]
    probabilities: Vec<f64>,
    #[serde(skip)]
    num_items: usize,
}

impl Stationary {
    /// Every item of `log` with the same probability.
    #[must_use]
    pub fn uniform(log: &PositionLog) -> Self {
        let (num_items, num_positions) = (log.items.len(), log.positions.len());
        let share = 1.0 / num_items.max(1) as f64;
        Self {
            name: format!("uniform over the {num_items} items of the log"),
            sums: vec![1.0; num_positions],
            elsewhere: vec![0.0; num_positions],
            probabilities: vec![share; num_items * num_positions],
            num_items,
        }
    }

    /// The mean logged propensity of each item at each position of the log `of`, divided by their sum
    /// at the position. It is no policy that was ever served: propensities are logged for items that
    /// were shown, so an item's mean is that of the requests that favoured it.
    ///
    /// # Errors
    /// [`Error::File`] if `of` has no propensities, or no row at a position of `log`.
    pub fn mean_propensity(log: &PositionLog, of: &PositionLog) -> Result<Self> {
        let Some(propensities) = &of.propensities else {
            let problem = "has no propensities; name their column with --propensity-column";
            return Err(Error::file(&of.path, problem));
        };
        let mut sums = vec![(0.0, 0.0); of.items.len() * of.positions.len()];
        for (row, propensity) in propensities.iter().enumerate() {
            let at = of.position[row] as usize * of.items.len() + of.item[row] as usize;
            sums[at].0 += propensity;
            sums[at].1 += 1.0;
        }
        let means: Vec<f64> =
            sums.into_iter().map(|(sum, rows)| sum / f64::max(rows, 1.0)).collect();
        let number: HashMap<&str, usize> =
            log.items.iter().enumerate().map(|(number, id)| (id.as_str(), number)).collect();
        let num_items = log.items.len();
        let mut policy = Self {
            name: format!("mean logged propensities of {}", of.path.display()),
            sums: Vec::new(),
            elsewhere: Vec::new(),
            probabilities: vec![0.0; num_items * log.positions.len()],
            num_items,
        };
        for (at, position) in log.positions.iter().enumerate() {
            let Ok(there) = of.positions.binary_search(position) else {
                let problem =
                    format!("has no row at position {position}, which {} has", log.path.display());
                return Err(Error::file(&of.path, problem));
            };
            let means = &means[there * of.items.len()..(there + 1) * of.items.len()];
            let sum: f64 = means.iter().sum();
            let mut elsewhere = 0.0;
            for (id, mean) in of.items.iter().zip(means) {
                match number.get(id.as_str()) {
                    Some(item) => policy.probabilities[at * num_items + item] = mean / sum,
                    None => elsewhere += mean / sum,
                }
            }
            policy.sums.push(sum);
            policy.elsewhere.push(elsewhere);
        }
        Ok(policy)
    }

    /// π of all items at a position, by their numbers in the log.
    #[must_use]
    pub fn at(&self, position: usize) -> &[f64] {
        &self.probabilities[position * self.num_items..(position + 1) * self.num_items]
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::log;
    use super::*;

    #[test]
    fn policies_by_hand() {
        let target = log(3, &[(0, 0, 0.0, 0.5), (1, 1, 0.0, 0.5), (2, 0, 0.0, 0.5)]);
        let uniform = Stationary::uniform(&target);
        assert_eq!(uniform.at(0), [1.0 / 3.0; 3]);
        assert_eq!(uniform.at(1), [1.0 / 3.0; 3]);

        let mut of = log(
            2,
            &[
                (0, 0, 0.0, 0.6),
                (0, 0, 0.0, 0.2),
                (1, 0, 0.0, 0.4),
                (0, 1, 0.0, 0.3),
                (1, 1, 0.0, 0.1),
            ],
        );
        // Means of 0.4 and 0.4 at the first position; the log does not know the second item.
        of.items = vec!["2".into(), "new".into()];
        let policy = Stationary::mean_propensity(&target, &of).unwrap();
        assert_eq!(policy.at(0), [0.0, 0.0, 0.5]);
        assert!((policy.sums[0] - 0.8).abs() < 1e-12 && (policy.elsewhere[0] - 0.5).abs() < 1e-12);
        assert!((policy.at(1)[2] - 0.75).abs() < 1e-12);
        assert!((policy.elsewhere[1] - 0.25).abs() < 1e-12);

        let error = Stationary::mean_propensity(&log(1, &[(0, 3, 0.0, 1.0)]), &of);
        assert!(error.unwrap_err().to_string().contains("no row at position 3"));
        of.propensities = None;
        let error = Stationary::mean_propensity(&target, &of).unwrap_err().to_string();
        assert!(error.contains("log.csv: has no propensities"), "{error}");
    }
}
