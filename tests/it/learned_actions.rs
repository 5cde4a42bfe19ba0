//! The gradient in β: against the slow sum of outer products over several panels of actions, and
//! against the enumeration of all slates.

use std::sync::Arc;

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{ControlVariate, LearnedActions, PlRank};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{BatchRows, PlackettLuce, Sampling, ScoreGradient, SlateDraws};
use fast_slate::reward::{LinearReward, SlateReward};
use fast_slate::seed::{Purpose, Seed};

use crate::common::enumeration::Enumeration;

const CONTEXTS: u32 = 5;

fn normals(position: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(8).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
    matrix
}

/// Every context has observed two actions and hides some others.
fn sessions(num_actions: u32) -> Arc<Sessions> {
    let pairs = |first: u32, count: u32| {
        (0..CONTEXTS).flat_map(move |context| {
            (0..count).map(move |at| (context, (first + 37 * context + 11 * at) % num_actions))
        })
    };
    Arc::new(Sessions {
        observed: ActionSets::from_pairs(CONTEXTS as usize, pairs(0, 2)),
        hidden: ActionSets::from_pairs(CONTEXTS as usize, pairs(1, num_actions / 4)),
        split: vec![Split::Train; CONTEXTS as usize],
        num_actions: num_actions as usize,
    })
}

struct Setup {
    beta: Matrix,
    h: Matrix,
    sessions: Arc<Sessions>,
    reward: Arc<LinearReward>,
    policy: PlackettLuce,
}

impl Setup {
    fn new(num_actions: u32, latent_dim: usize, slate_size: usize, num_samples: usize) -> Self {
        let sessions = sessions(num_actions);
        let beta = normals(0, num_actions as usize, latent_dim);
        let excluded = Some(Arc::clone(&sessions));
        let sampling = Sampling { num_samples, slate_size, excluded, seed: Seed(3) };
        let actions = Arc::new(ActionEmbeddings::new(beta.clone()).unwrap());
        Self {
            beta,
            h: normals(1, CONTEXTS as usize, latent_dim),
            reward: Arc::new(LinearReward::discounted(slate_size, Arc::clone(&sessions))),
            sessions,
            policy: PlackettLuce::new(actions, SlateDraws::PrefixSums, sampling).unwrap(),
        }
    }

    fn score_function(&self, baseline: ControlVariate) -> LearnedActions {
        let (policy, reward) = (self.policy.clone(), Arc::clone(&self.reward) as _);
        LearnedActions::ScoreFunction { policy, reward, baseline }
    }

    fn pl_rank(&self) -> LearnedActions {
        let estimator = PlRank::new(self.policy.clone(), self.reward.as_ref()).unwrap();
        LearnedActions::PlRank(estimator)
    }

    fn rows<'a>(&'a self, contexts: &'a [u32], step: u64) -> BatchRows<'a> {
        BatchRows { step, contexts, h: &self.h }
    }

    /// `1/B Σ_b w_b h_bᵀ` `[P · L]`.
    fn outer(&self, w: &[Vec<f64>]) -> Vec<f64> {
        let mut sum = vec![0.0; self.beta.as_slice().len()];
        for (w, h) in w.iter().zip(self.h.iter_rows()) {
            for (sum, w) in sum.chunks_exact_mut(h.len()).zip(w) {
                let terms = h.iter().map(|h| w * f64::from(*h) / f64::from(CONTEXTS));
                sum.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            }
        }
        sum
    }
}

fn relative(found: &[f32], expected: &[f64]) -> f64 {
    let squared: f64 = expected.iter().map(|e| e * e).sum();
    let off: f64 =
        found.iter().zip(expected).map(|(found, e)| (f64::from(*found) - e).powi(2)).sum();
    (off / squared).sqrt()
}

#[test]
fn panels_add_up_to_the_sum_of_outer_products() {
    let setup = Setup::new(3000, 12, 4, 6);
    let contexts: Vec<u32> = (0..CONTEXTS).collect();
    let rows = setup.rows(&contexts, 9);
    // The same draws, weighed by hand: the reward less the mean of the context's other five.
    let weighed = setup.policy.visit(&setup.beta, rows, |row, distribution| {
        let slates = setup.policy.draw(distribution, rows, row);
        let slates: Vec<&[u32]> = slates.chunks_exact(4).collect();
        let reward = |slate: &[u32]| f64::from(setup.reward.reward(row as u32, slate));
        let total: f64 = slates.iter().map(|slate| reward(slate)).sum();
        let mut w = vec![0.0; 3000];
        for slate in slates {
            let weight = (reward(slate) - (total - reward(slate)) / 5.0) / 6.0;
            let score = ScoreGradient::log_prob(distribution, slate).to_dense(distribution);
            w.iter_mut().zip(score).for_each(|(w, score)| *w += weight * score);
        }
        Ok(w)
    });
    let expected = setup.outer(&weighed.unwrap());
    let estimator = setup.score_function(ControlVariate::LeaveOneOut);
    let found = estimator.gradient(&setup.beta, rows).unwrap();
    assert!(found.rewards.iter().any(|reward| *reward > 0.0));
    assert!(relative(found.beta.as_slice(), &expected) < 1e-5);
}

#[test]
fn the_gradient_in_beta_is_that_of_enumeration() {
    let setup = Setup::new(8, 3, 2, 400);
    let contexts: Vec<u32> = (0..CONTEXTS).collect();
    let exact: Vec<Vec<f64>> = contexts
        .iter()
        .map(|&context| {
            let excluded = setup.sessions.observed.of(context);
            let h = setup.h.row(context as usize);
            Enumeration::of_query(h, &setup.beta, 2, excluded)
                .gradient(|slate| f64::from(setup.reward.reward(context, slate)))
        })
        .collect();
    let expected = setup.outer(&exact);
    let estimators = [
        setup.score_function(ControlVariate::None),
        setup.score_function(ControlVariate::LeaveOneOut),
        setup.pl_rank(),
    ];
    for estimator in estimators {
        let mut mean = vec![0.0_f32; expected.len()];
        for step in 0..160 {
            let found = estimator.gradient(&setup.beta, setup.rows(&contexts, step)).unwrap();
            mean.iter_mut().zip(found.beta.as_slice()).for_each(|(mean, g)| *mean += g / 160.0);
        }
        // 64 000 samples a context leave some 2 %; a wrong sign or a missing term is off by far more.
        let off = relative(&mean, &expected);
        assert!(off < 0.05, "off by {off}");
    }
}
