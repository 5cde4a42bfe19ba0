//! The covariance gradient and FOPO against enumeration of every slate.

use std::sync::Arc;

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{BatchRows, Covariance, CovarianceForm, Draws, Estimator, Fopo};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{PlackettLuce, RejectionSampler, Sampling, SlateDraws};
use fast_slate::retrieval::Exact;
use fast_slate::reward::{AnyHit, LinearReward, SlateReward};
use fast_slate::seed::{Purpose, Seed};
use serde::Deserialize;

use crate::common::enumeration::{Enumeration, latent};
use crate::common::gold;
use crate::common::monte_carlo::{Estimate, length};

/// Actions, a query, and the reward of context 0.
#[derive(Debug)]
struct Case {
    actions: Arc<ActionEmbeddings>,
    h: Vec<f32>,
    sessions: Arc<Sessions>,
    slate_size: usize,
    reward: Arc<dyn SlateReward>,
}

impl Case {
    /// Standard normal β `[P, L]` and h `[L]`.
    fn random(num_actions: usize, latent_dim: usize, observed: &[u32], hidden: &[u32]) -> Self {
        let mut normals = Matrix::zeros(num_actions + 1, latent_dim);
        Seed(5).stream(Purpose::Synthetic, 0, 0).fill_normals(normals.as_mut_slice());
        let h = normals.row(num_actions).to_vec();
        let mut beta = normals.into_vec();
        beta.truncate(num_actions * latent_dim);
        Self::new(Matrix::new(beta, latent_dim).unwrap(), h, observed, hidden)
    }

    /// β = I, so that h is the scores and g their gradient.
    fn of_scores(scores: &[f64], hidden: &[u32]) -> Self {
        let mut beta = Matrix::zeros(scores.len(), scores.len());
        (0..scores.len()).for_each(|action| beta.row_mut(action)[action] = 1.0);
        Self::new(beta, scores.iter().map(|score| *score as f32).collect(), &[], hidden)
    }

    fn new(beta: Matrix, h: Vec<f32>, observed: &[u32], hidden: &[u32]) -> Self {
        let set = |actions: &[u32]| ActionSets::from_pairs(1, actions.iter().map(|a| (0, *a)));
        let sessions = Arc::new(Sessions {
            observed: set(observed),
            hidden: set(hidden),
            split: vec![Split::Train],
            num_actions: beta.rows(),
        });
        let reward = Arc::new(LinearReward::discounted(1, sessions.clone()));
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        Self { actions, h, sessions, slate_size: 1, reward }
    }

    /// Slates of K actions with the paper's reward.
    fn discounted(self, slate_size: usize) -> Self {
        let reward = Arc::new(LinearReward::discounted(slate_size, self.sessions.clone()));
        Self { slate_size, reward, ..self }
    }

    /// Slates of K actions with a reward that no linear one equals.
    fn any_hit(self, slate_size: usize) -> Self {
        let reward = Arc::new(AnyHit::new(self.sessions.clone()));
        Self { slate_size, reward, ..self }
    }

    fn enumeration(&self) -> Enumeration {
        let excluded = self.sessions.observed.of(0);
        Enumeration::of_query(&self.h, self.actions.beta(), self.slate_size, excluded)
    }

    fn reward(&self, slate: &[u32]) -> f64 {
        self.reward.reward(0, slate).into()
    }

    /// ∂R̂/∂h, `[L]`.
    fn gradient(&self) -> Vec<f64> {
        latent(self.actions.beta(), &self.enumeration().gradient(|slate| self.reward(slate)))
    }

    /// Equation 8 as printed, `[L]`.
    fn printed(&self) -> Vec<f64> {
        let covariance = self.enumeration().printed_covariance(|slate| self.reward(slate));
        latent(self.actions.beta(), &covariance)
    }

    fn sampling(&self, num_samples: usize) -> Sampling {
        let excluded = Some(self.sessions.clone());
        Sampling { num_samples, slate_size: self.slate_size, excluded, seed: Seed(7) }
    }

    fn dense(&self, num_samples: usize) -> Draws {
        self.dense_by(SlateDraws::PrefixSums, num_samples)
    }

    fn dense_by(&self, draws: SlateDraws, num_samples: usize) -> Draws {
        let sampling = self.sampling(num_samples);
        PlackettLuce::new(self.actions.clone(), draws, sampling).unwrap().into()
    }

    fn rejection(&self, num_samples: usize, head: usize) -> Draws {
        let retriever = Arc::new(Exact::new(self.actions.clone()));
        let sampling = self.sampling(num_samples);
        RejectionSampler::new(self.actions.clone(), retriever, head, sampling).unwrap().into()
    }

    fn covariance(&self, form: CovarianceForm, draws: Draws) -> Covariance {
        Covariance::new(form, draws, self.reward.clone()).unwrap()
    }

    fn fopo(
        &self,
        head: usize,
        uniform_share: f64,
        num_samples: usize,
    ) -> fast_slate::Result<Fopo> {
        let retriever = Arc::new(Exact::new(self.actions.clone()));
        Fopo::new(
            self.actions.clone(),
            retriever,
            self.reward.clone(),
            head,
            uniform_share,
            self.sampling(num_samples),
        )
    }

    /// The mean of an estimator, 4 standard errors being at most 2 % of the gradient.
    fn estimate(&self, estimator: &dyn Estimator) -> Estimate {
        Estimate::within(0.02 * length(&self.gradient()), estimator, &self.h)
    }
}

/// One of the cases whose gradients were computed elsewhere.
#[derive(Debug, Deserialize)]
struct Gold {
    scores: Vec<f64>,
    relevance: Vec<f64>,
    rank_weights: Vec<f64>,
    exact_gradient_linear_reward: Vec<f64>,
    exact_gradient_any_hit_reward: Vec<f64>,
    printed_covariance_linear_reward: Vec<f64>,
}

impl Gold {
    /// The cases that have every gradient.
    fn read() -> Vec<Self> {
        let cases: Vec<serde_json::Value> = gold("plackett_luce.json");
        let whole: Vec<Self> =
            cases.iter().filter_map(|case| Self::deserialize(case).ok()).collect();
        assert!(cases.is_empty() || !whole.is_empty());
        whole
    }

    fn case(&self) -> Case {
        let relevant = (0_u32..).zip(&self.relevance).filter(|(_, rho)| **rho > 0.0);
        let hidden: Vec<u32> = relevant.map(|(action, _)| action).collect();
        let case = Case::of_scores(&self.scores, &hidden);
        let weights: Vec<f32> = self.rank_weights.iter().map(|weight| *weight as f32).collect();
        let slate_size = weights.len();
        let reward = Arc::new(LinearReward::new(weights, case.sessions.clone()));
        Case { slate_size, reward, ..case }
    }
}

#[test]
fn enumeration_has_the_gradients_of_the_gold_cases() {
    let close = |found: &[f64], gold: &[f64]| {
        let difference: Vec<f64> = found.iter().zip(gold).map(|(f, g)| f - g).collect();
        length(&difference) <= 1e-12 * length(gold)
    };
    for gold in Gold::read() {
        let case = gold.case();
        // In f64: a query is f32, and so would the scores be.
        let enumeration = Enumeration::new(&gold.scores, case.slate_size, &[]);
        let linear = |slate: &[u32]| case.reward(slate);
        let any_hit = |slate: &[u32]| AnyHit::new(case.sessions.clone()).reward(0, slate).into();
        assert!(close(&enumeration.gradient(linear), &gold.exact_gradient_linear_reward));
        assert!(close(&enumeration.gradient(any_hit), &gold.exact_gradient_any_hit_reward));
        let printed = enumeration.printed_covariance(linear);
        assert!(close(&printed, &gold.printed_covariance_linear_reward));
    }
}

#[test]
fn the_corrected_form_has_the_gradient_of_enumeration() {
    let cases = [
        (8, Case::random(7, 3, &[], &[1, 4]).discounted(3)),
        (1, Case::random(7, 3, &[2, 6], &[1, 4]).discounted(3)),
        (8, Case::random(6, 3, &[], &[0, 3]).any_hit(4)),
        (2, Case::of_scores(&[0.3, 1.9, -1.2, 0.8, 2.6], &[0, 3]).any_hit(2)),
    ];
    for (num_samples, case) in cases {
        let truth = case.gradient();
        let gumbel = case.dense_by(SlateDraws::Gumbel, num_samples);
        for draws in [case.dense(num_samples), gumbel, case.rejection(num_samples, 4)] {
            let found = case.estimate(&case.covariance(CovarianceForm::Corrected, draws));
            assert!(found.agrees_with(&truth), "{case:?}: {found:?}, enumeration {truth:?}");
            assert!(!found.scaled(-1.0).agrees_with(&truth), "a flipped sign passes");
            assert!(!found.scaled(2.0).agrees_with(&truth), "a missing half passes");
        }
    }
}

#[test]
fn slates_are_drawn_the_way_that_was_asked_for() {
    let case = Case::random(40, 3, &[], &[1, 4, 17]).any_hit(3);
    let h = Matrix::new(case.h.repeat(20), 3).unwrap();
    let gradient = |draws| {
        let covariance = case.covariance(CovarianceForm::Corrected, case.dense_by(draws, 4));
        let rows = BatchRows { step: 0, contexts: &[0; 20], h: &h };
        covariance.gradient(rows).unwrap().h.into_vec()
    };
    assert_eq!(gradient(SlateDraws::Gumbel), gradient(SlateDraws::Gumbel));
    assert_ne!(gradient(SlateDraws::Gumbel), gradient(SlateDraws::PrefixSums));
}

#[test]
fn the_printed_form_is_right_for_one_action_and_off_for_more() {
    let own = [1, 3].map(|k| Case::random(7, 3, &[], &[1, 4]).discounted(k));
    for case in own.into_iter().chain(Gold::read().iter().map(Gold::case)) {
        let truth = case.gradient();
        for draws in [case.dense(8), case.rejection(8, case.slate_size)] {
            let found = case.estimate(&case.covariance(CovarianceForm::AsPrinted, draws));
            assert!(found.agrees_with(&case.printed()), "{case:?}: {found:?}");
            assert_eq!(found.agrees_with(&truth), case.slate_size == 1, "{case:?}: {found:?}");
        }
    }
}

#[test]
fn the_bias_of_fopo_falls_with_the_number_of_samples() {
    // A peaked softmax, of which the uniform distribution knows nothing.
    let scores: Vec<f64> =
        (0..20).map(|at| if at < 4 { 4.0 + 0.3 * f64::from(at) } else { 0.0 }).collect();
    let case = Case::of_scores(&scores, &[1, 7, 8]);
    let truth = case.gradient();
    let bias = |num_samples| {
        let fopo = case.fopo(1, 1.0, num_samples).unwrap();
        let found = Estimate::within(0.04 * length(&truth), &fopo, &case.h);
        (found.distance(&truth), 4.0 * found.error)
    };
    let ((few, few_error), (many, many_error)) = (bias(4), bias(64));
    assert!(few - few_error > 0.2 * length(&truth), "{few} ± {few_error} is no bias to speak of");
    assert!(
        many + many_error <= (few - few_error) / 4.0,
        "{few} ± {few_error}, {many} ± {many_error}"
    );
}

#[test]
fn fopo_with_the_softmax_as_its_proposal_is_off_by_the_mean_alone() {
    // Equal weights: the plain sample covariance, divided by S instead of S − 1.
    let case = Case::random(7, 3, &[2, 6], &[1, 4]);
    let truth = case.gradient();
    let found = case.estimate(&case.fopo(7, 1e-9, 4).unwrap());
    assert!(found.scaled(4.0 / 3.0).agrees_with(&truth), "{found:?}, {truth:?}");
    assert!(!found.agrees_with(&truth), "a bias of a quarter passes");
}

#[test]
fn fopo_estimates_the_reward_and_the_gradient_of_the_softmax_without_the_excluded() {
    let case = Case::random(9, 3, &[2, 6], &[1, 4]);
    let truth = case.gradient();
    for (head, uniform_share) in [(1, 1.0), (2, 0.5), (9, 0.1)] {
        let fopo = case.fopo(head, uniform_share, 1000).unwrap();
        let found = Estimate::within(0.02 * length(&truth), &fopo, &case.h);
        assert!(found.distance(&truth) <= 0.03 * length(&truth), "{found:?}, {truth:?}");

        let h = Matrix::new(case.h.repeat(50), 3).unwrap();
        let contexts = [0; 50];
        let rows = BatchRows { step: 0, contexts: &contexts, h: &h };
        let rewards = fopo.gradient(rows).unwrap().rewards;
        let reward = f64::from(rewards.iter().sum::<f32>()) / rewards.len() as f64;
        let expected = case.enumeration().expected(|slate| case.reward(slate));
        assert!((reward - expected).abs() < 0.02 * expected, "{reward}, {expected}");
    }
}

#[test]
fn what_would_be_biased_or_undefined_is_refused_with_the_reason() {
    let case = Case::random(7, 3, &[], &[1, 4]).discounted(3);
    let printed = CovarianceForm::AsPrinted;
    let one = Covariance::new(printed, case.rejection(1, 4), case.reward.clone()).unwrap_err();
    assert!(one.to_string().contains("`method.samples`: the covariance as printed"), "{one}");
    let single = Case::random(7, 3, &[], &[1, 4]).fopo(4, 0.5, 1).unwrap_err().to_string();
    assert!(single.contains("`method.samples`: FOPO takes a covariance over samples"), "{single}");
    let slate = case.fopo(4, 0.5, 8).unwrap_err();
    assert!(slate.to_string().contains("`slate_size`: FOPO weighs single"), "{slate}");
    let single = Case::random(7, 3, &[], &[1, 4]);
    for share in [0.0, -0.5, 1.5, f64::NAN] {
        let error = single.fopo(4, share, 8).unwrap_err().to_string();
        assert!(error.contains("`method.uniform_share`: expected a number above 0"), "{error}");
    }
    let empty = single.fopo(0, 0.5, 8).unwrap_err();
    assert!(empty.to_string().contains("`method.head`: expected at least"), "{empty}");
}
