//! The latent importance weight of a row: how much likelier another policy is to draw its query,
//! `w = N(z; h̃, σ²I) / N(z; h₀, σ²I)`. A slate is a function of z and of the request, so w is the
//! ratio of the policies' slates too, and it knows neither K nor P.
//!
//! Both densities have the σ of the row. Where σ is a multiple of ‖h‖, a slate does not depend on the
//! length of the query: the policy of h is that of `h̃ = h ‖h₀‖ / ‖h‖`, whose σ is the row's. Under a
//! fixed σ, h̃ is h.

use crate::matrix::{dot, norm};
use crate::policy::Sigma;

/// The query that a row was shown by.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    /// h₀, the query of the policy that logged, `[L]`.
    pub h: &'a [f32],
    /// `z = h₀ + σε`, `[L]`.
    pub z: &'a [f32],
    /// σ, positive.
    pub sigma: f32,
}

/// What a row says of another policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// log w.
    pub log_weight: f64,
    /// `‖h̃ − h₀‖² / σ²`: over draws of z, log w is normal with minus half of this as its mean and this
    /// as its variance, and `E[w²]` is its exponential.
    pub distance: f64,
}

impl Drawn<'_> {
    /// ‖h̃‖ / ‖h‖.
    fn stretch(self, rule: Sigma, h: &[f32]) -> f32 {
        match rule {
            Sigma::Relative(_) => norm(self.h) / norm(h).max(f32::MIN_POSITIVE),
            Sigma::InverseDim | Sigma::InverseNorm => 1.0,
        }
    }

    /// The ratio of the policy of `h` `[L]`, whose σ follows `rule`, to the one that logged.
    #[must_use]
    pub fn ratio(self, rule: Sigma, h: &[f32]) -> Ratio {
        let stretch = f64::from(self.stretch(rule, h));
        let (mut along, mut squared) = (0.0, 0.0);
        for ((h, logged), z) in h.iter().zip(self.h).zip(self.z) {
            let (logged, z) = (f64::from(*logged), f64::from(*z));
            let delta = stretch * f64::from(*h) - logged;
            along += delta * (z - logged);
            squared += delta * delta;
        }
        let variance = f64::from(self.sigma).powi(2);
        let distance = squared / variance;
        Ratio { log_weight: along / variance - distance / 2.0, distance }
    }

    /// Puts `∇_h log w` `[L]` into `out`: `(z − h̃)/σ²`, and through h̃ its part across h.
    pub fn score(self, rule: Sigma, h: &[f32], out: &mut [f32]) {
        let (stretch, variance) = (self.stretch(rule, h), self.sigma * self.sigma);
        for ((out, h), z) in out.iter_mut().zip(h).zip(self.z) {
            *out = (z - stretch * h) / variance;
        }
        if let Sigma::Relative(_) = rule {
            let along = dot(h, out) / dot(h, h).max(f32::MIN_POSITIVE);
            for (out, h) in out.iter_mut().zip(h) {
                *out = stretch * (*out - along * h);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Sigma; 2] = [Sigma::InverseDim, Sigma::Relative(0.5)];

    #[test]
    fn the_ratio_is_that_of_two_densities() {
        let (h, logged, z) = ([1.0, -0.5, 2.0], [0.8, -0.4, 2.5], [1.3, 0.1, 2.0]);
        let drawn = Drawn { h: &logged, z: &z, sigma: 0.7 };
        let density = |mean: [f64; 3]| {
            let squares = mean.iter().zip(z).map(|(mean, z)| (f64::from(z) - mean).powi(2));
            -squares.sum::<f64>() / (2.0 * 0.49)
        };
        let length = |x: [f64; 3]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let (h64, logged64) = (h.map(f64::from), logged.map(f64::from));
        let stretched = h64.map(|x| x * length(logged64) / length(h64));
        for (rule, mean) in RULES.into_iter().zip([h64, stretched]) {
            let expected = density(mean) - density(logged64);
            let found = drawn.ratio(rule, &h);
            assert!((found.log_weight - expected).abs() < 1e-6, "{rule}: {found:?} {expected}");
            let squared: f64 = mean.iter().zip(logged64).map(|(a, b)| (a - b).powi(2)).sum();
            assert!((found.distance - squared / 0.49).abs() < 1e-6);
        }
        assert_eq!(drawn.ratio(RULES[0], &logged), Ratio { log_weight: 0.0, distance: 0.0 });
    }

    #[test]
    fn the_score_is_the_gradient_of_the_ratio() {
        let (h, logged, z) = ([1.0, -0.5, 2.0], [0.8, -0.4, 2.5], [1.3, 0.1, 2.0]);
        let drawn = Drawn { h: &logged, z: &z, sigma: 0.7 };
        for rule in RULES {
            let mut score = [0.0; 3];
            drawn.score(rule, &h, &mut score);
            for (at, score) in score.into_iter().enumerate() {
                let at_distance = |step: f32| {
                    let mut moved = h;
                    moved[at] += step;
                    drawn.ratio(rule, &moved).log_weight
                };
                let slope = (at_distance(1e-2) - at_distance(-1e-2)) / 2e-2;
                assert!((slope - f64::from(score)).abs() < 1e-3, "{rule}: {slope} {score}");
            }
        }
    }
}
