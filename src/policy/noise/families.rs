//! The built-in densities, each scaled to variance 1.

use std::f64::consts::{EULER_GAMMA, LN_2, PI, SQRT_2, TAU};

use statrs::function::beta::inv_beta_reg;
use statrs::function::erf::erfc_inv;
use statrs::function::gamma::ln_gamma;

use super::Noise;
use crate::error::{Error, Result};
use crate::seed::Stream;

/// N(0, 1): LGP.
#[derive(Clone, Copy, Debug)]
pub struct Gaussian;

impl Noise for Gaussian {
    fn log_density(&self, value: f64) -> f64 {
        -0.5 * (value * value + TAU.ln())
    }

    fn score(&self, value: f64) -> f64 {
        -value
    }

    fn quantile(&self, probability: f64) -> f64 {
        -SQRT_2 * erfc_inv(2.0 * probability)
    }

    fn has_independent_parts(&self) -> bool {
        true
    }

    /// A draw is its own score.
    fn scores(&self, _draws: &mut [f32]) {}

    fn fill(&self, stream: &mut Stream, out: &mut [f32]) {
        stream.fill_normals(out);
    }
}

/// `q(ε) = exp(−√2|ε|)/√2`; the score has the same size everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Laplace;

impl Noise for Laplace {
    fn log_density(&self, value: f64) -> f64 {
        -SQRT_2 * value.abs() - 0.5 * LN_2
    }

    fn score(&self, value: f64) -> f64 {
        -SQRT_2 * value.signum()
    }

    fn quantile(&self, probability: f64) -> f64 {
        let tail = probability.min(1.0 - probability);
        ((2.0 * tail).ln() / SQRT_2).copysign(probability - 0.5)
    }
}

/// `q(ε) = 1/(4s cosh²(ε/2s))` with s = √3/π: Gaussian about 0, Laplace in the tails.
#[derive(Clone, Copy, Debug)]
pub struct Logistic;

impl Logistic {
    /// s = √3/π.
    const SCALE: f64 = 0.551_328_895_421_792_1;
}

impl Noise for Logistic {
    fn log_density(&self, value: f64) -> f64 {
        let z = value.abs() / Self::SCALE;
        -z - Self::SCALE.ln() - 2.0 * (-z).exp().ln_1p()
    }

    fn score(&self, value: f64) -> f64 {
        -(value / (2.0 * Self::SCALE)).tanh() / Self::SCALE
    }

    fn quantile(&self, probability: f64) -> f64 {
        Self::SCALE * (probability / (1.0 - probability)).ln()
    }
}

/// Student's t with ν degrees of freedom, times √((ν − 2)/ν):
/// `q(ε) ∝ (1 + ε²/(ν − 2))^(−(ν+1)/2)`. A far sample has a small score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudentT(f64);

impl StudentT {
    /// The largest ν. Above it t is a Gaussian in practice, and special functions lose digits.
    const MOST: f64 = 1e4;

    /// The density with ν = `freedom`.
    ///
    /// # Errors
    /// [`Error::Setting`] unless 2 < ν ≤ 10⁴.
    pub fn new(freedom: f64) -> Result<Self> {
        let refuse = |reason: &str| {
            let problem = format!("student-t needs ν > 2, found {freedom}: {reason}");
            Err(Error::setting("method.noise", problem))
        };
        match freedom {
            _ if freedom > Self::MOST => refuse("that large it is \"gaussian\""),
            _ if freedom > 2.0 => Ok(Self(freedom)),
            _ => refuse("with fewer the variance is not finite"),
        }
    }

    /// ν.
    #[must_use]
    pub fn freedom(&self) -> f64 {
        self.0
    }
}

impl Noise for StudentT {
    fn log_density(&self, value: f64) -> f64 {
        let (half, scale) = (self.0 / 2.0, self.0 - 2.0);
        let constant = ln_gamma(half + 0.5) - ln_gamma(half) - 0.5 * (scale * PI).ln();
        constant - (half + 0.5) * (value * value / scale).ln_1p()
    }

    fn score(&self, value: f64) -> f64 {
        -(self.0 + 1.0) * value / (self.0 - 2.0 + value * value)
    }

    fn quantile(&self, probability: f64) -> f64 {
        // ν/(ν + t²) has a beta distribution.
        let tail = probability.min(1.0 - probability);
        let share = inv_beta_reg(self.0 / 2.0, 0.5, 2.0 * tail);
        ((self.0 - 2.0) * (1.0 - share) / share).sqrt().copysign(probability - 0.5)
    }

    /// Uses the polar formula `√(ν(U^(−2/ν) − 1)) cos 2πV` (Bailey, "Polar generation of random
    /// variates with the t-distribution", Mathematics of Computation 1994): two uniforms a draw.
    /// The sine depends on the cosine, so it cannot serve as the next draw.
    #[allow(clippy::cast_possible_truncation, reason = "queries are f32")]
    fn fill(&self, stream: &mut Stream, out: &mut [f32]) {
        out.fill_with(|| {
            let (log, angle) = (stream.open_uniform().ln(), TAU * stream.uniform());
            let squared = (self.0 - 2.0) * (-2.0 / self.0 * log).exp_m1();
            (squared.sqrt() * angle.cos()) as f32
        });
    }
}

/// Gumbel's density, centred: `q(ε) = exp(−z − e^(−z))/s` with z = ε/s + γ, s = √6/π and γ Euler's
/// constant. The right tail is long, the left one short.
#[derive(Clone, Copy, Debug)]
pub struct Gumbel;

impl Gumbel {
    /// s = √6/π.
    const SCALE: f64 = 0.779_696_801_233_676;
}

impl Noise for Gumbel {
    fn log_density(&self, value: f64) -> f64 {
        let z = value / Self::SCALE + EULER_GAMMA;
        -z - (-z).exp() - Self::SCALE.ln()
    }

    fn score(&self, value: f64) -> f64 {
        let z = value / Self::SCALE + EULER_GAMMA;
        (-z).exp_m1() / Self::SCALE
    }

    fn quantile(&self, probability: f64) -> f64 {
        -Self::SCALE * ((-probability.ln()).ln() + EULER_GAMMA)
    }
}

/// `q(ε) = cos²(πε/2s)/s` on (−s, s), with `1/s² = 1/3 − 2/π²`: bounded, and smooth enough at the
/// ends for a score of finite variance.
#[derive(Clone, Copy, Debug)]
pub struct RaisedCosine;

impl RaisedCosine {
    /// s.
    const REACH: f64 = 2.766_159_483_867_713;
}

impl Noise for RaisedCosine {
    fn log_density(&self, value: f64) -> f64 {
        if value.abs() >= Self::REACH {
            return f64::NEG_INFINITY;
        }
        2.0 * (PI * value / (2.0 * Self::REACH)).cos().ln() - Self::REACH.ln()
    }

    fn score(&self, value: f64) -> f64 {
        if value.abs() >= Self::REACH {
            return 0.0;
        }
        -PI / Self::REACH * (PI * value / (2.0 * Self::REACH)).tan()
    }

    /// Solves Kepler's equation of eccentricity 1: with z = π(1 + ε/s) the distribution function is
    /// `(z − sin z)/2π`. It is convex on (0, π], so Newton's steps overshoot at most once. From the
    /// root of `z³/6`, at most a sixth too small, five steps reach the precision of f64.
    fn quantile(&self, probability: f64) -> f64 {
        let mean_anomaly = TAU * probability.min(1.0 - probability); // in (0, π]
        let mut z = (6.0 * mean_anomaly).cbrt();
        for _ in 0..5 {
            // 1 − cos z, without the cancellation.
            let slope = 2.0 * (z / 2.0).sin().powi(2);
            z -= (z - z.sin() - mean_anomaly) / slope;
        }
        (Self::REACH * (1.0 - z / PI)).copysign(probability - 0.5)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::NoiseKind;
    use crate::policy::noise::NAMES;
    use crate::seed::{Purpose, Seed};

    fn all() -> Vec<Arc<dyn Noise>> {
        NAMES.map(|name| name.parse::<NoiseKind>().unwrap().init()).into()
    }

    fn density(noise: &dyn Noise, value: f64) -> f64 {
        noise.log_density(value).exp()
    }

    /// `∫ q(ε) f(ε) dε` over the line, by the double exponential substitution
    /// ε = ±exp(π/2 sinh t) on each half.
    fn expectation(noise: &dyn Noise, f: impl Fn(f64) -> f64) -> f64 {
        let (step, steps) = (1e-3, 4000);
        let at = |i: i32| {
            let t = step * f64::from(i);
            let size = (0.5 * PI * t.sinh()).exp();
            let of = |value: f64| match density(noise, value) {
                0.0 => 0.0,
                density => density * f(value),
            };
            0.5 * PI * t.cosh() * size * (of(size) + of(-size))
        };
        step * (-steps..=steps).map(at).sum::<f64>()
    }

    /// Probabilities that quantiles are asked for, dense in both tails.
    fn probabilities() -> Vec<f64> {
        let tail = (2..=9).rev().flat_map(|power| {
            [1.0, 2.0, 5.0].map(|digit| digit * 10.0_f64.powi(-power)).into_iter()
        });
        let left: Vec<f64> = tail.chain((2..=10).map(|i| f64::from(i) / 20.0)).collect();
        left.iter().copied().chain(left.iter().rev().skip(1).map(|p| 1.0 - p)).collect()
    }

    #[test]
    fn every_noise_is_centred_of_unit_variance_with_a_score_that_integrates_by_parts() {
        for noise in all() {
            let noise = noise.as_ref();
            for (what, found, expected) in [
                ("mass", expectation(noise, |_| 1.0), 1.0),
                ("mean", expectation(noise, |x| x), 0.0),
                ("variance", expectation(noise, |x| x * x), 1.0),
                ("E[score]", expectation(noise, |x| noise.score(x)), 0.0),
                ("E[ε score]", expectation(noise, |x| x * noise.score(x)), -1.0),
            ] {
                assert!((found - expected).abs() < 2e-5, "{noise:?}: {what} is {found}");
            }
            let information = expectation(noise, |x| noise.score(x).powi(2));
            // Cramér–Rao: no score of unit variance noise varies less than the Gaussian's.
            assert!((1.0 - 1e-6..10.0).contains(&information), "{noise:?}: {information}");
        }
    }

    #[test]
    fn the_score_is_the_slope_of_the_log_density() {
        let step = 1e-5;
        for noise in all() {
            for i in -54..=54 {
                let x = 0.05 * (f64::from(i) + 0.5);
                let slope =
                    (noise.log_density(x + step) - noise.log_density(x - step)) / (2.0 * step);
                let score = noise.score(x);
                let close = 1e-5 * (1.0 + slope.abs());
                assert!((score - slope).abs() < close, "{noise:?} at {x}: {score}, {slope}");
            }
        }
    }

    #[test]
    fn the_scores_of_draws_are_those_of_each() {
        for noise in all() {
            let mut draws = vec![0.0; 101];
            noise.fill(&mut Seed(4).stream(Purpose::Noise, 0, 0), &mut draws);
            let each: Vec<f64> = draws.iter().map(|draw| -noise.score(f64::from(*draw))).collect();
            noise.scores(&mut draws);
            for (found, score) in draws.iter().zip(each) {
                let close = 1e-6 * (1.0 + score.abs());
                assert!((f64::from(*found) - score).abs() < close, "{noise:?}: {found}, {score}");
            }
        }
    }

    #[test]
    fn between_two_quantiles_lies_the_mass_between_their_probabilities() {
        for noise in all() {
            let probabilities = probabilities();
            for pair in probabilities.windows(2) {
                let (low, high) = (noise.quantile(pair[0]), noise.quantile(pair[1]));
                // Simpson's rule.
                let (pieces, width) = (400, (high - low) / 400.0);
                let mass: f64 = (0..=pieces)
                    .map(|i| {
                        let weight = [2.0, 4.0][i % 2] - f64::from(u8::from(i % pieces == 0));
                        weight * density(noise.as_ref(), low + width * i as f64)
                    })
                    .sum::<f64>()
                    * width
                    / 3.0;
                let expected = pair[1] - pair[0];
                assert!(
                    (mass - expected).abs() < 1e-6 * expected,
                    "{noise:?} between {pair:?}: {mass}"
                );
            }
        }
    }

    #[test]
    fn draws_follow_the_quantiles() {
        let count = 100_000;
        for noise in all() {
            let mut draws = vec![0.0; count];
            noise.fill(&mut Seed(3).stream(Purpose::Noise, 0, 0), &mut draws);
            draws.sort_by(f32::total_cmp);
            for i in 1..1000 {
                let probability = f64::from(i) / 1000.0;
                let below = noise.quantile(probability);
                let share =
                    draws.partition_point(|draw| f64::from(*draw) < below) as f64 / count as f64;
                // Kolmogorov and Smirnov's bound at a thousandth.
                let distance = (share - probability).abs() * (count as f64).sqrt();
                assert!(distance < 1.95, "{noise:?} below {below}: {share} of {probability}");
            }
        }
    }

    #[test]
    fn the_extremes_of_a_uniform_have_finite_quantiles_and_scores() {
        for noise in all() {
            for probability in [0.5 / 4_503_599_627_370_496.0, 1.0 - f64::EPSILON / 2.0] {
                let value = noise.quantile(probability);
                assert!(value.is_finite() && noise.score(value).is_finite(), "{noise:?}: {value}");
            }
        }
    }
}
