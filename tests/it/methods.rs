//! Every method trains from one config, by its name, and goes on after a stop as if there had been
//! none.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fast_slate::dataset::Split;
use fast_slate::device;
use fast_slate::method::MethodKind;
use fast_slate::prepared::Prepared;
use fast_slate::reward::RewardKind;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate::task::Task;
use fast_slate::training::{Ending, MetricsRow, Observer, Progress, Trainer};

use crate::common::{parameters, record, slate, small, stdout};

/// The settings that all methods share.
const CONFIG: &str = "
slate_size = 4
[method]
samples = 4
[budget]
amount = 12
[evaluation]
count = 4
gradient_draws = 2
[optimizer]
batch_size = 16
";

/// Methods with settings other than their own defaults.
const VARIANTS: [(MethodKind, &[&str]); 12] = [
    (MethodKind::LgpMips, &["method.candidates=0"]),
    // Falls back to a search for each sample.
    (MethodKind::LgpMips, &["method.sigma=relative(10)", "method.candidates=10"]),
    (MethodKind::LgpMips, &["method.radial=keep"]),
    (MethodKind::LgpMips, &["method.baseline=none", "reward.kind=diverse"]),
    (MethodKind::LgpMips, &["tower.kind=residual-mlp", "tower.hidden=[20, 9]"]),
    (MethodKind::LrpMips, &["method.noise=laplace", "reward.kind=cascade"]),
    (MethodKind::Lrp, &["method.noise=student-t(5)", "method.baseline=none"]),
    (MethodKind::PlPg, &["reward.kind=any-hit"]),
    (MethodKind::PlPg, &["method.draws=gumbel", "reward.kind=reciprocal-rank"]),
    (MethodKind::Covariance, &["method.draws=rejection", "method.head=32"]),
    (MethodKind::PlPg, &["method.learn_actions=true"]),
    (MethodKind::PlRank, &["method.learn_actions=true"]),
];

/// Every method, and the variants.
fn methods() -> Vec<(MethodKind, &'static [&'static str])> {
    let one_action: &[&str] = &["slate_size=1"];
    // What learns from a log needs one.
    let alone = MethodKind::ALL.iter().filter(|kind| **kind != MethodKind::Logged);
    let plain = alone.map(|&kind| {
        let longer = kind.method().check(4, RewardKind::Discounted).is_ok();
        (kind, if longer { &[][..] } else { one_action })
    });
    plain.chain(VARIANTS).collect()
}

/// Asks for a stop after a step.
struct StopAfter<'a> {
    step: u64,
    stop: &'a AtomicBool,
}

impl Observer for StopAfter<'_> {
    fn stepped(&mut self, progress: Progress) {
        self.stop.store(progress.step == self.step, Ordering::Relaxed);
    }
}

/// Trains in this process, stopped between two evaluations and taken up again.
fn stopped(prepared: &Prepared, config: &Path, settings: &[String], device: &str, out: &Path) {
    let builder = SettingsBuilder::new(&Preset::Default.settings()).unwrap().file(config).unwrap();
    let builder = settings.iter().fold(builder, |builder, set| builder.assignment(set).unwrap());
    let settings = builder.build().unwrap();
    let chosen = device::choose(Some(device)).unwrap();
    let task = Task::load(prepared, &settings).unwrap();
    let run = RunFolder::new(out);
    run.begin(&settings, &RunOrigin::new(prepared, chosen.name)).unwrap();
    for ending in [Ending::Interrupted, Ending::Finished] {
        let stop = AtomicBool::new(false);
        let trainer =
            Trainer { stop: &stop, ..Trainer::new(&task, &settings, &run, &chosen.device) };
        let outcome = trainer.train(&mut StopAfter { step: 7, stop: &stop }).unwrap();
        assert_eq!(outcome.ending, ending);
    }
}

#[test]
fn every_method_trains_from_one_config_and_resumes_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let config = folder.path().join("config.toml");
    fs_err::write(&config, CONFIG).unwrap();
    for device in device::compiled().into_iter().filter(|name| ["ndarray", "flex"].contains(name)) {
        for (at, (kind, sets)) in methods().into_iter().enumerate() {
            let method = format!("{kind} {sets:?} on {device}");
            let whole = folder.path().join(format!("{device}-{at}"));
            let mut train = slate();
            train.arg("train").arg("--data").arg(prepared.folder()).arg("--out").arg(&whole);
            train.arg("--config").arg(&config).args(["--method", kind.key(), "--device", device]);
            for set in sets {
                train.args(["--set", set]);
            }
            stdout(&mut train);

            let mut settings = vec![format!("method.kind={kind}")];
            settings.extend(sets.iter().map(ToString::to_string));
            let resumed = folder.path().join(format!("{device}-{at}-stopped"));
            stopped(&prepared, &config, &settings, device, &resumed);
            let rows = record(&whole);
            assert_eq!(rows, record(&resumed), "{method}");
            let (ours, theirs) = (parameters(&prepared, &whole), parameters(&prepared, &resumed));
            assert!(ours == theirs, "{method}: the parameters differ");

            // What is loaded again is what was trained.
            let mut evaluate = slate();
            evaluate.args(["evaluate", "--json", "--checkpoint", "last", "--device", device]);
            evaluate.args(["--split", "validation"]);
            let evaluated = stdout(evaluate.arg(&whole));
            let evaluated: serde_json::Value = serde_json::from_str(&evaluated).unwrap();
            let recorded = rows.iter().rev().find_map(|row| match row {
                MetricsRow::Evaluation { split: Split::Validation, reward, .. } => Some(*reward),
                _ => None,
            });
            assert_eq!(evaluated["reward"].as_f64(), recorded, "{method}");

            let gradients: Vec<_> = rows
                .iter()
                .filter_map(|row| match row {
                    MetricsRow::Gradient { gradient, .. } => Some(gradient),
                    _ => None,
                })
                .collect();
            assert_eq!(gradients.len(), 5, "{method}");
            assert!(gradients.iter().all(|gradient| gradient.variance > 0.0), "{method}");
            let rejects = rows.iter().any(|row| matches!(row, MetricsRow::Rejection { .. }));
            assert_eq!(rejects, sets.contains(&"method.draws=rejection"), "{method}");
        }
    }
}
