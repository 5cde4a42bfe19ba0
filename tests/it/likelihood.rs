//! The reward-weighted likelihood's gradient against finite differences of the likelihood itself,
//! summed over all actions.

use std::sync::Arc;

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{BatchRows, Estimator, Likelihood};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{LatentPerturbation, NoiseKind, Radial, Sampling, Scale, Sigma};
use fast_slate::retrieval::Exact;
use fast_slate::reward::SlateReward;
use fast_slate::seed::{Purpose, Seed};

use crate::common::monte_carlo::{Estimate, length};

const P: usize = 60;
const L: usize = 3;
const HEAD: usize = 4;
const RATIO: f32 = 0.5;
const H: [f32; L] = [0.6, -0.4, 0.3];
/// One of them among the best for [`H`], others far from it; 8 is also observed.
const HIDDEN: [u32; 5] = [3, 8, 20, 21, 40];
const OBSERVED: [u32; 4] = [0, 8, 30, 59];

/// Each action is worth something else, and a slate what its first is.
#[derive(Debug)]
struct OfTheFirst;

impl SlateReward for OfTheFirst {
    fn reward(&self, _context: u32, slate: &[u32]) -> f32 {
        0.5 + (slate[0] % 7) as f32
    }
}

fn actions() -> Arc<ActionEmbeddings> {
    let mut beta = Matrix::zeros(P, L);
    Seed(3).stream(Purpose::Synthetic, 0, 0).fill_normals(beta.as_mut_slice());
    Arc::new(ActionEmbeddings::new(beta).unwrap())
}

fn sessions() -> Arc<Sessions> {
    Arc::new(Sessions {
        observed: ActionSets::from_pairs(1, OBSERVED.iter().map(|action| (0, *action))),
        hidden: ActionSets::from_pairs(1, HIDDEN.iter().map(|action| (0, *action))),
        split: vec![Split::Train],
        num_actions: P,
    })
}

/// A choice of what the likelihood depends on.
struct Case {
    temperature: f32,
    excludes: bool,
    radial: Radial,
}

impl Case {
    fn estimator(&self, num_samples: usize) -> Likelihood {
        let actions = actions();
        let scale = Scale::new(Sigma::Relative(RATIO), self.radial, L, actions.mean_norm());
        let excluded = self.excludes.then(sessions);
        let sampling = Sampling { num_samples, slate_size: 2, excluded, seed: Seed(11) };
        let exact = Arc::new(Exact::new(Arc::clone(&actions)));
        let noise = NoiseKind::Gaussian.init();
        let policy = LatentPerturbation::new(scale.unwrap(), noise, exact, sampling).unwrap();
        let reward = Arc::new(OfTheFirst);
        Likelihood::new(policy, actions, sessions(), reward, HEAD, self.temperature).unwrap()
    }

    /// `1/|Y| Σ w_a log p_a`, τ in units of the norm of `scaled_by`.
    fn likelihood(&self, h: [f64; L], scaled_by: [f64; L]) -> f64 {
        let actions = actions();
        let sigma = f64::from(RATIO) * length(&scaled_by) / (L as f64).sqrt();
        let tau = sigma * f64::from(actions.mean_norm()) * f64::from(self.temperature);
        let shown = |action: &u32| !self.excludes || !OBSERVED.contains(action);
        let score = |action: u32| {
            let beta = actions.row(action).iter();
            h.iter().zip(beta).map(|(h, beta)| h * f64::from(*beta)).sum::<f64>() / tau
        };
        let all = (0..P as u32).filter(shown);
        let constant = all.map(|action| score(action).exp()).sum::<f64>().ln();
        let positive: Vec<u32> = HIDDEN.into_iter().filter(shown).collect();
        let weighted = positive.iter().map(|action| {
            f64::from(OfTheFirst.reward(0, &[*action])) * (score(*action) - constant)
        });
        weighted.sum::<f64>() / positive.len() as f64
    }

    /// The gradient of what the estimator maximises: with the projection τ moves along with ‖h‖,
    /// without it τ stays.
    fn truth(&self) -> Vec<f64> {
        let (at, step) = (H.map(f64::from), 1e-4);
        let likelihood = |h| match self.radial {
            Radial::Project => self.likelihood(h, h),
            Radial::Keep => self.likelihood(h, at),
        };
        let slope = |i: usize| {
            let (mut above, mut below) = (at, at);
            above[i] += step;
            below[i] -= step;
            (likelihood(above) - likelihood(below)) / (2.0 * step)
        };
        (0..L).map(slope).collect()
    }
}

/// Temperatures from a peaked softmax to a flat one.
fn cases() -> impl Iterator<Item = Case> {
    [0.1, 1.0, 10.0].into_iter().flat_map(|temperature| {
        [(true, Radial::Project), (false, Radial::Project), (true, Radial::Keep)]
            .map(|(excludes, radial)| Case { temperature, excludes, radial })
    })
}

fn gradient(estimator: &dyn Estimator) -> Vec<f64> {
    let h = Matrix::new(H.to_vec(), L).unwrap();
    let rows = BatchRows { step: 0, contexts: &[0], h: &h };
    let g = estimator.gradient(rows).unwrap().h;
    g.as_slice().iter().map(|g| f64::from(*g)).collect()
}

#[test]
fn as_many_samples_as_actions_make_the_gradient_of_the_likelihood() {
    for case in cases() {
        let (found, truth) = (gradient(&case.estimator(P)), case.truth());
        let off: Vec<f64> = found.iter().zip(&truth).map(|(found, truth)| found - truth).collect();
        let Case { temperature, excludes, radial } = case;
        assert!(
            length(&off) < 1e-3 * length(&truth),
            "temperature {temperature}, excludes {excludes}, {radial:?}: {found:?} not {truth:?}"
        );
    }
}

#[test]
fn more_samples_leave_less_bias() {
    let case = Case { temperature: 2.0, excludes: true, radial: Radial::Project };
    let truth = case.truth();
    let bias = |samples| {
        let estimator = case.estimator(samples);
        Estimate::within(0.01 * length(&truth), &estimator, &H).distance(&truth) / length(&truth)
    };
    let (few, some, many) = (bias(1), bias(4), bias(16));
    assert!(few > 0.05 && some < few / 2.0 && many < some / 2.0, "{few} {some} {many}");
}

#[test]
fn the_reported_reward_is_that_of_the_decision() {
    let case = Case { temperature: 1.0, excludes: true, radial: Radial::Project };
    let actions = actions();
    let score = |action: &u32| -> f32 {
        H.iter().zip(actions.row(*action)).map(|(h, beta)| h * beta).sum()
    };
    let shown = (0..P as u32).filter(|action| !OBSERVED.contains(action));
    let best = shown.max_by(|a, b| score(a).total_cmp(&score(b))).unwrap();
    let h = Matrix::new(H.to_vec(), L).unwrap();
    let rows = BatchRows { step: 0, contexts: &[0], h: &h };
    let rewards = case.estimator(3).gradient(rows).unwrap().rewards;
    assert_eq!(rewards, vec![OfTheFirst.reward(0, &[best]); 3]);
}
