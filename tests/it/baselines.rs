//! Each baseline against a slow obvious version of it, through what it scores all actions with; and
//! what all of them have in common.

use std::time::Duration;

use faer::Mat;
use faer::linalg::solvers::DenseSolveCore as _;
use fast_slate::baseline::{Asked, Baseline, Fitter};
use fast_slate::dataset::{ActionSets, Sessions, Split, SyntheticSettings};
use fast_slate::embedding::{SessionPart, implicit_als, training_matrix};
use fast_slate::evaluation::{Evaluation, Panel};
use fast_slate::experiment::TunedBaseline;
use fast_slate::prepared::{Input, Prepared};
use fast_slate::retrieval::Slates;
use fast_slate::seed::{Purpose, Seed};
use fast_slate::settings::Preset;
use fast_slate::task::Task;

use crate::common::{small, svd};

/// Contexts of two tastes; every fourth is of the validation split. Nobody does anything with the
/// last action.
fn sessions(contexts: u32, actions: u32) -> Sessions {
    let drawn = |part: u64| {
        let pairs = (0..contexts).flat_map(|context| {
            let mut stream = Seed(7).stream(Purpose::Synthetic, part, context.into());
            let taste = context % 2;
            (0..actions - 1)
                .filter(move |action| {
                    let likes = if action % 2 == taste { 0.5 } else { 0.1 };
                    u64::from(action / 2 % 2) == part && stream.uniform() < likes
                })
                .map(move |action| (context, action))
                .collect::<Vec<_>>()
        });
        ActionSets::from_pairs(contexts as usize, pairs.collect::<Vec<_>>().into_iter())
    };
    let split = |context| if context % 4 == 3 { Split::Validation } else { Split::Train };
    Sessions {
        observed: drawn(0),
        hidden: drawn(1),
        split: (0..contexts).map(split).collect(),
        num_actions: actions as usize,
    }
}

fn slates(sessions: &Sessions, baseline: Baseline, slate_size: usize, exclude: bool) -> Slates {
    let contexts: Vec<u32> = sessions.observed.contexts().collect();
    let asked = Asked {
        observed: &sessions.observed,
        contexts: &contexts,
        slate_size,
        exclude_observed: exclude,
    };
    let mut fitter = Fitter::new(sessions, Seed(1));
    fitter.fit(fitter.limited(baseline)).unwrap().slates(asked).unwrap()
}

/// Asserts that the scores of all actions are `expected`'s, `[contexts, P]`, up to a factor of each
/// context's, and that they fall.
fn assert_scores(sessions: &Sessions, baseline: Baseline, expected: &Mat<f64>) {
    assert_scores_within(sessions, baseline, expected, 1e-4);
}

fn assert_scores_within(sessions: &Sessions, baseline: Baseline, expected: &Mat<f64>, within: f64) {
    let found = slates(sessions, baseline, sessions.num_actions, false);
    for at in 0..found.len() {
        let ranked = || found.slate(at).iter().zip(found.scores(at));
        let falls =
            |(a, x): (&u32, &f32), (b, y): (&u32, &f32)| y.total_cmp(x).then(a.cmp(b)).is_lt();
        assert!(ranked().zip(ranked().skip(1)).all(|(one, next)| falls(one, next)));
        let largest = (0..expected.ncols()).map(|a| expected[(at, a)]).fold(0.0, f64::max);
        let factor = if largest > 0.0 { f64::from(found.scores(at)[0]) / largest } else { 1.0 };
        for (action, score) in ranked() {
            let (score, expected) = (f64::from(*score), factor * expected[(at, *action as usize)]);
            let off = score - expected;
            assert!(off.abs() < within, "{baseline:?}, {at}: {action} is off by {off}");
        }
    }
}

fn dense(sets: &ActionSets, actions: usize) -> Mat<f64> {
    Mat::from_fn(sets.len(), actions, |row, action| {
        let is_in = sets.contains(u32::try_from(row).unwrap(), u32::try_from(action).unwrap());
        f64::from(u8::from(is_in))
    })
}

fn of_training(sessions: &Sessions) -> Mat<f64> {
    dense(&training_matrix(sessions, SessionPart::All), sessions.num_actions)
}

/// With fewer training contexts than actions, as many, and more.
const SHAPES: [(u32, u32); 3] = [(24, 40), (40, 30), (300, 20)];

#[test]
fn ease_is_the_dense_closed_form() {
    for (contexts, actions) in SHAPES {
        let sessions = sessions(contexts, actions);
        let a = of_training(&sessions);
        for ridge in [0.5_f32, 20.0] {
            let count = sessions.num_actions;
            let ridges = Mat::<f64>::identity(count, count) * faer::Scale(f64::from(ridge));
            let p = (a.transpose() * &a + ridges).partial_piv_lu().inverse();
            let b = Mat::from_fn(
                count,
                count,
                |i, j| {
                    if i == j { 0.0 } else { -p[(i, j)] / p[(j, j)] }
                },
            );
            let expected = dense(&sessions.observed, count) * b;
            assert_scores(&sessions, Baseline::Ease { ridge }, &expected);
        }
    }
}

#[test]
fn neighbours_are_those_of_brute_force() {
    let sessions = sessions(60, 30);
    let a = of_training(&sessions);
    let shared = a.transpose() * &a;
    let (count, shrinkage) = (sessions.num_actions, 2.5_f32);
    for neighbours in [1, 4, 1000] {
        let mut similar = Mat::zeros(count, count);
        for i in 0..count {
            let of = |j: usize| {
                let norms = (shared[(i, i)] * shared[(j, j)]).sqrt();
                shared[(i, j)] / (norms + f64::from(shrinkage))
            };
            let mut others: Vec<usize> = (0..count).filter(|j| *j != i).collect();
            others.sort_by(|a, b| of(*b).partial_cmp(&of(*a)).unwrap().then(a.cmp(b)));
            others.iter().take(neighbours).for_each(|&j| similar[(i, j)] = of(j));
        }
        let expected = dense(&sessions.observed, count) * similar;
        assert_scores(&sessions, Baseline::ItemKnn { neighbours, shrinkage }, &expected);
    }
}

#[test]
fn pure_svd_scores_with_the_right_singular_vectors_of_a_itself() {
    for (contexts, actions) in SHAPES {
        let sessions = sessions(contexts, actions);
        let svd = of_training(&sessions).thin_svd().unwrap();
        // Rounding in f32, 1e-5 of the largest squared singular value, turns a subspace by its share
        // of the gap behind the last one (Davis & Kahan, 1970): the widest gap is looked at.
        let square = |i: usize| svd.S().column_vector()[i].powi(2);
        let gap = |l: usize| square(l - 1) - square(l);
        let latent_dim = (3..10).max_by(|a, b| gap(*a).total_cmp(&gap(*b))).unwrap();
        let within = 1e-5 * square(0) / gap(latent_dim);
        let v = svd.V().subcols(0, latent_dim);
        let expected = dense(&sessions.observed, sessions.num_actions) * v * v.transpose();
        assert_scores_within(&sessions, Baseline::Svd { latent_dim }, &expected, within.max(1e-4));
    }
}

#[test]
fn als_scores_with_the_weighted_ridge_regression_of_a_user() {
    let sessions = sessions(60, 30);
    let options = fast_slate::embedding::AlsOptions { latent_dim: 4, ..Default::default() };
    let training = training_matrix(&sessions, SessionPart::All);
    let beta = implicit_als(&training, 30, options, Seed(1)).unwrap().v;
    let beta = Mat::from_fn(30, 4, |i, j| f64::from(beta.row(i)[j]));
    let mut expected = Mat::zeros(60, 30);
    for context in 0..60 {
        let x = sessions.observed.of(context);
        let weight =
            |a: usize| if x.contains(&(a as u32)) { 1.0 + options.confidence } else { 1.0 };
        let weighted = Mat::from_fn(30, 4, |a, l| weight(a) * beta[(a, l)]);
        let ridges = Mat::<f64>::identity(4, 4) * faer::Scale(options.regularization);
        let normal = (weighted.transpose() * &beta + ridges).partial_piv_lu().inverse();
        let target = Mat::from_fn(30, 1, |a, _| f64::from(u8::from(x.contains(&(a as u32)))));
        let scores = &beta * (normal * (weighted.transpose() * target));
        (0..30).for_each(|a| expected[(context as usize, a)] = scores[(a, 0)]);
    }
    assert_scores(&sessions, Baseline::Als(options), &expected);
}

#[test]
fn popularity_counts_training_contexts() {
    let sessions = sessions(60, 30);
    let a = of_training(&sessions);
    let counts = Mat::from_fn(60, 30, |_, action| a.col(action).iter().sum());
    assert_scores(&sessions, Baseline::Popularity, &counts);
}

#[test]
fn nothing_observed_is_shown_on_any_number_of_threads() {
    let sessions = sessions(150, 40);
    let most = sessions.observed.contexts().map(|c| sessions.observed.of(c).len()).max().unwrap();
    for baseline in Baseline::all() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| slates(&sessions, baseline, 40 - most, true))
        };
        let one = run(1);
        for context in sessions.observed.contexts() {
            let mut slate = one.slate(context as usize).to_vec();
            slate.sort_unstable();
            slate.dedup();
            assert_eq!(slate.len(), 40 - most, "{baseline:?} repeats itself");
            let shown = |action| slate.contains(action);
            assert!(!sessions.observed.of(context).iter().any(shown), "{baseline:?}");
        }
        assert_eq!(one, run(3), "{baseline:?}");
        let mut fitter = Fitter::new(&sessions, Seed(1));
        let asked = Asked {
            observed: &sessions.observed,
            contexts: &[0],
            slate_size: 41,
            exclude_observed: false,
        };
        let error =
            fitter.fit(fitter.limited(baseline)).unwrap().slates(asked).unwrap_err().to_string();
        assert!(error.contains("41") && error.contains("40"), "{baseline:?}: {error}");
    }
}

#[test]
fn who_did_nothing_is_shown_what_is_popular() {
    let mut sessions = sessions(60, 30);
    sessions.observed = ActionSets::from_pairs(60, std::iter::empty());
    for baseline in Baseline::all() {
        if !matches!(baseline, Baseline::Uniform | Baseline::Popularity) {
            let slates = slates(&sessions, baseline, 3, true);
            assert_eq!(slates.slate(0), [0, 1, 2], "{baseline:?}");
        }
    }
}

#[test]
fn ease_is_refused_beyond_the_memory_there_is() {
    let count = 2_000_000_u32;
    let sets = || ActionSets::from_pairs(count as usize, (0..count).map(|at| (at, at)));
    let sessions = Sessions {
        observed: sets(),
        hidden: ActionSets::from_pairs(count as usize, std::iter::empty()),
        split: vec![Split::Train; count as usize],
        num_actions: count as usize,
    };
    let mut fitter = Fitter::new(&sessions, Seed(0));
    let error = fitter.fit(Baseline::Ease { ridge: 1.0 }).unwrap_err().to_string();
    assert!(error.contains("2000000 actions") && error.contains("48000.0 GB of memory"), "{error}");
    assert!(fitter.fit(Baseline::Popularity).is_ok());
}

#[test]
fn impossible_hyperparameters_are_refused() {
    let mut fitter = Fitter::new(&sessions(20, 20), Seed(0));
    for (baseline, said) in [
        (Baseline::Ease { ridge: 0.0 }, "ease.ridge"),
        (Baseline::Ease { ridge: f32::NAN }, "ease.ridge"),
        (Baseline::ItemKnn { neighbours: 0, shrinkage: 1.0 }, "item-knn.neighbours"),
        (Baseline::ItemKnn { neighbours: 1, shrinkage: -1.0 }, "item-knn.shrinkage"),
    ] {
        let error = fitter.fit(baseline).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn tuning_keeps_what_earns_most_and_without_time_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let task = Task::load(&prepared, &Preset::Default.settings()).unwrap();
    let validation = task.sessions.contexts(Split::Validation);
    let panel = Panel::new(&task, Split::Validation, validation.clone());
    // Between two of the values worth trying, and too much.
    let first = Baseline::Ease { ridge: 4321.0 };
    let tuned = |budget| TunedBaseline::new(&panel, first, budget, Seed(0)).unwrap();
    let none = tuned(Duration::ZERO);
    assert_eq!((none.baseline, none.tried.len()), (first, 0));

    let short = tuned(Duration::from_nanos(1));
    assert_eq!((short.baseline, short.tried.len()), (first, 1));

    let long = tuned(Duration::from_mins(5));
    assert_eq!(long.tried.len(), 10, "each value once, and the first");
    assert_eq!(long.tried[0].settings, first);
    let best = long.tried.iter().filter_map(|trial| trial.reward).fold(0.0, f64::max);
    let slates = |block: &[u32]| long.fitted.slates(Asked::of(&task, block));
    let evaluation = Evaluation::by(&task, &validation, slates).unwrap();
    assert!((evaluation.mean() - best).abs() < 1e-12);
    assert!(best > long.tried[0].reward.unwrap(), "the test needs something to find");
}

#[test]
fn settings_without_others_to_try_count_as_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let few = SyntheticSettings { users: 24, actions: 300, ..SyntheticSettings::default() };
    let prepared =
        Prepared::create(&Input::Synthetic(few), &svd(4), &folder.path().join("data"), false)
            .unwrap();
    let task = Task::load(&prepared, &Preset::Default.settings()).unwrap();
    let validation = task.sessions.contexts(Split::Validation);
    let panel = Panel::new(&task, Split::Validation, validation);
    let tuned = |first| TunedBaseline::new(&panel, first, Duration::from_mins(1), Seed(0)).unwrap();
    // Shorter than all lengths worth trying, as few users allow no other.
    let svd = tuned(Baseline::Svd { latent_dim: 100 });
    assert!(matches!(svd.baseline, Baseline::Svd { latent_dim: 1..25 }), "{:?}", svd.baseline);
    assert_eq!(svd.tried.len(), 1);
    assert!(tuned(Baseline::Popularity).tried.is_empty());
}
