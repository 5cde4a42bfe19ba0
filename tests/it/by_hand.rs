//! A training run against Algorithm 1 as corrected, written out without any of the machinery: one
//! thread, f64, every action scored and sorted for every sample, Adam by its formulas.

use fast_slate::dataset::Split;
use fast_slate::prepared::Prepared;
use fast_slate::seed::Purpose;
use fast_slate::settings::{Preset, Settings, SettingsBuilder};
use fast_slate::task::Task;
use fast_slate::training::Batches;

use crate::common::{parameters, slate, small, stdout};

const STEPS: u64 = 15;

/// What both are given; ε of Adam is large so that it does not blow up what rounding leaves of a
/// gradient that is zero.
const SETTINGS: [&str; 11] = [
    "method.samples=4",
    "slate_size=4",
    "optimizer.batch_size=16",
    "optimizer.epsilon=0.001",
    "optimizer.learning_rate=0.01",
    "evaluation.count=1",
    "method.kind=lgp",
    "tower.kind=linear",
    "context.folds=0",
    "optimizer.weight_decay=0",
    "method.sigma=relative(0.3)",
];

/// θ `[L, L]` after [`STEPS`] steps.
fn by_hand(prepared: &Prepared, settings: &Settings) -> Vec<f64> {
    let task = Task::load(prepared, settings).unwrap();
    let (samples, slate_size) = (settings.method.recipe().num_samples(), settings.slate_size);
    let (beta, sessions) = (task.actions.beta(), &task.sessions);
    let l = beta.cols();
    let trained_on = sessions.contexts(Split::Train);
    let mut batches = Batches::new(vec![trained_on], settings.optimizer.batch_size, settings.seed);
    let mut theta: Vec<f64> = (0..l * l).map(|at| f64::from(u8::from(at % (l + 1) == 0))).collect();
    let (mut first, mut second) = (vec![0.0; l * l], vec![0.0; l * l]);
    for step in 0..STEPS {
        let batch = batches.at(step, &task.contexts);
        let mut gradient = vec![0.0; l * l];
        for (row, &context) in batch.contexts.iter().enumerate() {
            let x: Vec<f64> = batch.inputs.row(row).iter().map(|x| f64::from(*x)).collect();
            let h: Vec<f64> =
                (0..l).map(|j| (0..l).map(|i| x[i] * theta[i * l + j]).sum()).collect();
            let squared: f64 = h.iter().map(|h| h * h).sum();
            let sigma = 0.3 * squared.sqrt() / (l as f64).sqrt();
            let mut noise = vec![0.0_f32; samples * l];
            settings.seed.stream(Purpose::Noise, step, row as u64).fill_normals(&mut noise);
            let noise: Vec<Vec<f64>> = noise
                .chunks(l)
                .map(|sample| sample.iter().map(|e| f64::from(*e)).collect())
                .collect();
            let rewards: Vec<f64> = noise
                .iter()
                .map(|noise| {
                    let query: Vec<f64> = (0..l).map(|j| h[j] + sigma * noise[j]).collect();
                    let score = |action: u32| -> f64 {
                        let beta = beta.row(action as usize).iter();
                        beta.zip(&query).map(|(beta, query)| f64::from(*beta) * query).sum()
                    };
                    let mut actions: Vec<u32> = (0..beta.rows() as u32)
                        .filter(|action| !sessions.observed.contains(context, *action))
                        .collect();
                    actions.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
                    let hidden = |action: &u32| sessions.hidden.contains(context, *action);
                    let weights = (0..).map(|rank| 0.5_f64.powi(rank));
                    let slate = actions[..slate_size].iter().zip(weights);
                    slate.filter(|(action, _)| hidden(action)).map(|(_, weight)| weight).sum()
                })
                .collect();
            let total: f64 = rewards.iter().sum();
            let mut g = vec![0.0; l];
            for (reward, noise) in rewards.iter().zip(&noise) {
                let others = (total - reward) / (samples - 1) as f64;
                for (g, noise) in g.iter_mut().zip(noise) {
                    *g += (reward - others) * noise / sigma / samples as f64;
                }
            }
            let along: f64 = g.iter().zip(&h).map(|(g, h)| g * h).sum::<f64>() / squared;
            for i in 0..l {
                for j in 0..l {
                    gradient[i * l + j] -=
                        x[i] * (g[j] - along * h[j]) / batch.contexts.len() as f64;
                }
            }
        }
        let optimizer = &settings.optimizer;
        let (beta_1, beta_2) = (f64::from(optimizer.beta_1), f64::from(optimizer.beta_2));
        let rate = optimizer.learning_rate * (1.0 - step as f64 / STEPS as f64);
        let taken = i32::try_from(step + 1).unwrap();
        for at in 0..l * l {
            first[at] = beta_1 * first[at] + (1.0 - beta_1) * gradient[at];
            second[at] = beta_2 * second[at] + (1.0 - beta_2) * gradient[at] * gradient[at];
            let (mean, variance) =
                (first[at] / (1.0 - beta_1.powi(taken)), second[at] / (1.0 - beta_2.powi(taken)));
            theta[at] -= rate * mean / (variance.sqrt() + f64::from(optimizer.epsilon));
        }
    }
    theta
}

#[test]
fn a_run_is_the_algorithm_whatever_finds_its_slates() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let trained = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let mut train = slate();
        train.args(["train", "--steps", &STEPS.to_string(), "--device", "ndarray"]);
        train.arg("--data").arg(prepared.folder()).arg("--out").arg(&out);
        for set in SETTINGS.iter().chain(more) {
            train.args(["--set", set]);
        }
        stdout(&mut train);
        parameters(&prepared, &out)
    };
    // One search for each sample, and one for all of a query among all 300 actions.
    let searched = trained("searched", &["method.candidates=0"]);
    let shared = trained("shared", &["method.candidates=300"]);
    assert!(searched == shared, "the same slates make the same parameters, bit for bit");

    let builder = SettingsBuilder::new(&Preset::Default.settings()).unwrap();
    let builder = builder.set("budget.amount", i64::try_from(STEPS).unwrap()).unwrap();
    let builder = SETTINGS.iter().fold(builder, |builder, set| builder.assignment(set).unwrap());
    let theta = by_hand(&prepared, &builder.build().unwrap());
    let mut moved = 0.0_f64;
    for (at, (found, expected)) in searched[0].iter().zip(&theta).enumerate() {
        let found = f64::from(f32::from_bits(*found));
        let start = f64::from(u8::from(at % 17 == 0));
        assert!((found - expected).abs() < 1e-5, "θ at {at}: {found}, by hand {expected}");
        moved = moved.max((expected - start).abs());
    }
    assert!(moved > 0.02, "θ has moved by {moved} at most: the comparison shows nothing");
}
