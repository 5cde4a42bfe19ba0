//! LGP's gradient against quadrature, on a catalogue in two dimensions: there the slate depends on
//! the direction of the query alone, so expectations are integrals over an angle and a radius.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{
    Baseline, BatchRows, Estimator, Samples, ScoreFunction, ScoreFunctionSettings,
};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{LatentPerturbation, Radial, Sigma};
use fast_slate::retrieval::{Exact, Queries, Retriever};
use fast_slate::reward::SlateReward;
use fast_slate::seed::Seed;

const K: usize = 2;
const H: [f32; 2] = [0.7, 0.4];
const BETA: [f32; 14] =
    [1.0, 0.1, 0.8, 0.6, 0.1, 1.1, -0.7, 0.8, -1.0, -0.2, -0.3, -0.9, 0.6, -0.8];

/// Not linear, not symmetric, never zero: a reward that a missing baseline would feel.
#[derive(Debug)]
struct Odd;

impl SlateReward for Odd {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        let top = f32::from(u8::from(slate[0] == 2)) + 0.3 * f32::from(u8::from(slate[0] == 3));
        0.3 + top * (1.0 + f32::from(u8::from(slate[1] == 1)))
    }
}

fn actions() -> Arc<ActionEmbeddings> {
    Arc::new(ActionEmbeddings::new(Matrix::new(BETA.to_vec(), 2).unwrap()).unwrap())
}

/// Reward of the slate in each of many directions.
struct Quadrature {
    rewards: Vec<f64>,
}

impl Quadrature {
    fn new() -> Self {
        let angles = 8000;
        let direction = |i: usize| {
            let angle = TAU * (i as f64 + 0.5) / angles as f64;
            [angle.cos() as f32, angle.sin() as f32]
        };
        let latent = Matrix::new((0..angles).flat_map(direction).collect(), 2).unwrap();
        let queries = Queries { latent: &latent, slate_size: K, excluded: None };
        let slates = Exact::new(actions()).search(queries).unwrap();
        Self { rewards: (0..angles).map(|i| f64::from(Odd.reward(0, slates.slate(i)))).collect() }
    }

    /// R(h, σ) and its gradient in h at fixed σ.
    fn integrate(&self, h: [f64; 2], sigma: f64) -> (f64, [f64; 2]) {
        let (angles, radii) = (self.rewards.len(), 500);
        let reach = h[0].hypot(h[1]) + 9.0 * sigma;
        let (d_angle, d_radius) = (TAU / angles as f64, reach / f64::from(radii));
        let (mut value, mut gradient) = (0.0, [0.0; 2]);
        for (i, reward) in self.rewards.iter().enumerate() {
            let angle = d_angle * (i as f64 + 0.5);
            for j in 0..radii {
                let radius = d_radius * (f64::from(j) + 0.5);
                let off = [radius * angle.cos() - h[0], radius * angle.sin() - h[1]];
                let density = (-(off[0] * off[0] + off[1] * off[1]) / (2.0 * sigma * sigma)).exp()
                    / (2.0 * PI * sigma * sigma);
                let weight = reward * density * radius * d_angle * d_radius;
                value += weight;
                gradient[0] += weight * off[0] / (sigma * sigma);
                gradient[1] += weight * off[1] / (sigma * sigma);
            }
        }
        (value, gradient)
    }

    /// The gradient of R(h, c‖h‖/√2), by central differences.
    fn relative(&self, h: [f64; 2], c: f64) -> [f64; 2] {
        let at = |h: [f64; 2]| self.integrate(h, c * h[0].hypot(h[1]) / 2.0_f64.sqrt()).0;
        let step = 1e-3;
        let [x, y] = h;
        [
            (at([x + step, y]) - at([x - step, y])) / (2.0 * step),
            (at([x, y + step]) - at([x, y - step])) / (2.0 * step),
        ]
    }
}

/// A Monte Carlo mean and its standard error (of the vector, from independent batches).
#[derive(Clone, Copy, Debug)]
struct Estimate {
    mean: [f64; 2],
    error: f64,
}

impl Estimate {
    fn agrees_with(&self, truth: [f64; 2]) -> bool {
        length([self.mean[0] - truth[0], self.mean[1] - truth[1]]) <= 4.0 * self.error
    }

    fn scaled(self, factor: f64) -> Self {
        Self { mean: self.mean.map(|m| m * factor), error: self.error * factor.abs() }
    }
}

fn length(v: [f64; 2]) -> f64 {
    v[0].hypot(v[1])
}

fn estimator(sigma: Sigma, radial: Radial, settings: ScoreFunctionSettings) -> ScoreFunction {
    let actions = actions();
    let policy = LatentPerturbation::new(sigma, radial, 2, actions.mean_norm()).unwrap();
    let retriever = Arc::new(Exact::new(actions));
    ScoreFunction::new(settings, policy, retriever, Arc::new(Odd), None, Seed(7)).unwrap()
}

/// Averages the estimator over batches until 4 standard errors are at most 2 % of ‖g‖.
/// `finish` turns the samples of a batch into its gradients.
fn estimate(
    estimator: &ScoreFunction,
    truth: [f64; 2],
    finish: impl Fn(&Matrix, &Samples) -> Matrix,
) -> Estimate {
    let rows = 4000;
    let h = Matrix::new(H.repeat(rows), 2).unwrap();
    let contexts = vec![0; rows];
    let (mut count, mut sums, mut squares) = (0.0, [0.0; 2], [0.0; 2]);
    for step in 0..3000 {
        let batch = BatchRows { step, first: 0, contexts: &contexts };
        let g = finish(&h, &estimator.sample(&h, batch).unwrap());
        for i in 0..2 {
            let mean = g.iter_rows().map(|g| f64::from(g[i])).sum::<f64>() / rows as f64;
            sums[i] += mean;
            squares[i] += mean * mean;
        }
        count += 1.0;
        let variance = |i: usize| (squares[i] / count - (sums[i] / count).powi(2)) / (count - 1.0);
        let error = (variance(0) + variance(1)).sqrt();
        if count >= 30.0 && 4.0 * error <= 0.02 * length(truth) {
            return Estimate { mean: sums.map(|sum| sum / count), error };
        }
    }
    panic!("not enough samples for 4 standard errors to be 2 % of the gradient");
}

fn settings(num_samples: usize, baseline: Baseline, antithetic: bool) -> ScoreFunctionSettings {
    ScoreFunctionSettings { num_samples, slate_size: K, baseline, antithetic }
}

/// Every way to weigh samples that is unbiased.
fn unbiased() -> [ScoreFunctionSettings; 5] {
    [
        settings(8, Baseline::None, false),
        settings(8, Baseline::LeaveOneOut, false),
        settings(8, Baseline::None, true),
        settings(1, Baseline::None, false),
        settings(1, Baseline::LeaveOneOut, false),
    ]
}

#[test]
fn every_baseline_and_sigma_rule_has_the_gradient_of_quadrature() {
    let quadrature = Quadrature::new();
    let h = H.map(f64::from);
    let fixed = |sigma: f64| quadrature.integrate(h, sigma).1;
    let mean_norm = f64::from(actions().mean_norm());
    let norm = h[0].hypot(h[1]);
    for (sigma, radial, truth) in [
        (Sigma::InverseDim, Radial::Keep, fixed(0.5)),
        (Sigma::InverseNorm, Radial::Keep, fixed(1.0 / mean_norm)),
        (Sigma::Relative(0.6), Radial::Keep, fixed(0.6 * norm / 2.0_f64.sqrt())),
        (Sigma::Relative(0.6), Radial::Project, quadrature.relative(h, 0.6)),
    ] {
        for settings in unbiased() {
            let estimator = estimator(sigma, radial, settings);
            let found = estimate(&estimator, truth, |h, samples| estimator.finish(h, samples));
            assert!(
                found.agrees_with(truth),
                "{sigma} {radial:?} {settings:?}: {found:?}, quadrature {truth:?}"
            );
        }
    }
}

#[test]
fn the_radial_part_under_a_relative_sigma_is_zero() {
    let h = H.map(f64::from);
    let g = Quadrature::new().relative(h, 0.6);
    assert!((g[0] * h[0] + g[1] * h[1]).abs() < 1e-3 * length(g) * length(h));
}

#[test]
fn a_wrong_sign_a_missing_sigma_and_a_biased_baseline_are_told_apart() {
    let truth = Quadrature::new().integrate(H.map(f64::from), 0.5).1;
    let plain = estimator(Sigma::InverseDim, Radial::Keep, settings(8, Baseline::None, false));
    let right = estimate(&plain, truth, |h, samples| plain.finish(h, samples));
    assert!(right.agrees_with(truth));
    assert!(!right.scaled(-1.0).agrees_with(truth), "a flipped sign passes");
    assert!(!right.scaled(0.5).agrees_with(truth), "a missing σ passes");

    // Leave-one-out over all S although sample s + S/2 mirrors sample s.
    let pairs = estimator(Sigma::InverseDim, Radial::Keep, settings(8, Baseline::None, true));
    let biased = estimate(&pairs, truth, |h, samples| {
        let mut samples = samples.clone();
        for group in samples.rewards.chunks_exact_mut(8) {
            let sum: f32 = group.iter().sum();
            for reward in group {
                *reward -= (sum - *reward) / 7.0;
            }
        }
        pairs.finish(h, &samples)
    });
    assert!(!biased.agrees_with(truth), "leave-one-out across antithetic pairs passes");
    assert!(biased.scaled(7.0 / 8.0).agrees_with(truth), "the bias is S/(S − 1)");
}

#[test]
fn a_batch_split_by_rows_is_the_same_bit_for_bit() {
    for (num_samples, baseline) in [(4, Baseline::LeaveOneOut), (1, Baseline::LeaveOneOut)] {
        let settings = settings(num_samples, baseline, false);
        let estimator = estimator(Sigma::Relative(0.5), Radial::Project, settings);
        let latent: Vec<f32> = (0..64).map(|i| ((i * 37 % 41) as f32 - 20.0) / 10.0).collect();
        let h = Matrix::new(latent, 2).unwrap();
        let contexts: Vec<u32> = (0..32).collect();
        let sample = |first: usize, end: usize| {
            let rows: Vec<u32> = (first as u32..end as u32).collect();
            let batch = BatchRows { step: 5, first, contexts: &contexts[first..end] };
            estimator.sample(&h.select(&rows), batch).unwrap()
        };
        let whole = sample(0, 32);
        let joined = sample(0, 16).join(sample(16, 32)).unwrap();
        assert_eq!(joined, whole);
        assert_eq!(estimator.finish(&h, &joined), estimator.finish(&h, &whole));
    }
}
