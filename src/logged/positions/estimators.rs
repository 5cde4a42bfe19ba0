//! Weights, outcomes and what a model says of them → the mean outcome under a policy.
//!
//! The estimators, over n rows with item a, position k, outcome y and propensity p. The weight of a row
//! is `w = π(a | k) / p`, and q is the direct model of the other folds ([`DirectOptions`](super::DirectOptions)).
//!
//! | | | |
//! |---|---|---|
//! | IPS | `1/n Σ w y` | unbiased if the propensities are right (Horvitz, Thompson, JASA 1952) |
//! | SNIPS | `Σ w y / Σ w` | moves with a constant that is added to all outcomes (Swaminathan, Joachims, NIPS 2015) |
//! | direct | `1/n Σ v`, `v = Σ_b π(b \| k) q(b, k)` | needs no propensities, and is as wrong as q |
//! | DR | `1/n Σ [v + w (y − q(a, k))]` | unbiased if the propensities or q are right (Dudík, Langford, Li, ICML 2011) |

use serde::Serialize;

use crate::estimate::Estimate;

/// A mean with its standard error and its 95 % interval (normal approximation).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl From<Estimate> for Measured {
    fn from(estimate: Estimate) -> Self {
        let interval = estimate.interval();
        let Estimate { mean, standard_error } = estimate;
        Self { mean, standard_error, low: interval.low, high: interval.high }
    }
}

impl Measured {
    /// The mean of independent `values`.
    pub(super) fn of(values: &[f64]) -> Self {
        Estimate::of(values.iter().copied()).into()
    }
}

/// `1/n Σ w y`.
pub(super) fn ips(weights: &[f64], outcomes: &[f64]) -> Measured {
    let terms = weights.iter().zip(outcomes).map(|(weight, outcome)| weight * outcome);
    Measured::of(&terms.collect::<Vec<_>>())
}

/// `Σ w y / Σ w`, with the standard error of a ratio of means (delta method).
pub(super) fn snips(weights: &[f64], outcomes: &[f64]) -> Option<Measured> {
    let (rows, total) = (weights.len() as f64, weights.iter().sum::<f64>());
    let pairs = || weights.iter().zip(outcomes);
    let mean = pairs().map(|(weight, outcome)| weight * outcome).sum::<f64>() / total;
    let squares: f64 = pairs().map(|(weight, outcome)| (weight * (outcome - mean)).powi(2)).sum();
    let standard_error = (squares * rows / (rows - 1.0).max(1.0)).sqrt() / total;
    (total > 0.0).then(|| Estimate { mean, standard_error }.into())
}

/// `1/n Σ [v + w (y − q)]`.
pub(super) fn doubly_robust(
    weights: &[f64],
    outcomes: &[f64],
    modelled: &[f64],
    expected: &[f64],
) -> Measured {
    let corrections = weights.iter().zip(outcomes).zip(modelled);
    let corrections = corrections.map(|((weight, outcome), q)| weight * (outcome - q));
    let terms =
        expected.iter().zip(corrections).map(|(expected, correction)| expected + correction);
    Measured::of(&terms.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    #[test]
    fn doubly_robust_by_hand() {
        // q is ½ for both items, v is ½.
        let (weights, outcomes) = ([0.625, 0.625, 2.5, 1.0], [1.0, 0.0, 1.0, 0.0]);
        let found = doubly_robust(&weights, &outcomes, &[0.5; 4], &[0.5; 4]);
        close(found.mean, 0.5 + 0.5 * (0.625 - 0.625 + 2.5 - 1.0) / 4.0);
        // With a q that is right there is nothing to correct.
        let found = doubly_robust(&weights, &outcomes, &outcomes, &[0.3; 4]);
        assert_eq!((found.mean, found.standard_error), (0.3, 0.0));
    }

    /// The expectation of an estimator over the item that the logging policy draws.
    #[test]
    fn doubly_robust_is_right_with_either_part_right() {
        let (truth, wrong) = ([0.1, 0.5, 0.9], [0.4, 0.4, 0.2]);
        let (logging, wrong_logging, policy) = ([0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.2, 0.2, 0.6]);
        let value: f64 = policy.iter().zip(truth).map(|(p, y)| p * y).sum();
        let expectation = |q: [f64; 3], propensities: [f64; 3]| -> f64 {
            let v: f64 = policy.iter().zip(q).map(|(p, q)| p * q).sum();
            (0..3)
                .map(|a| {
                    let weight = policy[a] / propensities[a];
                    logging[a] * doubly_robust(&[weight], &[truth[a]], &[q[a]], &[v]).mean
                })
                .sum()
        };
        close(expectation(truth, wrong_logging), value);
        close(expectation(wrong, logging), value);
        assert!((expectation(wrong, wrong_logging) - value).abs() > 0.05);
    }
}
