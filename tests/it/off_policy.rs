//! The value of another policy from a log of one: latent importance weights beside quadrature, on six
//! actions in two dimensions.

use std::sync::Arc;

use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimate::Estimate;
use fast_slate::logged::{Bounds, Drawn, Prior, Weighed};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{Radial, Scale, Sigma};
use fast_slate::retrieval::{Exact, Queries, Retriever as _};
use fast_slate::seed::{Purpose, Seed};

const BETA: [[f32; 2]; 6] =
    [[1.0, 0.1], [0.6, 0.9], [-0.4, 1.1], [-1.0, 0.2], [-0.3, -0.9], [0.8, -0.7]];
const ALL: [u32; 6] = [0, 1, 2, 3, 4, 5];
const ROWS: u32 = 400_000;

/// Two policies of one rule: the query that logged and the one to judge. Their lengths differ.
const LOGGED: [f32; 2] = [0.9, 0.5];
const JUDGED: [f32; 2] = [0.5, 0.9];

fn exact(beta: &[[f32; 2]]) -> Exact {
    let beta = Matrix::new(beta.as_flattened().to_vec(), 2).unwrap();
    Exact::new(Arc::new(ActionEmbeddings::new(beta).unwrap()))
}

/// What two actions earn: neither linear nor smooth.
fn reward(slate: [u32; 2]) -> f64 {
    match slate {
        [0, 1] => 1.0,
        [1, 0] => 0.4,
        [1, 2] => 0.9,
        [a, b] => f64::from((a * 5 + b * 3) % 7) / 10.0,
    }
}

/// What the best two for each query earn; `actions` are the actions of the rows of `beta`.
fn rewards(beta: &[[f32; 2]], actions: &[u32], queries: Vec<f32>) -> Vec<f64> {
    let latent = Matrix::new(queries, 2).unwrap();
    let queries = Queries { latent: &latent, slate_size: 2, excluded: None };
    let slates = exact(beta).search(queries).unwrap();
    let of = |at: usize| reward([0, 1].map(|k| actions[slates.slate(at)[k] as usize]));
    (0..latent.rows()).map(of).collect()
}

/// The expected reward of `argsort (h + σε)ᵀβ`, on a grid over ε.
fn quadrature(beta: &[[f32; 2]], h: [f32; 2], sigma: f32) -> f64 {
    const SIDE: usize = 1500;
    let point = |at: usize| (at as f32 + 0.5) / SIDE as f32 * 12.0 - 6.0;
    let (mut sum, mut mass) = (0.0, 0.0);
    for row in 0..SIDE {
        let y = point(row);
        let queries = (0..SIDE).flat_map(|at| [h[0] + sigma * point(at), h[1] + sigma * y]);
        for (at, reward) in rewards(beta, &ALL, queries.collect()).into_iter().enumerate() {
            let x = point(at);
            let density = f64::from(-(x * x + y * y) / 2.0).exp();
            sum += density * reward;
            mass += density;
        }
    }
    sum / mass
}

/// What was logged: queries z, and what their slates earned.
struct Logged {
    sigma: f32,
    z: Vec<f32>,
    rewards: Vec<f64>,
}

fn scale(rule: Sigma) -> Scale {
    Scale::new(rule, Radial::Keep, 2, 1.0).unwrap()
}

fn logged(rule: Sigma) -> Logged {
    let sigma = scale(rule).sigma(&LOGGED);
    let mut z = vec![0.0; 2 * ROWS as usize];
    Seed(7).stream(Purpose::Noise, 0, 0).fill_normals(&mut z);
    for z in z.chunks_exact_mut(2) {
        z.iter_mut().zip(LOGGED).for_each(|(z, h)| *z = h + sigma * *z);
    }
    Logged { sigma, rewards: rewards(&BETA, &ALL, z.clone()), z }
}

impl Logged {
    /// The estimate by the weights that `log_weight` gives a row.
    fn estimate(&self, log_weight: impl Fn(Drawn<'_>) -> f64) -> Estimate {
        let rows = self.z.chunks_exact(2).zip(&self.rewards).map(|(z, reward)| {
            log_weight(Drawn { h: &LOGGED, z, sigma: self.sigma }).exp() * reward
        });
        Estimate::of(rows.collect::<Vec<_>>().into_iter())
    }
}

/// How many standard errors an estimate is off.
fn off(found: Estimate, truth: f64) -> f64 {
    (found.mean - truth).abs() / found.standard_error
}

const RULES: [Sigma; 2] = [Sigma::InverseDim, Sigma::Relative(0.9)];

#[test]
fn latent_weights_find_the_value_of_another_policy_and_wrong_ones_do_not() {
    for rule in RULES {
        let logged = logged(rule);
        let truth = quadrature(&BETA, JUDGED, scale(rule).sigma(&JUDGED));
        let found = logged.estimate(|row| row.ratio(rule, &JUDGED).log_weight);
        assert!(found.standard_error < 0.01 * truth, "{rule}: {found}");
        assert!(off(found, truth) < 4.0, "{rule}: {found}, quadrature {truth}");

        let half = |row: Drawn<'_>| row.ratio(rule, &JUDGED).distance / 2.0;
        let wrong_sign =
            logged.estimate(|row| -row.ratio(rule, &JUDGED).log_weight - 2.0 * half(row));
        assert!(off(wrong_sign, truth) > 10.0, "{rule}: {wrong_sign}");
        let unnormalised = logged.estimate(|row| row.ratio(rule, &JUDGED).log_weight + half(row));
        assert!(off(unnormalised, truth) > 10.0, "{rule}: {unnormalised}");

        let mut others = BETA;
        others.swap(1, 4);
        let elsewhere = quadrature(&others, JUDGED, scale(rule).sigma(&JUDGED));
        assert!(off(found, elsewhere) > 10.0, "another retrieval: {elsewhere}");
    }
}

#[test]
fn under_a_relative_sigma_the_length_of_the_query_is_taken_out_first() {
    let rule = Sigma::Relative(0.9);
    let logged = logged(rule);
    let long = JUDGED.map(|x| 1.3 * x);
    let truth = quadrature(&BETA, long, scale(rule).sigma(&long));
    let found = logged.estimate(|row| row.ratio(rule, &long).log_weight);
    assert!(off(found, truth) < 4.0, "{found}, quadrature {truth}");
    let plain = logged.estimate(|row| row.ratio(Sigma::InverseDim, &long).log_weight);
    assert!(off(plain, truth) > 10.0, "{plain}, quadrature {truth}");
}

/// Samples that choose among the best of h₀ show slates that are no function of z alone: the weights then
/// estimate what the other policy would earn among the candidates of the one that logged.
#[test]
fn candidates_of_the_logging_query_make_the_estimate_another() {
    let rule = Sigma::InverseDim;
    let mut logged = logged(rule);
    let truth = quadrature(&BETA, JUDGED, logged.sigma);
    let latent = Matrix::new(LOGGED.to_vec(), 2).unwrap();
    let query = Queries { latent: &latent, slate_size: 3, excluded: None };
    let mut candidates = exact(&BETA).search(query).unwrap().slate(0).to_vec();
    candidates.sort_unstable();
    let few: Vec<[f32; 2]> = candidates.iter().map(|action| BETA[*action as usize]).collect();
    logged.rewards = rewards(&few, &candidates, logged.z.clone());
    let found = logged.estimate(|row| row.ratio(rule, &JUDGED).log_weight);
    assert!(off(found, truth) > 10.0, "{found}, quadrature {truth}");
}

#[test]
fn an_interval_holds_the_truth_and_a_policy_too_far_away_has_none() {
    let rule = Sigma::InverseDim;
    let logged = logged(rule);
    let value = |h: [f32; 2], rows: usize| {
        let drawn = logged.z.chunks_exact(2).take(rows);
        let ratios = drawn.map(|z| Drawn { h: &LOGGED, z, sigma: logged.sigma }.ratio(rule, &h));
        let (log_weights, distances) =
            ratios.map(|ratio| (ratio.log_weight, ratio.distance)).unzip();
        let weighed = Weighed {
            log_weights,
            distances,
            rewards: logged.rewards[..rows].to_vec(),
            people: (0..u32::try_from(rows).unwrap()).collect(),
            bounds: Bounds { low: 0.0, high: Some(1.0) },
        };
        let prior = Prior { mean_square: 0.5, variance: 0.2 };
        (weighed.value(prior, Seed(0)).unwrap(), weighed.gain_bound(prior).unwrap())
    };
    let (near, bound) = value(JUDGED, 50_000);
    let truth = quadrature(&BETA, JUDGED, logged.sigma);
    for interval in [near.plain, near.bootstrap, near.self_normalised].map(Option::unwrap) {
        assert!(interval.low < truth && truth < interval.high, "{interval} {truth}");
    }
    assert!(near.smoothed_lower.unwrap() < truth);
    let served = quadrature(&BETA, LOGGED, logged.sigma);
    assert!(near.logging.low < served && served < near.logging.high);
    assert!(bound < truth - served, "{bound}");

    let (far, _) = value([-2.0, 1.0], 2000);
    assert!(far.doubt.is_some() && far.plain.is_none() && far.smoothed_lower.is_none());
    // The weights that were drawn look better than they are.
    assert!(far.effective_rows > 10.0 * far.expected_effective_rows);
}
