//! Plackett–Luce gradients against the enumeration of all slates; latent ones have their quadrature
//! in `gradient`, the covariances and FOPO their own file.

use std::sync::Arc;

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{ControlVariate, Estimator, PlRank, ScoreFunction};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{PlackettLuce, Sampling, SlateDraws};
use fast_slate::reward::{AnyHit, LinearReward, SlateReward};
use fast_slate::seed::{Purpose, Seed};

use crate::common::enumeration::{Enumeration, latent};
use crate::common::monte_carlo::{Estimate, length};

const P: usize = 7;
const L: usize = 3;

fn normals(position: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(5).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
    matrix
}

/// One context that has observed action 5 and hides `hidden`.
fn sessions(hidden: &[u32]) -> Arc<Sessions> {
    Arc::new(Sessions {
        observed: ActionSets::from_pairs(1, [(0, 5)].into_iter()),
        hidden: ActionSets::from_pairs(1, hidden.iter().map(|&action| (0, action))),
        split: vec![Split::Train],
        num_actions: P,
    })
}

struct Task {
    beta: Matrix,
    h: Vec<f32>,
    slate_size: usize,
    sessions: Arc<Sessions>,
    excluded: Option<Arc<Sessions>>,
}

impl Task {
    fn policy(&self, num_samples: usize, draws: SlateDraws) -> PlackettLuce {
        let actions = Arc::new(ActionEmbeddings::new(self.beta.clone()).unwrap());
        let (slate_size, excluded) = (self.slate_size, self.excluded.clone());
        let sampling = Sampling { num_samples, slate_size, excluded, seed: Seed(11) };
        PlackettLuce::new(actions, draws, sampling).unwrap()
    }

    fn truth(&self, reward: &dyn SlateReward) -> Vec<f64> {
        let excluded: &[u32] = if self.excluded.is_some() { &[5] } else { &[] };
        let all = Enumeration::of_query(&self.h, &self.beta, self.slate_size, excluded);
        latent(&self.beta, &all.gradient(|slate| f64::from(reward.reward(0, slate))))
    }

    fn check(&self, name: &str, estimator: &dyn Estimator, reward: &dyn SlateReward) {
        let truth = self.truth(reward);
        let found = Estimate::within(0.02 * length(&truth), estimator, &self.h);
        assert!(found.agrees_with(&truth), "{name}: {found:?}, enumeration {truth:?}");
        assert!(!found.scaled(-1.0).agrees_with(&truth), "{name}: a flipped sign passes");
    }
}

fn problems() -> Vec<Task> {
    // For each K, hidden actions that about half of the slates show: a gradient needs both cases.
    [(1, &[0, 2][..], false), (3, &[3, 4], false), (4, &[1, 3], true)]
        .into_iter()
        .map(|(slate_size, hidden, excludes)| {
            let sessions = sessions(hidden);
            let excluded = excludes.then(|| Arc::clone(&sessions));
            let (beta, h) = (normals(0, P, L), vec![0.45, -0.3, 0.2]);
            Task { beta, h, slate_size, sessions, excluded }
        })
        .collect()
}

#[test]
fn the_score_function_of_plackett_luce_has_the_gradient_of_enumeration() {
    for problem in problems() {
        let (slate_size, sessions) = (problem.slate_size, &problem.sessions);
        let linear: Arc<dyn SlateReward> =
            Arc::new(LinearReward::discounted(slate_size, Arc::clone(sessions)));
        let any_hit: Arc<dyn SlateReward> = Arc::new(AnyHit::new(Arc::clone(sessions)));
        for (reward, num_samples, draws, baseline) in [
            (&any_hit, 16, SlateDraws::PrefixSums, ControlVariate::LeaveOneOut),
            (&linear, 16, SlateDraws::Gumbel, ControlVariate::None),
            (&linear, 1, SlateDraws::PrefixSums, ControlVariate::LeaveOneOut),
        ] {
            let policy = Arc::new(problem.policy(num_samples, draws));
            let estimator = ScoreFunction::new(policy, Arc::clone(reward), baseline);
            let name = format!("K = {slate_size} {reward:?} {draws:?} {baseline:?}");
            problem.check(&name, &estimator, reward.as_ref());
        }
    }
}

#[test]
fn pl_rank_has_the_gradient_of_enumeration() {
    for problem in problems() {
        let rewards = [
            LinearReward::discounted(problem.slate_size, Arc::clone(&problem.sessions)),
            LinearReward::new(vec![0.2, 1.0], Arc::clone(&problem.sessions)),
        ];
        for reward in rewards {
            for num_samples in [1, 16] {
                let policy = problem.policy(num_samples, SlateDraws::PrefixSums);
                let estimator = PlRank::new(policy, &reward).unwrap();
                let name = format!("K = {} S = {num_samples}", problem.slate_size);
                problem.check(&name, &estimator, &reward);
            }
        }
    }
}

#[test]
fn pl_rank_refuses_a_reward_that_is_not_linear_and_says_why() {
    let problem = &problems()[1];
    let policy = problem.policy(2, SlateDraws::PrefixSums);
    let reward = AnyHit::new(Arc::clone(&problem.sessions));
    let error = PlRank::new(policy, &reward).unwrap_err().to_string();
    assert!(error.contains("`reward.kind`") && error.contains("weight"), "{error}");
}
