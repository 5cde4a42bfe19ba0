//! The library in a few lines.

use fast_slate::dataset::Split;
use fast_slate::facade::{Judging, Policy, Which};
use fast_slate::model::Model;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::tower::{Activation, TowerKind, TowerSettings};
use fast_slate::training::Trainer;
use fast_slate::{Error, device};

use crate::common::small;

#[test]
fn prepare_train_recommend_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = small(&folder.path().join("data"));
    let run = folder.path().join("run");
    let mut settings = data.preset(Preset::Default);
    settings.budget.amount = 20;
    settings.evaluation.count = 2;

    let policy = data.train(&settings, &run).unwrap();
    let slate = policy.recommend("42").unwrap().slate;
    assert_eq!(slate.len(), 5);
    assert!(slate.is_sorted_by(|a, b| a.score >= b.score), "{slate:?}");
    let first = slate[0].item_id.clone();
    let after = policy.recommend_after(&[&first]).unwrap().slate;
    assert!(after.iter().all(|item| item.item_id != first), "{after:?}");
    assert!(matches!(policy.recommend("nobody"), Err(Error::UnknownId { .. })));
    assert!(policy.user_ids().unwrap().any(|user| user == "42"));

    // Nothing is trained twice, and nothing is overwritten.
    let metrics = fs_err::read(run.join("metrics.jsonl")).unwrap();
    let again = data.train(&settings, &run).unwrap();
    assert_eq!(again.recommend("42").unwrap().slate, slate);
    assert_eq!(fs_err::read(run.join("metrics.jsonl")).unwrap(), metrics);
    let opened = Policy::open(&run, Which::Best, None).unwrap();
    assert_eq!(opened.recommend("42").unwrap().slate, slate);
    settings.optimizer.batch_size += 1;
    let error = data.train(&settings, &run).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");

    // It goes on answering, whatever becomes of the files that it was opened from.
    let cpus = device::compiled().into_iter().filter(|name| ["ndarray", "flex"].contains(name));
    let opened: Vec<_> =
        cpus.map(|name| Policy::open(&run, Which::Best, Some(name)).unwrap()).collect();
    fs_err::remove_dir_all(run.join("checkpoints")).unwrap();
    for policy in opened {
        assert_eq!(policy.recommend("42").unwrap().slate[0].item_id, first);
    }
}

#[test]
fn settings_out_of_range_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let data = small(&folder.path().join("data"));
    let run = folder.path().join("run");
    let chosen = device::choose(None).unwrap();
    let mut default = data.preset(Preset::Default);
    default.context.folds = 0;
    let task = Task::load(&data, &default).unwrap();
    let (mut never, mut empty, mut backwards) = (default.clone(), default.clone(), default);
    never.evaluation.count = 0;
    empty.optimizer.batch_size = 0;
    backwards.optimizer.learning_rate = -1.0;
    for (wrong, settings) in [
        ("evaluation.count", never),
        ("optimizer.batch_size", empty),
        ("optimizer.learning_rate", backwards),
    ] {
        let names_it = |error: Error| matches!(&error, Error::Setting { key, .. } if key == wrong);
        assert!(names_it(data.train(&settings, &run).unwrap_err()), "{wrong}");
        assert!(names_it(task.check(&settings, &chosen.device).unwrap_err()), "{wrong}");
        assert!(!run.exists());
        let begun = RunFolder::new(folder.path().join(wrong));
        begun.begin(&settings, &RunOrigin::new(&data, chosen.name)).unwrap();
        let trained = Trainer::new(&task, &settings, &begun, &chosen.device).train(&mut ());
        assert!(names_it(trained.unwrap_err()), "{wrong}");
    }
}

#[test]
fn whoever_is_judged_on_the_users_it_learned_from_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = small(&folder.path().join("data"));
    let mut settings = data.preset(Preset::Default);
    (settings.budget.amount, settings.evaluation.count, settings.context.folds) = (2, 1, 0);
    let policy = data.train(&settings, &folder.path().join("run")).unwrap();
    let against = ["popularity", "uniform"].map(Into::into).to_vec();
    for (split, note) in [(Split::Train, Some("these users were trained on")), (Split::Test, None)]
    {
        let against = Vec::clone(&against);
        let asked = Judging { split: Some(split), against, ..Judging::default() };
        let judged = policy.judge(&asked).unwrap();
        assert_eq!(judged.note, note);
        assert_eq!(judged.against[0].note.as_deref(), note);
        assert_eq!(judged.against[1].note, None, "it learns nothing");
    }
}

#[test]
fn the_policy_that_is_opened_is_the_one_that_was_trained_on_folds() {
    let folder = tempfile::tempdir().unwrap();
    let data = small(&folder.path().join("data"));
    let chosen = device::choose(None).unwrap();
    // Towers whose numbers come from contexts: a scale, and a start.
    let towers = [
        (TowerKind::ResidualMlp, vec![8], Activation::Gelu),
        (TowerKind::SigmoidMlp, vec![], Activation::Relu),
    ];
    for (kind, hidden, activation) in towers {
        let mut settings = data.preset(Preset::Default);
        settings.tower = TowerSettings { kind, hidden, activation, ..settings.tower };
        settings.context.folds = 2;
        settings.optimizer.learning_rate = 0.05;
        (settings.budget.amount, settings.evaluation.count) = (20, 2);
        let task = Task::load(&data, &settings).unwrap();
        assert_eq!(task.num_folds(), 2);
        let run = RunFolder::new(folder.path().join(format!("{kind:?}")));
        run.begin(&settings, &RunOrigin::new(&data, chosen.name)).unwrap();
        let trained = Trainer::new(&task, &settings, &run, &chosen.device).train(&mut ());
        let end = trained.unwrap().model;
        let start = task.initial_model(&settings, &chosen.device).unwrap();

        let policy = Policy::open(run.path(), Which::Last, Some(chosen.name)).unwrap();
        let h = |model: &Model| model.latent(&policy.task.contexts).unwrap().into_vec();
        assert!(h(&start) == h(&policy.initial), "{kind:?}: another start");
        assert!(h(&end) == h(&policy.model), "{kind:?}: another model");
        assert!(h(&end) != h(&start), "{kind:?}: nothing was learned");
    }
}
