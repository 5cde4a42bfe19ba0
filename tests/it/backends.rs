//! One body, every backend that is compiled in: on the built-in sessions, from the paper's start,
//! all arrive at the same θ, and all learn.

use std::path::Path;

use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::matrix::Matrix;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::problem::Problem;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::tower::{Tower, to_host};
use fast_slate::training::{Row, Trainer, read_metrics};

/// θ after `steps` steps of the paper's preset on `device`, and the validation rewards seen.
fn train(prepared: &Prepared, device: &str, steps: u64, out: &Path) -> (Matrix, Vec<f64>) {
    let chosen = device::choose(Some(device)).unwrap();
    let mut settings = Preset::Paper.settings();
    settings.budget.amount = steps;
    settings.evaluation.count = 5;
    let problem = Problem::load(prepared, &settings).unwrap();
    let run = RunFolder::new(out.join(format!("{device}-{steps}")));
    run.begin(&settings, &RunOrigin::new(prepared, chosen.name)).unwrap();
    let trainer = Trainer::new(&problem, &settings, &run, &chosen.device);
    let outcome = trainer.train(&mut ()).unwrap();
    let Some(Tower::Linear(tower)) = &outcome.model.tower else {
        panic!("the preset's tower is linear")
    };
    let rewards =
        read_metrics(&run.metrics_path()).unwrap().into_iter().filter_map(|row| match row {
            Row::Evaluation { split: Split::Validation, reward, .. } => Some(reward),
            _ => None,
        });
    (to_host(tower.theta.val()).unwrap(), rewards.collect())
}

#[test]
fn all_backends_take_the_same_path_and_learn() {
    let folder = tempfile::tempdir().unwrap();
    let input = Input::Synthetic(SyntheticSettings::default());
    let settings = PrepareSettings::default();
    let prepared = Prepared::create(&input, &settings, &folder.path().join("data"), false).unwrap();

    let mut reference: Option<(&str, Matrix)> = None;
    for device in device::compiled() {
        if let Err(error) = device::choose(Some(device)) {
            eprintln!("skipped {device}: {error}");
            continue;
        }
        let (theta, _) = train(&prepared, device, 20, folder.path());
        let (first, expected) = reference.get_or_insert_with(|| (device, theta.clone()));
        let distance = |a: &Matrix, b: &Matrix| -> f64 {
            let squares = a.as_slice().iter().zip(b.as_slice());
            squares.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
        };
        let size = distance(expected, &Matrix::zeros(expected.rows(), expected.cols()));
        let off = distance(&theta, expected) / size;
        assert!(off < 1e-3, "{device} is off {first} by {off}");

        let (_, rewards) = train(&prepared, device, 500, folder.path());
        let best = rewards.iter().copied().fold(f64::MIN, f64::max);
        assert!(best >= rewards[0] + 0.05, "{device} learnt little: {rewards:?}");
    }
    assert!(reference.is_some(), "no backend could be tried");
}
