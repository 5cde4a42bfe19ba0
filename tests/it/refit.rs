//! A run is done again on everybody, with what it chose while some were held out.

use std::path::Path;

use assert_cmd::Command;
use fast_slate::dataset::{
    Filters, Source, Split, SplitKind, SplitSettings, read_item_ids, read_user_ids,
};
use fast_slate::facade::{Judging, Policy, Which};
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::run::RunFolder;
use fast_slate::settings::{BudgetUnit, Preset, Settings};
use polars::prelude::{ParquetWriter, df};
use serde_json::Value;

use crate::common::{assert_says, log_csv, parameters, refused, slate, small, stdout, svd, table};

/// A log of 60 users with a column of times, whose order is not that of the items.
fn timed_log(path: &Path) -> Input {
    log_csv(path);
    let text = fs_err::read_to_string(path).unwrap();
    let mut rows = String::from("who,what,stars,at\n");
    for (at, line) in text.lines().skip(1).enumerate() {
        rows += &format!("{line},{}\n", at * 37 % 101);
    }
    fs_err::write(path, rows).unwrap();
    let source = Source {
        path: path.to_owned(),
        user_column: Some("who".into()),
        item_column: Some("what".into()),
        time_column: Some("at".into()),
        ..Source::default()
    };
    Input::File(source, Filters::default())
}

fn prepared(input: &Input, split: SplitSettings, out: &Path) -> Prepared {
    let settings = PrepareSettings { split, ..svd(8) };
    Prepared::create(input, &settings, out, false).unwrap()
}

/// A training of 20 steps with an evaluation every fifth.
fn short(data: &Prepared) -> Settings {
    let mut settings = data.preset(Preset::Default);
    (settings.budget.amount, settings.evaluation.count, settings.context.folds) = (20, 4, 2);
    settings.checkpoint.keep = 9;
    settings
}

#[test]
fn what_is_prepared_again_is_what_a_preparation_without_held_out_users_makes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let input = timed_log(&at("log.csv"));
    for (name, kind) in [("random", SplitKind::Random), ("temporal", SplitKind::Temporal)] {
        let split = SplitSettings { kind, test_share: 0.2, ..SplitSettings::default() };
        let none = SplitSettings { validation_share: 0.0, test_share: 0.0, ..split.clone() };
        let some_held = prepared(&input, split, &at(name));
        let again = some_held.refit(&at(&format!("{name}-again"))).unwrap();
        let without = prepared(&input, none, &at(&format!("{name}-without")));

        assert_eq!(again.sessions, without.sessions, "{name}");
        assert_eq!(again.times().unwrap(), without.times().unwrap(), "{name}");
        for ids in [read_user_ids, read_item_ids] {
            assert_eq!(ids(again.folder()).unwrap(), ids(without.folder()).unwrap(), "{name}");
        }
        assert_eq!(again.embeddings.load().unwrap(), without.embeddings.load().unwrap(), "{name}");
        assert_eq!(again.manifest.statistics.train.users, 60, "{name}");
        assert_eq!(again.sessions.contexts(Split::Train).len(), 60, "{name}");
        // It is opened as any other, and made once.
        let digest = Prepared::open(again.folder()).unwrap().digest().to_owned();
        assert_eq!(some_held.refit(again.folder()).unwrap().digest(), digest);
    }
}

#[test]
fn items_keep_imported_vectors_and_users_their_features() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log_csv(&at("log.csv"));
    let mut users = String::from("id,age\n");
    (0..60).for_each(|user| users += &format!("u{user},{}\n", 20 + user));
    let ids: Vec<String> = (0..40).map(|item| format!("i{item}")).collect();
    let mut items = df!(
        "item_id" => ids,
        "a" => (0..40).map(|item| item as f32 + 0.5).collect::<Vec<_>>(),
        "b" => (0..40).map(|item| (item * item) as f32).collect::<Vec<_>>(),
    )
    .unwrap();
    let file = fs_err::File::create(at("items.parquet")).unwrap();
    ParquetWriter::new(file).finish(&mut items).unwrap();
    fs_err::write(at("users.csv"), users).unwrap();
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.csv")).arg("--out").arg(at("data"));
    prepare.args(["--user-column", "who", "--item-column", "what", "--feature-id-column", "id"]);
    prepare.arg("--embeddings").arg(at("items.parquet"));
    stdout(prepare.arg("--user-features").arg(at("users.csv")));
    // They are not read again.
    fs_err::remove_file(at("items.parquet")).unwrap();
    fs_err::remove_file(at("users.csv")).unwrap();

    let before = Prepared::open(&at("data")).unwrap();
    let again = before.refit(&at("again")).unwrap();
    let vectors = |of: &Prepared| {
        let (ids, v) = (read_item_ids(of.folder()).unwrap(), of.embeddings.load().unwrap().v);
        let mut rows: Vec<_> = (0..).zip(ids).map(|(i, id)| (id, v.row(i).to_vec())).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    };
    assert_eq!(vectors(&before), vectors(&again));
    let features = |of: &Prepared| {
        let (ids, values) = (read_user_ids(of.folder()).unwrap(), of.features().unwrap().unwrap());
        (0..).zip(ids).map(|(i, id)| (id, values.row(i).to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(features(&before), features(&again));
    assert_eq!(before.feature_table().unwrap(), again.feature_table().unwrap());
}

#[test]
fn as_much_is_trained_as_led_to_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = small(&at("data"));
    let settings = short(&data);
    data.train(&settings, &at("run")).unwrap();
    let refit = |step, out: &str| Policy::refit(&at("run"), Which::Step(step), &at(out)).unwrap();

    let policy = refit(10, "ten");
    assert_eq!((policy.step, policy.origin.refit.as_ref().unwrap().share), (10, 0.5));
    assert_eq!(policy.task.sessions.contexts(Split::Train).len(), 400);
    let all = Prepared::open(&at("ten").join("data")).unwrap();
    let ends = RunFolder::new(at("ten")).checkpoints().unwrap();
    assert_eq!(ends, [0, 5, 10]);
    // It is the beginning of a training on all of the data.
    all.train(&settings, &at("whole")).unwrap();
    fs_err::remove_dir_all(at("whole").join("checkpoints/step-000000015")).unwrap();
    fs_err::remove_dir_all(at("whole").join("checkpoints/step-000000020")).unwrap();
    assert_eq!(parameters(&all, &at("ten")), parameters(&all, &at("whole")));
    // A finished one is opened.
    assert_eq!(refit(10, "ten").recommend("42").unwrap(), policy.recommend("42").unwrap());

    // Where the start was the best, there is nothing to train, nor any fold to fit.
    let start = refit(0, "start");
    assert_eq!(start.step, 0);
    assert!(!at("start").join("data/folds").exists());
    assert!(!at("start").join("data/index").exists());
    let slate_of = start.recommend("42").unwrap();
    // As whoever moves a run is told to.
    fs_err::rename(at("start"), at("moved")).unwrap();
    let mut resume = slate();
    resume.args(["train", "--resume", "--out"]).arg(at("moved"));
    stdout(resume.arg("--data").arg(at("moved").join("data")));
    let moved = Policy::open(&at("moved"), Which::Best, None).unwrap();
    assert_eq!(moved.recommend("42").unwrap(), slate_of);
}

#[test]
fn a_run_that_was_prolonged_is_done_again_as_far_as_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = small(&at("data"));
    let mut settings = data.preset(Preset::Paper);
    (settings.budget.amount, settings.evaluation.count, settings.checkpoint.keep) = (20, 10, 99);
    for (unit, amount, users_count) in
        [(BudgetUnit::Steps, 20, false), (BudgetUnit::Epochs, 1, true)]
    {
        (settings.budget.unit, settings.budget.amount) = (unit, amount);
        let (run, out) = (at(&format!("run-{unit:?}")), at(&format!("again-{unit:?}")));
        data.train(&settings, &run).unwrap();
        let mut resume = slate();
        resume.args(["train", "--resume", "--out"]).arg(&run);
        stdout(resume.args(["--set", &format!("budget.amount={}", 2 * amount)]));
        let checkpoints = RunFolder::new(&run).checkpoints().unwrap();
        let step = checkpoints[checkpoints.len() / 4];
        let again = Policy::refit(&run, Which::Step(step), &out).unwrap();
        // As many steps, or as many times each user.
        let users = if users_count {
            400.0 / data.sessions.contexts(Split::Train).len() as f64
        } else {
            1.0
        };
        let steps = (step as f64 * users).round();
        assert!((again.step as f64 - steps).abs() <= f64::from(u8::from(users_count)), "{unit:?}");
        // It is known by what it does, not by how its path is written.
        let same = at(".").join(run.file_name().unwrap());
        assert_eq!(Policy::refit(&same, Which::Step(step), &out).unwrap().step, again.step);
    }
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

#[test]
fn the_verb_says_what_it_made_and_refuses_what_it_cannot_do_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = small(&at("data"));
    data.train(&short(&data), &at("run")).unwrap();
    let refit = |of: &str, out: &str| {
        let mut refit = slate();
        refit.arg("refit").arg(at(of)).arg("--out").arg(at(out));
        refit
    };
    let report = json(refit("run", "all").args(["--checkpoint", "last"]));
    assert_eq!((&report["users"], &report["step"]), (&400.into(), &20.into()));
    assert_says(
        &stdout(refit("run", "all").args(["--checkpoint", "last"])),
        &["fitted on all 400 users, step 20", "slate evaluate", "slate export"],
    );
    assert_eq!(table(&at("all").join("data/contexts.parquet")).height(), 400);
    let slate_of = json(slate().arg("recommend").arg(at("all")).args(["--user", "42"]));
    assert_eq!(slate_of["slate"].as_array().unwrap().len(), 5);

    // Nobody is left to judge it.
    assert_says(
        &refused(slate().arg("evaluate").arg(at("all"))),
        &["everybody is trained on", "judge ", "run, which this run does again"],
    );
    let policy = Policy::open(&at("all"), Which::Best, None).unwrap();
    let asked = Judging { split: Some(Split::Train), ..Judging::default() };
    assert_eq!(policy.judge(&asked).unwrap().note, Some("these users were trained on"));
    assert_says(&refused(&mut refit("all", "more")), &["on everybody already"]);
    assert_says(&refused(&mut refit("run", "run")), &["holds another run"]);
    let other = ["--checkpoint", "5"];
    assert_says(&refused(refit("run", "all").args(other)), &["holds another run"]);
    assert_says(&refused(&mut refit("nowhere", "more")), &["nowhere", "no run here"]);

    // What `train` advises is possible.
    let train = |out: &str, more: &[&str]| {
        let mut train = slate();
        train.arg("train").arg("--data").arg(at("data")).arg("--out").arg(at(out));
        train
            .args(["--steps", "5", "--set", "context.folds=0"])
            .args(more)
            .current_dir(folder.path());
        stdout(&mut train)
    };
    assert!(train("fresh", &[]).contains("slate refit"));
    assert!(!train("warm", &["--init", "fresh"]).contains("slate refit"));

    let none = SplitSettings { validation_share: 0.0, test_share: 0.0, ..Default::default() };
    let whole = prepared(&timed_log(&at("log.csv")), none, &at("whole"));
    whole.train(&short(&whole), &at("everybody")).unwrap();
    assert_says(&refused(&mut refit("everybody", "more")), &["whole", "holds nothing out"]);
    assert!(!at("more").exists());
}
