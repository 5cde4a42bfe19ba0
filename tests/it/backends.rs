//! Every compiled backend trains on the built-in sessions: all arrive at the same θ from the paper's
//! start, and all learn, with every tower.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::matrix::Matrix;
use fast_slate::method::{Method, PlPgMethod, PlRankMethod};
use fast_slate::prepared::{Input, Prepared};
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::{Preset, Settings};
use fast_slate::task::Task;
use fast_slate::tower::{Tower, TowerKind, to_host};
use fast_slate::training::{Ending, MetricsRow, Outcome, Trainer, read_metrics};

use crate::common::{devices, skipped, svd};

/// Trains with `settings` on `device`, stopped after the first step and gone on with; returns the outcome and the
/// validation rewards.
fn train(
    prepared: &Prepared,
    settings: &Settings,
    device: &str,
    out: &Path,
) -> (Outcome, Vec<f64>) {
    let chosen = device::choose(Some(device)).unwrap();
    let task = Task::load(prepared, settings).unwrap().on(&chosen).unwrap();
    let run = RunFolder::new(out);
    run.begin(settings, &RunOrigin::new(prepared, chosen.name)).unwrap();
    let trainer = Trainer::new(&task, settings, &run, &chosen.device);
    let stopped = Trainer { stop: &AtomicBool::new(true), ..trainer }.train(&mut ()).unwrap();
    assert_eq!((stopped.ending, stopped.step), (Ending::Interrupted, 1));
    let outcome = trainer.train(&mut ()).unwrap();
    let rewards =
        read_metrics(&run.metrics_path()).unwrap().into_iter().filter_map(|row| match row {
            MetricsRow::Evaluation { split: Split::Validation, reward, .. } => Some(reward),
            _ => None,
        });
    (outcome, rewards.collect())
}

fn with_steps(mut settings: Settings, steps: u64) -> Settings {
    settings.budget.amount = steps;
    settings.evaluation.count = 5;
    settings
}

fn prepared(folder: &Path) -> Prepared {
    let input = Input::Synthetic(SyntheticSettings::default());
    Prepared::create(&input, &svd(100), &folder.join("data"), false).unwrap()
}

/// Trains on every backend, from the same start to the same θ.
fn all_arrive_at_the_same(prepared: &Prepared, settings: &Settings, out: &Path) {
    let mut reference: Option<(&str, Matrix)> = None;
    for device in devices() {
        let (outcome, _) = train(prepared, settings, device, &out.with_extension(device));
        let Some(Tower::Linear(tower)) = &outcome.model.tower else {
            panic!("the preset's tower is linear")
        };
        let theta = to_host(tower.theta.val()).unwrap();
        let (first, expected) = reference.get_or_insert_with(|| (device, theta.clone()));
        let distance = |a: &Matrix, b: &Matrix| -> f64 {
            let squares = a.as_slice().iter().zip(b.as_slice());
            squares.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
        };
        let size = distance(expected, &Matrix::zeros(expected.rows(), expected.cols()));
        let off = distance(&theta, expected) / size;
        assert!(off < 1e-3, "{device} is off {first} by {off}");
    }
}

#[test]
fn all_backends_take_the_same_path_with_plackett_luce() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = prepared(folder.path());
    for method in [Method::PlPg(PlPgMethod::default()), Method::PlRank(PlRankMethod::default())] {
        let mut settings = with_steps(Preset::Paper.settings(), 10);
        settings.method = method;
        let out = folder.path().join(settings.method.kind().name());
        all_arrive_at_the_same(&prepared, &settings, &out);
    }
}

#[test]
fn all_backends_take_the_same_path_and_learn() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = prepared(folder.path());
    let paper = |steps| with_steps(Preset::Paper.settings(), steps);
    all_arrive_at_the_same(&prepared, &paper(20), &folder.path().join("path"));
    for device in devices() {
        let out = |steps: u64| folder.path().join(format!("{device}-{steps}"));
        let (_, rewards) = train(&prepared, &paper(500), device, &out(500));
        let best = rewards.iter().copied().fold(f64::MIN, f64::max);
        assert!(best >= rewards[0] + 0.05, "{device} learnt little: {rewards:?}");
    }
    match devices().count() {
        0 => panic!("no backend could be tried"),
        1 => skipped("a single backend has nothing to be compared with (--features flex,wgpu)"),
        _ => {}
    }
}

#[test]
fn the_residual_tower_starts_at_the_identity_and_learns_on_all_backends() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = prepared(folder.path());
    for device in devices() {
        let rewards = |name: &str, kind, steps| {
            let mut settings = with_steps(Preset::Default.settings(), steps);
            settings.tower.kind = kind;
            settings.optimizer.weight_decay = 0.01;
            // What is tested is that it learns, from whatever it can.
            (settings.context.folds, settings.context.redraw) = (0, false);
            settings.evaluation.patience = 0;
            settings.optimizer.gradient_clipping = 1.0;
            let out = folder.path().join(format!("{device}-{name}"));
            train(&prepared, &settings, device, &out).1
        };
        let learnt = rewards("residual", TowerKind::ResidualMlp, 300);
        assert_eq!(learnt[0].to_bits(), rewards("linear", TowerKind::Linear, 5)[0].to_bits());
        let best = learnt.iter().copied().fold(f64::MIN, f64::max);
        assert!(best >= learnt[0] + 0.02, "{device} learnt little: {learnt:?}");
    }
}
