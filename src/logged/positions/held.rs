//! A log of positions → what it holds, what is missing, and what can be learned from it.

use serde::Serialize;

use super::estimators::Measured;
use super::value::LogMeans;
use super::{BadRows, PositionLog};

/// What a log of positions holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The rows that can be read, each one item at one position.
    pub rows: usize,
    /// The rows that cannot be read.
    pub bad: BadRows,
    /// The different items.
    pub items: usize,
    /// The rows whose outcome is above 0.
    pub above_zero: usize,
    /// Each position, in their order.
    pub positions: Vec<HeldAt>,
    /// The propensities, if there are any.
    pub propensities: Option<Known>,
    /// The columns that were not read.
    pub other_columns: Vec<String>,
    /// What is missing, a sentence each.
    pub missing: Vec<String>,
    /// What can be learned, a sentence each.
    pub learnable: Vec<String>,
}

/// What a log holds at a position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldAt {
    /// The position as the file names it.
    pub position: i64,
    /// Its rows.
    pub rows: usize,
    /// The rows whose outcome is above 0.
    pub above_zero: usize,
    /// The different items that were shown there.
    pub items: usize,
    /// The mean outcome.
    pub mean: Measured,
}

/// The range of the propensities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Known {
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Held {
    /// Looks at a log.
    #[must_use]
    pub fn of(log: &PositionLog) -> Self {
        let means = LogMeans::of(log);
        let at = |((position, mean), rows): ((i64, Measured), Vec<usize>)| {
            let mut items: Vec<u32> = rows.iter().map(|row| log.item[*row]).collect();
            items.sort_unstable();
            items.dedup();
            let above_zero = log.above_zero(&rows);
            HeldAt { position, rows: rows.len(), above_zero, items: items.len(), mean }
        };
        let propensities = log.propensities.as_ref().map(|found| Known {
            least: found.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: found.iter().copied().fold(0.0, f64::max),
        });
        let mut held = Self {
            rows: log.len(),
            bad: log.bad.clone(),
            items: log.items.len(),
            above_zero: means.above_zero,
            positions: means.positions.into_iter().zip(log.rows_at()).map(at).collect(),
            propensities,
            other_columns: log.other_columns.clone(),
            missing: Vec::new(),
            learnable: Vec::new(),
        };
        held.conclude();
        held
    }

    /// True if the policy that logged shows one item with certainty.
    fn is_certain(&self) -> bool {
        self.propensities.is_some_and(|known| known.least >= 1.0)
    }

    fn conclude(&mut self) {
        let drawn = self.propensities.is_some() && !self.is_certain();
        let missing = [
            (
                self.propensities.is_none(),
                "propensities: no column tells how likely an item was at its position".to_owned(),
            ),
            (
                self.is_certain(),
                "chance: all propensities are 1, so no other policy shows in this log".to_owned(),
            ),
            (
                self.above_zero == 0,
                "outcomes above 0: nobody knows what the items are worth".to_owned(),
            ),
            (self.bad.skipped > 0, format!("{} rows that cannot be read", self.bad.skipped)),
            (true, "slates: rows are positions, and none says what was shown beside it".to_owned()),
            (
                true,
                match self.other_columns.len() {
                    0 => "contexts: there is no other column".to_owned(),
                    others => format!("contexts: {others} other columns are not read"),
                },
            ),
        ];
        let learnable = [
            (
                drawn,
                "the value of a stationary policy at each position, by IPS, SNIPS and DR \
                 (`slate log value`)"
                    .to_owned(),
            ),
            (
                !drawn,
                "the value of a stationary policy by the direct method only, as right as its model \
                 (`slate log value`)"
                    .to_owned(),
            ),
        ];
        let said = |rules: &[(bool, String)]| {
            rules.iter().filter(|(holds, _)| *holds).map(|(_, text)| text.clone()).collect()
        };
        self.missing = said(&missing);
        self.learnable = if self.above_zero > 0 { said(&learnable) } else { Vec::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::log;
    use super::*;

    #[test]
    fn what_is_missing_decides_what_can_be_learned() {
        let says = |lines: &[String], part: &str| lines.iter().any(|line| line.contains(part));
        let mut log = log(3, &[(0, 0, 1.0, 0.5), (2, 0, 0.0, 0.1), (0, 1, 1.0, 1.0)]);
        let held = Held::of(&log);
        assert_eq!((held.rows, held.items, held.above_zero), (3, 3, 2));
        assert_eq!((held.positions[0].items, held.positions[0].rows), (2, 2));
        assert_eq!(held.propensities, Some(Known { least: 0.1, greatest: 1.0 }));
        assert!(says(&held.learnable, "IPS, SNIPS and DR") && !says(&held.missing, "propensities"));
        assert!(says(&held.missing, "contexts: there is no other column"));

        log.propensities = Some(vec![1.0; 3]);
        let held = Held::of(&log);
        assert!(says(&held.missing, "all propensities are 1"));
        assert!(says(&held.learnable, "direct method only"));

        log.propensities = None;
        log.other_columns = vec!["age".into()];
        let held = Held::of(&log);
        assert!(says(&held.missing, "propensities:") && says(&held.missing, "1 other columns"));
        assert!(says(&held.learnable, "by the direct method only"));

        log.outcomes = vec![0.0; 3];
        let held = Held::of(&log);
        assert!(held.learnable.is_empty() && says(&held.missing, "outcomes above 0"));
    }
}
