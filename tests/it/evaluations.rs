//! What the evaluations of a run decide: when it ends, and how fast it goes on.

use fast_slate::dataset::Split;
use fast_slate::device;
use fast_slate::estimate::Interval;
use fast_slate::facade::{Judged, Judging, Outcome, Policy, Which};
use fast_slate::reward::RewardKind;
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
fn users_who_are_asked_about_more_halves_give_a_narrower_interval() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let mut settings = Preset::Default.settings();
    settings.budget.amount = 30;
    let run = folder.path().join("run");
    prepared.train(&settings, &run).unwrap();
    let policy = Policy::open(&run, Which::Last, None).unwrap();
    let judged = |halves| {
        let asked = Judging { halves, against: vec!["popularity".into()], ..Judging::default() };
        policy.judge(&asked).unwrap()
    };
    let (once, often) = (judged(None), judged(Some(12)));
    assert_eq!((once.halves, often.halves), (1, 12));
    assert_eq!(once.contexts, often.contexts);
    assert!(often.scores.reward_se < once.scores.reward_se);
    // The others answer for the same halves.
    let difference = |judged: &Judged| match &judged.against[0].outcome {
        Outcome::Judged { difference, .. } => difference.high - difference.low,
        Outcome::Refused { refused } => panic!("{refused}"),
    };
    assert!(difference(&often) < 0.9 * difference(&once));
    let again = judged(Some(1));
    assert_eq!(again.scores.reward.to_bits(), once.scores.reward.to_bits());
}

#[test]
fn a_reward_that_is_not_linear_is_gone_after_faster_once_it_gains() {
    let mut settings = Preset::Default.settings();
    // A start that leaves much to learn.
    settings.tower.kind = TowerKind::Linear;
    settings.tower.initial = Initial::Paper;
    settings.optimizer.learning_rate = 0.01;
    settings.budget.amount = 100;
    settings.evaluation.count = 10;
    let linear = rates(&settings);
    assert!(linear.iter().all(|(_, _, factor)| (factor - 1.0).abs() < 1e-9), "{linear:?}");

    settings.reward.kind = RewardKind::AnyHit;
    let (mut best, mut expected, mut grown) = (0.0, 1.0_f64, 0);
    for (step, gain, factor) in rates(&settings) {
        if gain.low > 0.0 && gain.mean > best {
            (best, expected, grown) = (gain.mean, (3.0 * expected).min(10.0), grown + 1);
        }
        assert!((factor - expected).abs() < 1e-9, "step {step}: {factor}, expected {expected}");
    }
    assert!(grown >= 3, "only {grown} gains: the comparison shows little");
}

/// The gain on validation users at every evaluation but the last, and by how much the rate from there on is above
/// one that only falls.
fn rates(settings: &Settings) -> Vec<(u64, Interval, f64)> {
    let (steps, rate) = (settings.budget.amount, settings.optimizer.learning_rate);
    let of = |row| match row {
        MetricsRow::Evaluation { step, split: Split::Validation, gain, learning_rate, .. } => {
            (step < steps).then(|| {
                let falling = rate * (1.0 - step as f64 / steps as f64);
                (step, gain, learning_rate / falling)
            })
        }
        _ => None,
    };
    trained(settings).1.into_iter().filter_map(of).collect()
}
