//! Weighted rewards → the value of the policy that the weights are for, with intervals, and what there
//! is to doubt.
//!
//! The estimators, over n rows with weights w and rewards r:
//!
//! | | |
//! |---|---|
//! | plain | `1/n Σ w r`, unbiased |
//! | self-normalised | `Σ w r / Σ w`, which the mean reward shifts with |
//! | clipped | `1/n Σ min(w, √n) r`, with rewards counted from the least that they can be: at most the plain one in expectation |
//! | smoothed | `1/(nλ) Σ log(1 + λ w r)` for rewards of at least 0 (Sakhi, Aouali, Alquier, Chopin, "Logarithmic Smoothing", NeurIPS 2024) |
//!
//! Rows of one person belong together: standard errors are those of sums over persons.

use serde::Serialize;

use super::Bounds;
use super::doubts::{doubt, doubt_of_intervals};
use super::martingales::{Prior, RISK, bernstein_upper, smoothed, smoothed_lower};
use crate::error::Result;
use crate::estimate::{Estimate, Interval, spread};
use crate::seed::{Purpose, Seed};

/// Resamples of the bootstrap.
const RESAMPLES: u64 = 1000;

/// Rows with their weights.
#[derive(Clone, Debug, Default)]
pub struct Weighed {
    /// log w, `[n]`.
    pub log_weights: Vec<f64>,
    /// `‖h̃ − h₀‖² / σ²`, `[n]`.
    pub distances: Vec<f64>,
    /// r, `[n]`.
    pub rewards: Vec<f64>,
    /// The person of each row, numbered from 0, `[n]`.
    pub people: Vec<u32>,
    /// The least and the most that a reward can be.
    pub bounds: Bounds,
}

/// The value of a policy, estimated from rows that another one logged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// n.
    pub rows: usize,
    /// The persons whose rows these are.
    pub people: usize,
    /// `1/n Σ w r`, by the normal approximation.
    pub plain: Option<Interval>,
    /// The same mean, with the interval of the studentised bootstrap over persons.
    pub bootstrap: Option<Interval>,
    /// `Σ w r / Σ w`.
    pub self_normalised: Option<Interval>,
    /// `1/n Σ min(w, √n) r`.
    pub clipped: Option<Interval>,
    /// The smoothed estimate; no interval, but a bound.
    pub smoothed: f64,
    /// The value at the requests of this log is above this but for one in twenty logs of them.
    pub smoothed_lower: Option<f64>,
    /// The value of the policy that logged: the mean reward. Its interval is infinite where too few earned
    /// anything.
    pub logging: Interval,
    /// `1/n Σ (w − 1) r`, with the interval of the studentised bootstrap.
    pub gain: Option<Interval>,
    /// The mean weight, which is 1 in expectation.
    pub mean_weight: Estimate,
    /// Kish's effective sample size, `(Σ w)² / Σ w²`. It looks healthy when the large weights were not
    /// drawn.
    pub effective_rows: f64,
    /// What it is in expectation: `n² / Σ exp(‖δ‖²/σ²)`.
    pub expected_effective_rows: f64,
    /// Why neither intervals nor bounds are given, if they are not.
    pub doubt: Option<String>,
    /// Why no interval is given although the bounds hold.
    pub doubt_of_intervals: Option<String>,
}

impl Weighed {
    /// w, `[n]`.
    fn weights(&self) -> Vec<f64> {
        self.log_weights.iter().map(|log| log.exp()).collect()
    }

    /// The sums of `values` over the rows of each person.
    fn per_person(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let people = self.people.iter().max().map_or(0, |last| *last as usize + 1);
        let mut sums = vec![0.0; people];
        self.people.iter().zip(values).for_each(|(person, value)| sums[*person as usize] += value);
        sums
    }

    /// Persons of equal weight who would say as much of what rows earned other than `usual`:
    /// `(Σ w |r − usual|)² / Σ (w |r − usual|)²`, with the sums of each person.
    fn earners(&self, weights: &[f64], usual: f64) -> f64 {
        let off = weights.iter().zip(&self.rewards).map(|(w, r)| w * (r - usual).abs());
        let off = self.per_person(off);
        let squares: f64 = off.iter().map(|off| off * off).sum();
        off.iter().sum::<f64>().powi(2) / squares.max(f64::MIN_POSITIVE)
    }

    /// The median reward: what most slates earned, where clicks are rare.
    fn usual(&self) -> f64 {
        let mut rewards = self.rewards.clone();
        let middle = rewards.len() / 2;
        if rewards.is_empty() {
            0.0
        } else {
            *rewards.select_nth_unstable_by(middle, f64::total_cmp).1
        }
    }

    /// The mean of `values` `[n]`; its standard error is that of independent persons.
    fn mean(&self, values: &[f64]) -> Estimate {
        Estimate::of_groups(values.iter().copied(), &self.people)
    }

    /// `1/λ log(1 + λ w r)` of each row, in the unit of the rewards.
    #[must_use]
    pub fn smoothed_rewards(&self, lambda: f64) -> Vec<f32> {
        let smoothed = |(weight, reward): (f64, &f64)| {
            let value = (lambda * weight * self.bounds.mapped(*reward)).ln_1p() / lambda;
            #[allow(clippy::cast_possible_truncation, reason = "rewards of evaluations are f32")]
            let value = self.bounds.unmapped(value) as f32;
            value
        };
        self.weights().into_iter().zip(&self.rewards).map(smoothed).collect()
    }

    /// What these rows say beforehand of the bounds of others like them.
    #[must_use]
    pub fn prior(&self) -> Prior {
        let rows = self.rewards.len() as f64;
        let mapped = || self.rewards.iter().map(|reward| self.bounds.mapped(*reward));
        let weighted = self.weights().into_iter().zip(mapped());
        let mean_square = weighted.map(|(weight, r)| (weight * r).powi(2)).sum::<f64>() / rows;
        let mean = mapped().sum::<f64>() / rows;
        let variance = mapped().map(|reward| (reward - mean).powi(2)).sum::<f64>() / rows;
        let unknown = Prior::default();
        let known = |found: f64, unknown: f64| if found > 0.0 { found } else { unknown };
        Prior {
            mean_square: known(mean_square, unknown.mean_square),
            variance: known(variance, unknown.variance),
        }
    }

    /// Estimates the value of the policy with these weights; `prior` comes from other rows.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for a reward that is not within the bounds.
    pub fn value(&self, prior: Prior, seed: Seed) -> Result<Value> {
        let bounds = self.bounds;
        bounds.check(&self.rewards)?;
        let (weights, rows) = (self.weights(), self.rewards.len() as f64);
        let times = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
            weights.iter().zip(&self.rewards).map(|(weight, reward)| of(*weight) * reward).collect()
        };
        let weighted = times(&|weight| weight);
        let total: f64 = weights.iter().sum();
        let normalised = weighted.iter().sum::<f64>() / total.max(f64::MIN_POSITIVE);
        let off = weights.iter().zip(&self.rewards).map(|(w, r)| w * (r - normalised));
        let normalised = Estimate {
            mean: normalised,
            standard_error: spread(off, &self.people) / total.max(f64::MIN_POSITIVE),
        };
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        let expected: f64 = self.distances.iter().map(|distance| distance.exp()).sum();
        let mean_weight = self.mean(&weights);
        let effective_rows = total * total / squares.max(f64::MIN_POSITIVE);
        let expected_effective_rows = rows * rows / expected.max(f64::MIN_POSITIVE);
        let people = self.per_person(std::iter::empty()).len();
        let doubt = doubt(people, effective_rows.min(expected_effective_rows), mean_weight);
        let usual = self.usual();
        let of_log = vec![1.0; weights.len()];
        let doubt_of_logging = doubt_of_intervals(self.earners(&of_log, usual), usual);
        let doubt_of_intervals = doubt_of_intervals(self.earners(&weights, usual), usual);
        let certain = doubt.is_none() && doubt_of_intervals.is_none();
        let sure = |interval: Interval| certain.then_some(interval);
        let mut logging = self.mean(&self.rewards).interval();
        if doubt_of_logging.is_some() {
            (logging.low, logging.high) = (f64::NEG_INFINITY, f64::INFINITY);
        }
        let lambda = prior.lambda(weights.len());
        let mapped = self.mapped(&weights);
        let most = rows.sqrt();
        let clipped: Vec<f64> = weights.iter().map(|weight| weight.min(most)).collect();
        let clipped = self.mean(&self.mapped(&clipped)).interval();
        let clipped = Interval {
            mean: bounds.unmapped(clipped.mean),
            low: bounds.unmapped(clipped.low),
            high: bounds.unmapped(clipped.high),
        };
        let smoothed = smoothed(&mapped, lambda);
        let lower = smoothed_lower(smoothed, lambda, mapped.len(), RISK);
        Ok(Value {
            rows: weights.len(),
            people,
            plain: sure(self.mean(&weighted).interval()),
            bootstrap: self.bootstrap(&weighted, seed).and_then(sure),
            self_normalised: sure(normalised.interval()),
            clipped: sure(clipped),
            smoothed: bounds.unmapped(smoothed),
            smoothed_lower: doubt.is_none().then_some(bounds.unmapped(lower)),
            logging,
            gain: self.bootstrap(&times(&|weight| weight - 1.0), seed).and_then(sure),
            mean_weight,
            effective_rows,
            expected_effective_rows,
            doubt,
            doubt_of_intervals,
        })
    }

    /// The mean of `values`, with its interval: how many standard errors of their own the means of resampled
    /// persons are off says how many this one may be (Efron, "Nonparametric Standard Errors and
    /// Confidence Intervals", 1981). None where so few persons differ from the others that many a resample
    /// has none of them.
    fn bootstrap(&self, values: &[f64], seed: Seed) -> Option<Interval> {
        let sums = self.per_person(values.iter().copied());
        let counts = self.per_person(values.iter().map(|_| 1.0));
        let persons: Vec<(f64, f64)> = sums.into_iter().zip(counts).collect();
        let people = u32::try_from(persons.len()).ok()?;
        let Estimate { mean, standard_error } = mean_of(persons.iter());
        if standard_error == 0.0 {
            return Some(Interval { mean, low: mean, high: mean });
        }
        let off = |at: u64| {
            let mut stream = seed.stream(Purpose::Bootstrap, 0, at);
            let drawn: Vec<u32> = (0..people).map(|_| stream.below(people)).collect();
            let found = mean_of(drawn.iter().map(|person| &persons[*person as usize]));
            // Infinite where all resampled persons earned the same.
            (found.mean - mean) / found.standard_error
        };
        let mut offs: Vec<f64> = (0..RESAMPLES).map(off).collect();
        offs.sort_by(f64::total_cmp);
        let end = |at: usize| mean - standard_error * offs[at];
        let interval = Interval { mean, low: end(974), high: end(24) };
        (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
    }

    /// w r of each row, on the scale of the bounds.
    fn mapped(&self, weights: &[f64]) -> Vec<f64> {
        let rows = weights.iter().zip(&self.rewards);
        rows.map(|(weight, reward)| weight * self.bounds.mapped(*reward)).collect()
    }

    /// A bound below the gain over the policy that logged, right but for a share [`RISK`] of all logs:
    /// the smoothed lower bound of the one value minus the empirical Bernstein bound above the other, at
    /// half of the risk each. `prior` comes from other rows.
    ///
    /// Both bounds are of martingales: rows of one person may depend on each other, as long as the noise
    /// of each is its own. The values are those at the requests of the log.
    ///
    /// # Errors
    /// [`crate::Error::Setting`] for a reward that is not within the bounds, or bounds without an end.
    pub fn gain_bound(&self, prior: Prior) -> Result<f64> {
        let (bounds, rows) = (self.bounds, self.rewards.len());
        bounds.check(&self.rewards)?;
        bounds.closed()?;
        let (weighted, lambda) = (self.mapped(&self.weights()), prior.lambda(rows));
        let lower = smoothed_lower(smoothed(&weighted, lambda), lambda, rows, RISK / 2.0);
        let logged: Vec<f64> = self.rewards.iter().map(|reward| bounds.mapped(*reward)).collect();
        let upper = bernstein_upper(&logged, prior.variance, RISK / 2.0);
        Ok((lower - upper) * bounds.range())
    }
}

/// The mean over rows, from the sum and the number of rows of each person.
fn mean_of<'a>(persons: impl Iterator<Item = &'a (f64, f64)>) -> Estimate {
    let (mut sum, mut rows, mut squares, mut products, mut row_squares) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (value, count) in persons {
        (sum, rows) = (sum + value, rows + count);
        squares += value * value;
        products += value * count;
        row_squares += count * count;
    }
    let mean = sum / f64::max(rows, 1.0);
    let spread: f64 = squares - 2.0 * mean * products + mean * mean * row_squares;
    Estimate { mean, standard_error: spread.max(0.0).sqrt() / f64::max(rows, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_by_hand() {
        // Two persons with two rows each.
        let rows = Weighed {
            log_weights: [0.5_f64, 1.5, 1.0, 1.0].map(f64::ln).to_vec(),
            distances: vec![0.0; 4],
            rewards: vec![1.0, 1.0, 0.0, 1.0],
            people: vec![0, 0, 1, 1],
            bounds: Bounds::default(),
        };
        let mean = rows.mean(&[0.5, 1.5, 0.0, 1.0]);
        assert_eq!(mean.mean, 0.75);
        // Sums of deviations: 0.5 and −0.5; (0.5 · 2 / 1)^½ / 4.
        assert!((mean.standard_error - 0.25).abs() < 1e-12);
        let value = rows.value(Prior::default(), Seed(0)).unwrap();
        assert!((value.effective_rows - 16.0 / 4.5).abs() < 1e-9);
        assert!(value.doubt.unwrap().contains("2 persons, fewer than 30"));
        assert!(value.plain.is_none());
        let Prior { mean_square, variance } = rows.prior();
        // w r is ½, 1½, 0, 1; r is 1, 1, 0, 1.
        assert!((mean_square - 3.5 / 4.0).abs() < 1e-12 && (variance - 0.1875).abs() < 1e-12);
    }

    #[test]
    fn a_clipped_mean_is_no_higher_for_rewards_below_zero() {
        // Some weights are twice √n, which is 200.
        let heavy = |at: u32| at.is_multiple_of(444);
        let each = |of_heavy: f64, of_others: f64| -> Vec<f64> {
            (0..40_000).map(|at| if heavy(at) { of_heavy } else { of_others }).collect()
        };
        let rows = Weighed {
            log_weights: each(395_f64.ln(), 0.1016_f64.ln()),
            distances: vec![0.0; 40_000],
            rewards: each(-0.2, -0.5),
            people: (0..40_000).collect(),
            bounds: Bounds { low: -1.0, high: Some(0.0) },
        };
        let value = rows.value(Prior::default(), Seed(0)).unwrap();
        let (plain, clipped) = (value.plain.unwrap().mean, value.clipped.unwrap().mean);
        assert!(clipped < plain - 0.1, "{clipped} {plain}");
    }

    #[test]
    fn few_clicks_leave_bounds_and_no_interval() {
        let clicked = |clicks: u32| {
            let rows = Weighed {
                log_weights: vec![0.0; 1000],
                distances: vec![0.0; 1000],
                rewards: (0..1000).map(|at| f64::from(u8::from(at < clicks))).collect(),
                people: (0..1000).collect(),
                bounds: Bounds::default(),
            };
            rows.value(Prior::default(), Seed(0)).unwrap()
        };
        for clicks in [0, 3, 29] {
            let value = clicked(clicks);
            let intervals = [value.plain, value.bootstrap, value.self_normalised, value.clipped];
            assert_eq!((intervals, value.gain), ([None; 4], None));
            assert!(value.logging.low.is_infinite() && value.logging.high.is_infinite());
            let expected =
                format!("{clicks} persons' worth of rewards other than 0, fewer than 30");
            assert!(value.doubt_of_intervals.unwrap().contains(&expected));
            // Bounds of martingales hold for any rewards, so that a gate may ask for one.
            assert_eq!((value.doubt, value.smoothed_lower.is_some()), (None, true));
        }
        assert!(clicked(30).plain.is_some() && clicked(30).gain.is_some());
        let many = clicked(50).bootstrap.unwrap();
        assert!(many.low > 0.03 && many.high < 0.08, "{many}");
    }

    #[test]
    fn clicks_that_weigh_little_beside_one_leave_no_interval() {
        let of = |weight: f64, low: f64| {
            let click = |at: u32| at < 40;
            let rows = Weighed {
                log_weights: (0..1000).map(|at| if at == 0 { weight.ln() } else { 0.0 }).collect(),
                distances: vec![0.0; 1000],
                rewards: (0..1000).map(|at| f64::from(u8::from(click(at)))).collect(),
                people: (0..1000).collect(),
                bounds: Bounds { low, high: Some(1.0) },
            };
            rows.value(Prior::default(), Seed(0)).unwrap()
        };
        assert!(of(1.0, 0.0).plain.is_some() && of(1.0, -1.0).plain.is_some());
        let one = of(9.0, -1.0);
        assert_eq!((one.plain, one.doubt), (None, None));
        // (39 + 9)² / (39 + 81)
        assert!(
            one.doubt_of_intervals.unwrap().contains("19 persons' worth of rewards other than 0")
        );
        // The log itself has forty.
        assert!(one.logging.low.is_finite());
    }

    #[test]
    fn clicks_of_one_person_are_those_of_one() {
        let rows = Weighed {
            log_weights: vec![0.0; 1000],
            distances: vec![0.0; 1000],
            rewards: (0..1000).map(|at| f64::from(u8::from(at < 200))).collect(),
            people: (0..1000).map(|at| at / 10).collect(),
            bounds: Bounds::default(),
        };
        let value = rows.value(Prior::default(), Seed(0)).unwrap();
        assert_eq!(value.doubt, None);
        assert!(
            value.doubt_of_intervals.unwrap().contains("20 persons' worth of rewards other than 0")
        );
    }
}
