//! Numbers in, their mean, its standard error and its interval out.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A mean and its standard error. Prints as `0.7175 ± 0.0031`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean; 0 without values.
    pub mean: f64,
    /// The standard error of the mean; 0 for fewer than two values.
    pub standard_error: f64,
}

/// A mean and its 95 % interval (normal approximation). Prints as `+0.0035 [-0.0012, +0.0082]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// The mean of independent `values`.
    pub fn of(values: impl ExactSizeIterator<Item = f64> + Clone) -> Self {
        let count = values.len() as f64;
        let mean = values.clone().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        let standard_error = (squares / (count - 1.0).max(1.0) / count.max(1.0)).sqrt();
        Self { mean, standard_error }
    }

    /// The mean of `values` `[n]`, of which those of one group of `groups` `[n]` may depend on each other.
    pub fn of_groups(values: impl ExactSizeIterator<Item = f64> + Clone, groups: &[u32]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.clone().sum::<f64>() / count;
        Self { mean, standard_error: spread(values.map(|value| value - mean), groups) / count }
    }

    /// The 95 % interval around the mean.
    #[must_use]
    pub fn interval(self) -> Interval {
        let half = 1.96 * self.standard_error;
        Interval { mean: self.mean, low: self.mean - half, high: self.mean + half }
    }
}

/// The standard deviation of the sum of `values` `[n]`, whose mean is 0, where those of one group of
/// `groups` `[n]` may depend on each other.
pub(crate) fn spread(values: impl Iterator<Item = f64>, groups: &[u32]) -> f64 {
    let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
    for (value, group) in values.zip(groups) {
        *sums.entry(*group).or_default() += value;
    }
    let count = sums.len() as f64;
    let squares: f64 = sums.values().map(|sum| sum * sum).sum();
    (squares * count / (count - 1.0).max(1.0)).sqrt()
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ± {:.4}", self.mean, self.standard_error)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.4} [{:+.4}, {:+.4}]", self.mean, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_by_hand() {
        let values = [1.0, 2.0, 3.0, 6.0];
        let estimate = Estimate::of(values.iter().copied());
        // The squares are 4, 1, 0 and 9: (14 / 3 / 4)^½.
        assert_eq!((estimate.mean, estimate.standard_error), (3.0, (14.0_f64 / 3.0 / 4.0).sqrt()));
        assert_eq!(estimate.to_string(), "3.0000 ± 1.0801");
        assert_eq!(estimate.interval().to_string(), "+3.0000 [+0.8830, +5.1170]");
        assert_eq!(Estimate::of([].into_iter()), Estimate::default());
        // Groups of one are values by themselves; copies of a value say no more than one of them.
        let of_groups = |groups: &[u32]| Estimate::of_groups(values.iter().copied(), groups);
        assert!((of_groups(&[4, 2, 7, 0]).standard_error - estimate.standard_error).abs() < 1e-12);
        let five_times = values.map(|value| [value; 5]).concat();
        let groups: Vec<u32> = (0..20).map(|at| at / 5).collect();
        let found = Estimate::of_groups(five_times.into_iter(), &groups);
        assert!((found.standard_error - estimate.standard_error).abs() < 1e-12);
        let one = Estimate { mean: 2.0, standard_error: 0.0 };
        assert_eq!(Estimate::of([2.0].into_iter()), one);
    }
}
