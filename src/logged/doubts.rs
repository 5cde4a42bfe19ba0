//! Counts of persons and rows, and the mean weight → why intervals or bounds are not given, if there is a
//! reason.

use crate::estimate::Estimate;

/// Below so many rows' worth of information there is no interval.
pub(super) const LEAST_ROWS: f64 = 100.0;

/// Below so many persons, or persons who earned anything, there is no interval.
const LEAST_PEOPLE: usize = 30;

/// A mean weight so many standard errors from 1 says that the weights are not those of this log.
const DOUBTED: f64 = 4.0;

/// Why neither intervals nor bounds are given: there are too few `people`, the weights leave too few
/// `effective` rows, or the mean weight is far from 1.
pub(super) fn doubt(people: usize, effective: f64, mean_weight: Estimate) -> Option<String> {
    if people == 0 {
        return Some("no row of a person that the policy has not learned from".into());
    }
    if people < LEAST_PEOPLE {
        return Some(format!(
            "these are rows of {people} persons, fewer than {LEAST_PEOPLE}: how much persons differ cannot be told"
        ));
    }
    if effective.is_nan() || effective < LEAST_ROWS {
        return Some(format!(
            "the weights leave {effective:.0} rows' worth of information, fewer than {LEAST_ROWS}: \
             this policy is too far from the one that logged"
        ));
    }
    let Estimate { mean, standard_error } = mean_weight;
    let sure = (mean - 1.0).abs() <= DOUBTED * standard_error.max(1e-6);
    (!sure).then(|| {
        format!(
            "the mean weight is {mean_weight}, which is {DOUBTED} standard errors from 1: these \
             rows were not drawn as they say"
        )
    })
}

/// Why intervals would often miss the truth: a mean of many zeros and a few other numbers is far from
/// normal, and resamples of the persons do not know who else might have earned something. `earned` is the
/// number of persons of equal weight who earned something else than is `usual`.
pub(super) fn doubt_of_intervals(earned: f64, usual: f64) -> Option<String> {
    // Sums of equal weights are off by rounding.
    (earned < LEAST_PEOPLE as f64 - 1e-6).then(|| {
        format!(
            "the log has {earned:.0} persons' worth of rewards other than {usual}, fewer than {LEAST_PEOPLE}: an \
             interval from so few would often miss the truth"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, Prior, Weighed};
    use crate::seed::Seed;

    #[test]
    fn weights_that_do_not_average_to_one_are_doubted() {
        let rows = |weight: f64| Weighed {
            log_weights: (0..1000).map(|at| (weight + 0.1 * f64::from(at % 3 - 1)).ln()).collect(),
            distances: vec![0.1; 1000],
            rewards: vec![0.5; 1000],
            people: (0..1000).collect(),
            bounds: Bounds::default(),
        };
        let doubt = |weight| rows(weight).value(Prior::default(), Seed(0)).unwrap().doubt;
        assert!(doubt(1.2).unwrap().contains("4 standard errors from 1"));
        assert_eq!(doubt(1.0), None);
    }

    #[test]
    fn few_rows_worth_of_information_are_doubted() {
        let rows = Weighed {
            log_weights: (0..1000).map(|at| if at < 60 { 2.8 } else { -9.0 }).collect(),
            distances: vec![2.8; 1000],
            rewards: vec![0.5; 1000],
            people: (0..1000).collect(),
            bounds: Bounds::default(),
        };
        let value = rows.value(Prior::default(), Seed(0)).unwrap();
        assert!(value.doubt.unwrap().contains("60 rows' worth"));
    }
}
