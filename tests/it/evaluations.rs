//! What the evaluations of a run decide: when it ends, and how fast it goes on.

use fast_slate::dataset::Split;
use fast_slate::device;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::{Preset, Settings};
use fast_slate::task::Task;
use fast_slate::tower::{Initial, TowerKind};
use fast_slate::training::{Ending, MetricsRow, Trainer, read_metrics};

use crate::common::small;

/// Trains twice, the second time on what is there already: the endings, and the record.
fn trained(settings: &Settings) -> ([(Ending, u64); 2], Vec<MetricsRow>) {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let task = Task::load(&prepared, settings).unwrap();
    let chosen = device::choose(None).unwrap();
    let run = RunFolder::new(folder.path().join("run"));
    run.begin(settings, &RunOrigin::new(&prepared, chosen.name)).unwrap();
    let trainer = Trainer::new(&task, settings, &run, &chosen.device);
    let endings = [(); 2].map(|()| {
        let outcome = trainer.train(&mut ()).unwrap();
        (outcome.ending, outcome.step)
    });
    (endings, read_metrics(&run.metrics_path()).unwrap())
}

#[test]
fn patience_ends_a_run_that_does_not_get_better() {
    let mut settings = Preset::Default.settings();
    settings.budget.amount = 50;
    settings.evaluation.count = 10;
    settings.evaluation.patience = 2;
    settings.optimizer.learning_rate = 1e-30;
    assert_eq!(trained(&settings).0, [(Ending::StoppedEarly, 10); 2]);
}

#[test]
fn a_run_goes_on_faster_from_a_gain_that_is_more_than_chance() {
    let mut settings = Preset::Default.settings();
    // A start that leaves much to learn.
    settings.tower.kind = TowerKind::Linear;
    settings.tower.initial = Initial::Paper;
    settings.optimizer.learning_rate = 0.01;
    settings.budget.amount = 100;
    settings.evaluation.count = 10;
    let (mut best, mut factor, mut grown) = (0.0, 1.0_f64, 0);
    for row in trained(&settings).1 {
        let MetricsRow::Evaluation { step, split: Split::Validation, gain, learning_rate, .. } =
            row
        else {
            continue;
        };
        if gain.low > 0.0 && gain.mean > best {
            (best, factor, grown) = (gain.mean, (3.0 * factor).min(10.0), grown + 1);
        }
        let expected = 0.01 * factor * (1.0 - step as f64 / 100.0);
        assert!(
            (learning_rate - expected).abs() < 1e-12,
            "step {step}: {learning_rate}, {expected}"
        );
    }
    assert!(grown >= 3, "only {grown} gains: the comparison shows little");
}
