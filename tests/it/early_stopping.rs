//! A run whose validation reward has stopped rising ends, and stays ended.

use fast_slate::device;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::{Ending, Trainer};

use crate::common::small;

#[test]
fn patience_ends_a_run_that_does_not_get_better() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let mut settings = Preset::Default.settings();
    settings.budget.amount = 50;
    settings.evaluation.count = 10;
    settings.evaluation.patience = 2;
    settings.optimizer.learning_rate = 1e-30;
    let task = Task::load(&prepared, &settings).unwrap();
    let chosen = device::choose(None).unwrap();
    let run = RunFolder::new(folder.path().join("run"));
    run.begin(&settings, &RunOrigin::new(&prepared, chosen.name)).unwrap();
    let trainer = Trainer::new(&task, &settings, &run, &chosen.device);
    for _ in 0..2 {
        let outcome = trainer.train(&mut ()).unwrap();
        assert_eq!((outcome.ending, outcome.step), (Ending::StoppedEarly, 10));
    }
}
