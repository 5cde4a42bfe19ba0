//! Numbers in, their mean, its standard error and its interval out.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// A mean and its standard error. Prints as `0.7175 ± 0.0031`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean; 0 without values.
    pub mean: f64,
    /// The standard error of the mean; 0 for fewer than two values.
    pub standard_error: f64,
}

/// A mean and its 95 % interval. Prints as `+0.0035 [-0.0012, +0.0082]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The lower end; −∞, which JSON says as null, where there are too few values for one.
    #[serde(deserialize_with = "lowest")]
    pub low: f64,
    /// The upper end; ∞ there.
    #[serde(deserialize_with = "highest")]
    pub high: f64,
}

fn lowest<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NEG_INFINITY))
}

fn highest<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
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

    /// The 95 % interval around the mean, of many independent values.
    #[must_use]
    pub fn interval(self) -> Interval {
        self.within(1.96)
    }

    /// The 95 % interval around the mean of `count` independent values, by Student's t; none of one value, nor of
    /// a few that are all the same, which say nothing of their spread.
    #[must_use]
    pub fn interval_of(self, count: usize) -> Interval {
        let is_spread_known = self.standard_error > 0.0 || self.mean == 0.0 || count >= MANY;
        match count {
            _ if count < 2 || !is_spread_known => {
                Interval { mean: self.mean, low: f64::NEG_INFINITY, high: f64::INFINITY }
            }
            _ => self.within(student_t(count - 1)),
        }
    }

    fn within(self, standard_errors: f64) -> Interval {
        let half = standard_errors * self.standard_error;
        Interval { mean: self.mean, low: self.mean - half, high: self.mean + half }
    }
}

/// So many values that are all the same have no spread.
const MANY: usize = 30;

/// The 97.5 % quantile of Student's t with so many degrees of `freedom`, 1 or more; good to 0.01.
pub(crate) fn student_t(freedom: usize) -> f64 {
    const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    T.get(freedom - 1).copied().unwrap_or(1.96 + 2.6 / freedom as f64)
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
        // With three degrees of freedom 3.182 standard errors.
        assert_eq!(estimate.interval_of(4).to_string(), "+3.0000 [-0.4370, +6.4370]");
        assert!((student_t(60) - 2.0003).abs() < 0.01);
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

    #[test]
    fn a_single_value_has_no_interval_and_json_says_so() {
        let of_one = Estimate::of([0.5].into_iter()).interval_of(1);
        assert_eq!(of_one.to_string(), "+0.5000 [-inf, +inf]");
        // Nor have two, of the same value, unless it is that nothing differs.
        let of_two = |value| Estimate::of([value; 2].into_iter()).interval_of(2).to_string();
        assert_eq!(of_two(1.0), "+1.0000 [-inf, +inf]");
        assert_eq!(of_two(0.0), "+0.0000 [+0.0000, +0.0000]");
        let json = serde_json::to_string(&of_one).unwrap();
        assert_eq!(json, r#"{"mean":0.5,"low":null,"high":null}"#);
        assert_eq!(serde_json::from_str::<Interval>(&json).unwrap(), of_one);
    }
}
