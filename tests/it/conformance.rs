//! Every policy draws valid slates and every estimator returns a finite gradient, again and again.

use std::sync::{Arc, Mutex};

use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{
    ControlVariate, Covariance, CovarianceForm, Estimator, Fopo, Gradient, PlRank, ScoreFunction,
};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{
    BatchRows, LatentPerturbation, NoiseKind, PlackettLuce, Radial, RejectionSampler, Sampling,
    Scale, Sigma, SlateDraws, SlatePolicy,
};
use fast_slate::retrieval::Exact;
use fast_slate::reward::{LinearReward, SlateReward};
use fast_slate::seed::{Purpose, Seed};

/// Sessions and queries that every policy and estimator runs on.
struct Setup {
    name: &'static str,
    actions: Arc<ActionEmbeddings>,
    /// One query per context, `[B, L]`.
    h: Matrix,
    sessions: Arc<Sessions>,
    slate_size: usize,
    num_samples: usize,
    excludes: bool,
    /// True if hits earn a reward.
    rewarded: bool,
}

const L: usize = 3;

fn normals(position: u64, rows: usize, scale: f32) -> Matrix {
    let mut matrix = Matrix::zeros(rows, L);
    Seed(2).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
    matrix.as_mut_slice().iter_mut().for_each(|value| *value *= scale);
    matrix
}

impl Setup {
    /// Twelve actions, five users who have each observed two of them and hide four.
    fn ordinary() -> Self {
        Self::of("ordinary", 12, 5)
    }

    fn of(name: &'static str, num_actions: u32, users: u32) -> Self {
        let sets = |first: u32, count: u32| {
            let of =
                move |user| (0..count).map(move |at| (user, (first + user + at) % num_actions));
            ActionSets::from_pairs(users as usize, (0..users).flat_map(of))
        };
        Self {
            name,
            actions: Arc::new(
                ActionEmbeddings::new(normals(0, num_actions as usize, 1.0)).unwrap(),
            ),
            h: normals(1, users as usize, 1.0),
            sessions: Arc::new(Sessions {
                observed: sets(0, 2),
                hidden: sets(2, 4),
                split: vec![Split::Train; users as usize],
                num_actions: num_actions as usize,
            }),
            slate_size: 3,
            num_samples: 4,
            excludes: true,
            rewarded: true,
        }
    }

    fn all() -> Vec<Self> {
        let whole = Self { excludes: false, slate_size: 5, ..Self::of("K = P", 5, 5) };
        let left = Self { slate_size: 10, ..Self::of("K is all that is left", 12, 5) };
        let mut equal = Self::of("equal scores", 12, 5);
        equal.h = Matrix::zeros(5, L);
        let mut extreme = Self::of("scores of ±1e4", 12, 5);
        extreme.h = normals(1, 5, 1e4);
        vec![
            Self::ordinary(),
            whole,
            left,
            Self { slate_size: 1, ..Self::of("K = 1", 12, 5) },
            Self { num_samples: 1, ..Self::of("S = 1", 12, 5) },
            Self::of("one user", 12, 1),
            Self { num_samples: 1, slate_size: 1, ..Self::of("one of everything", 12, 1) },
            Self { rewarded: false, ..Self::of("no reward", 12, 5) },
            equal,
            extreme,
        ]
    }

    fn contexts(&self) -> Vec<u32> {
        (0..self.h.rows() as u32).collect()
    }

    fn sampling(&self, seed: u64) -> Sampling {
        Sampling {
            num_samples: self.num_samples,
            slate_size: self.slate_size,
            excluded: self.excludes.then(|| Arc::clone(&self.sessions)),
            seed: Seed(seed),
        }
    }

    fn latent(&self, noise: NoiseKind, seed: u64) -> LatentPerturbation {
        let norm = self.actions.mean_norm();
        let scale = Scale::new(Sigma::Relative(0.5), Radial::Project, L, norm).unwrap();
        let exact = Arc::new(Exact::new(Arc::clone(&self.actions)));
        LatentPerturbation::new(scale, noise.init(), exact, self.sampling(seed)).unwrap()
    }

    fn plackett_luce(&self, draws: SlateDraws, seed: u64) -> PlackettLuce {
        PlackettLuce::new(Arc::clone(&self.actions), draws, self.sampling(seed)).unwrap()
    }

    fn rejection(&self, seed: u64) -> RejectionSampler {
        let exact = Arc::new(Exact::new(Arc::clone(&self.actions)));
        let (actions, head) = (Arc::clone(&self.actions), self.slate_size + 2);
        RejectionSampler::new(actions, exact, head, self.sampling(seed)).unwrap()
    }

    fn policies(&self, seed: u64) -> Vec<(String, Arc<dyn SlatePolicy>)> {
        let mut policies: Vec<(String, Arc<dyn SlatePolicy>)> = Vec::new();
        for noise in [
            NoiseKind::Gaussian,
            NoiseKind::Laplace,
            NoiseKind::Logistic,
            "student-t(5)".parse().unwrap(),
            NoiseKind::Gumbel,
            NoiseKind::RaisedCosine,
        ] {
            policies.push((noise.to_string(), Arc::new(self.latent(noise, seed))));
        }
        for draws in [SlateDraws::PrefixSums, SlateDraws::Gumbel] {
            let policy = Arc::new(self.plackett_luce(draws, seed));
            policies.push((format!("Plackett–Luce {draws:?}"), policy));
        }
        policies
    }

    fn estimators(&self, seed: u64, recorder: &Arc<Seen>) -> Vec<(String, Box<dyn Estimator>)> {
        let reward: Arc<dyn SlateReward> = Arc::clone(recorder) as _;
        let mut estimators: Vec<(String, Box<dyn Estimator>)> = Vec::new();
        for (name, policy) in self.policies(seed) {
            for baseline in [ControlVariate::None, ControlVariate::LeaveOneOut] {
                let (policy, reward) = (Arc::clone(&policy), Arc::clone(&reward));
                let estimator = ScoreFunction::new(policy, reward, baseline);
                estimators.push((format!("{name} {baseline:?}"), Box::new(estimator)));
            }
        }
        let dense = || self.plackett_luce(SlateDraws::PrefixSums, seed);
        let pl_rank = PlRank::new(dense(), reward.as_ref()).unwrap();
        estimators.push(("PL-Rank".into(), Box::new(pl_rank)));
        for form in [CovarianceForm::Corrected, CovarianceForm::AsPrinted] {
            if form == CovarianceForm::AsPrinted && self.num_samples == 1 {
                continue;
            }
            let estimator = Covariance::new(form, dense(), Arc::clone(&reward)).unwrap();
            estimators.push((format!("{form:?} dense"), Box::new(estimator)));
            let rejection = self.rejection(seed);
            let estimator = Covariance::new(form, rejection, Arc::clone(&reward)).unwrap();
            estimators.push((format!("{form:?} rejection"), Box::new(estimator)));
        }
        if self.slate_size == 1 && self.num_samples > 1 {
            let exact = Arc::new(Exact::new(Arc::clone(&self.actions)));
            let (actions, sampling) = (Arc::clone(&self.actions), self.sampling(seed));
            let estimator = Fopo::new(actions, exact, reward, 4, 0.5, sampling).unwrap();
            estimators.push(("FOPO".into(), Box::new(estimator)));
        }
        estimators
    }
}

/// A linear reward that records the slates it sees.
#[derive(Debug)]
struct Seen {
    reward: LinearReward,
    slates: Mutex<Vec<(u32, Vec<u32>)>>,
}

impl Seen {
    fn new(setup: &Setup) -> Arc<Self> {
        let weight = if setup.rewarded { 1.0 } else { 0.0 };
        let weights = (0..setup.slate_size).map(|rank| weight / (rank + 1) as f32).collect();
        let reward = LinearReward::new(weights, Arc::clone(&setup.sessions));
        Arc::new(Self { reward, slates: Mutex::default() })
    }
}

impl SlateReward for Seen {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        self.slates.lock().unwrap().push((context, slate.to_vec()));
        self.reward.reward(context, slate)
    }

    fn as_linear(&self) -> Option<&LinearReward> {
        Some(&self.reward)
    }
}

fn assert_valid(setup: &Setup, context: u32, slate: &[u32], who: &str) {
    let name = setup.name;
    assert_eq!(slate.len(), setup.slate_size, "{name}: {who}");
    let mut sorted = slate.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), slate.len(), "{name}: {who} repeats itself: {slate:?}");
    let observed = setup.sessions.observed.of(context);
    let allowed = |action: &u32| {
        (*action as usize) < setup.sessions.num_actions
            && !(setup.excludes && observed.contains(action))
    };
    assert!(slate.iter().all(allowed), "{name}: {who} shows {slate:?}, observed {observed:?}");
}

#[test]
fn every_policy_draws_valid_slates_and_draws_them_again() {
    for setup in Setup::all() {
        let contexts = setup.contexts();
        let rows = |step| BatchRows { step, contexts: &contexts, h: &setup.h };
        for ((who, policy), (_, other)) in setup.policies(7).into_iter().zip(setup.policies(8)) {
            let drawn = policy.sample(rows(3)).unwrap();
            assert_eq!(drawn.slates.len(), contexts.len() * setup.num_samples);
            for at in 0..drawn.slates.len() {
                let context = contexts[at / setup.num_samples];
                assert_valid(&setup, context, drawn.slates.slate(at), &who);
            }
            assert_eq!((drawn.scores.rows(), drawn.scores.cols()), (drawn.slates.len(), L));
            let finite = drawn.scores.as_slice().iter().all(|score| score.is_finite());
            assert!(finite, "{}: {who} has a score that is not finite", setup.name);

            let again = policy.sample(rows(3)).unwrap();
            assert_eq!((&again.slates, &again.scores), (&drawn.slates, &drawn.scores), "{who}");
            if setup.name == "ordinary" {
                assert_ne!(policy.sample(rows(4)).unwrap().slates, drawn.slates, "{who}");
                assert_ne!(other.sample(rows(3)).unwrap().slates, drawn.slates, "{who}");
            }
        }
        let (slates, _) = setup.rejection(7).sample(rows(3)).unwrap();
        for at in 0..slates.len() {
            let context = contexts[at / setup.num_samples];
            assert_valid(&setup, context, slates.slate(at), "rejection");
        }
        assert_eq!(setup.rejection(7).sample(rows(3)).unwrap().0, slates);
    }
}

#[test]
fn every_estimator_is_finite_and_repeats_itself() {
    for setup in Setup::all() {
        let (seen, contexts) = (Seen::new(&setup), setup.contexts());
        let rows = BatchRows { step: 3, contexts: &contexts, h: &setup.h };
        for (who, estimator) in setup.estimators(7, &seen) {
            let name = format!("{}: {who}", setup.name);
            let users = setup.h.rows();
            let found = estimator.gradient(rows).unwrap();
            assert_eq!(estimator.gradient(rows).unwrap(), found, "{name} does not repeat itself");
            let Gradient { h: g, rewards, .. } = found;
            assert_eq!(rewards.len(), users * setup.num_samples, "{name}");
            assert_eq!((g.rows(), g.cols()), (users, L), "{name}");
            assert!(g.as_slice().iter().all(|g| g.is_finite()), "{name}: {g:?}");
            if !setup.rewarded {
                assert!(rewards.iter().all(|reward| *reward == 0.0), "{name}");
                assert!(g.as_slice().iter().all(|g| *g == 0.0), "{name}: {g:?}");
            }
            if setup.name == "ordinary" {
                assert!(g.as_slice().iter().any(|g| *g != 0.0), "{name}");
            }
            for (context, slate) in seen.slates.lock().unwrap().drain(..) {
                assert_valid(&setup, context, &slate, &who);
            }
        }
    }
}

#[test]
fn every_policy_says_what_is_wrong_with_a_query() {
    let setup = Setup::ordinary();
    let contexts = setup.contexts();
    for (who, policy) in setup.policies(7) {
        let mut h = setup.h.clone();
        h.row_mut(2)[1] = f32::NAN;
        let rows = BatchRows { step: 0, contexts: &contexts, h: &h };
        let error = policy.sample(rows).unwrap_err().to_string();
        assert!(error.contains("query"), "{who}: {error}");
    }
    let large = Setup { slate_size: 11, ..Setup::of("too large", 12, 5) };
    let rows = BatchRows { step: 0, contexts: &contexts, h: &large.h };
    for (who, policy) in large.policies(7) {
        let error = policy.sample(rows).unwrap_err().to_string();
        assert!(error.contains("only 10 can be chosen"), "{who}: {error}");
    }
}
