//! A log in, a better policy out: the verbs that learn from what was shown, in a world whose truth is
//! known.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assert_cmd::Command;
use fast_slate::bundle::{Options, Recommender, Request, VectorScalar, Who};
use fast_slate::facade::{Policy, Which};
use fast_slate::log::{Exposure, Feedback, Log};
use fast_slate::tower::to_host;
use polars::prelude::{Column, DataFrame, ParquetWriter, Series};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{assert_says, refused, slate, stdout};

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

/// One round in a small world: its folder, and what was reported.
static WORLD: LazyLock<(TempDir, Value)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let mut simulate = slate();
    simulate.args(["simulate", "--rounds", "1", "--users", "400", "--actions", "300"]);
    simulate.args(["--requests", "20000", "--satiation", "0.7", "--exploration", "0.5"]);
    simulate.args(["--steps", "60", "--seed", "1"]);
    let report = json(simulate.arg("--out").arg(folder.path().join("world")));
    (folder, report)
});

fn at(name: &str) -> PathBuf {
    WORLD.0.path().join("world").join(name)
}

fn learn(out: &Path, flags: &[&str]) -> Command {
    let mut train = slate();
    train.args(["train", "--seed", "1"]).args(flags);
    if !flags.contains(&"--estimate") {
        train.args(["--reward-bounds", "0,5"]);
    }
    train.arg("--logged").arg(at("round-01/log")).arg("--from").arg(at("start"));
    train.arg("--out").arg(out);
    train
}

fn judge(run: &Path, flags: &[&str]) -> Command {
    let mut evaluate = slate();
    evaluate.arg("evaluate").arg(run).arg("--logged").arg(at("round-01/log")).args(flags);
    evaluate
}

#[test]
fn a_round_serves_learns_judges_and_knows_the_truth() {
    let report = &WORLD.1;
    let round = &report["rounds"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let (served, learned) = (number(&round["true_reward"]), number(&round["learned_true_reward"]));
    assert_eq!(report["start"]["exploring"], round["true_reward"]);
    let (low, high) = (number(&round["estimate"]["low"]), number(&round["estimate"]["high"]));
    let width = high - low;
    assert!(low - width < learned && learned < high + width, "{round}");
    assert!(number(&round["gain_bound"]) < learned - served, "{round}");
    assert!(number(&report["ceiling"]) > number(&report["reference"]["decision"]));
    assert!(at("rounds.svg").exists());
}

#[test]
fn what_was_learned_is_judged_by_other_persons_only() {
    let run = at("round-01/run");
    let report = json(&mut judge(&run, &["--reward-bounds", "0,5"]));
    let (rows, kept) = (report["rows"].as_u64().unwrap(), report["learned_from"].as_u64().unwrap());
    assert_eq!(rows + kept, 20_000);
    // One person in five.
    assert!((2_500..6_000).contains(&rows), "{rows}");
    let mean = report["mean_weight"]["mean"].as_f64().unwrap();
    assert!((mean - 1.0).abs() < 0.1, "{mean}");
    // The policy that logged has learned from nobody, and its weights are 1.
    let start = json(&mut judge(&at("start"), &[]));
    assert_eq!((start["rows"].as_u64(), start["learned_from"].as_u64()), (Some(20_000), Some(0)));
    assert!((start["mean_weight"]["mean"].as_f64().unwrap() - 1.0).abs() < 1e-3);
    let text = stdout(&mut judge(&run, &[]));
    assert_says(&text, &["the policy that explores", "what logged", "not judged: ", "plain"]);
}

#[test]
fn a_gate_needs_bounds_and_says_by_its_exit_code_what_to_do() {
    let error = judge(&at("start"), &["--ship-if-above"]).output().unwrap();
    assert!(String::from_utf8(error.stderr).unwrap().contains("--reward-bounds"));
    // A policy does not earn more than itself.
    let same =
        judge(&at("start"), &["--ship-if-above", "--reward-bounds", "0,5"]).output().unwrap();
    assert_eq!(same.status.code(), Some(1));
    assert_says(&String::from_utf8(same.stdout).unwrap(), &["do not ship it"]);
    let error = refused(&mut judge(&at("start"), &["--reward-bounds", "2,5"]));
    assert_says(&error, &["reward-bounds", "a slate earned", "expected from 2 to 5"]);
}

#[test]
fn a_run_of_a_programs_reward_is_judged_by_a_log_alone() {
    // It was trained on what is true.
    let run = at("reference");
    let output = judge(&run, &[]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_says(&text, &["the policy that explores", "mean weight"]);
    assert_says(&refused(slate().arg("evaluate").arg(&run)), &["the reward `true` of a program"]);
}

#[test]
fn persons_without_an_id_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::read(&[at("round-01/log")]).unwrap();
    for (at, row) in log.exposures[..5].iter_mut().enumerate() {
        row.who = Who::Items(row.slate[..=at].to_vec());
    }
    let path = folder.path().join("log");
    log.write(&path).unwrap();
    let output = slate().arg("evaluate").arg(at("start")).arg("--logged").arg(path).output();
    let output = output.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_says(&said, &["5 of 405 persons are lists of items or contexts"]);
}

#[test]
fn learning_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--set", "optimizer.schedule=constant", "--set", "evaluation.patience=0"];
    let train = |name: &str, steps: &str| {
        let out = folder.path().join(name);
        stdout(learn(&out, &flags).args(["--set", "evaluation.count=1", "--steps", steps]));
        out
    };
    let whole = train("whole", "20");
    let parts = train("parts", "10");
    stdout(slate().args(["train", "--resume", "--steps", "20", "--out"]).arg(&parts));
    let learned = |run: &Path| {
        let policy = Policy::open(run, Which::Last, Some("ndarray")).unwrap();
        assert_eq!(policy.step, 20);
        to_host(policy.model.corrections[0].delta.val()).unwrap()
    };
    assert!(learned(&whole) == learned(&parts));
    let text = fs_err::read_to_string(whole.join("run.toml")).unwrap();
    assert_says(&text, &["[run.logged", "digest = ", "kind = \"logged\"", "relative = "]);

    // A run that was stopped before its first checkpoint begins again, on data that moved.
    let (killed, data) = (train("killed", "20"), folder.path().join("data"));
    fs_err::remove_dir_all(killed.join("checkpoints")).unwrap();
    fs_err::remove_file(killed.join("metrics.jsonl")).unwrap();
    let recorded = Policy::open(&whole, Which::Last, Some("ndarray")).unwrap().origin.data;
    copy(&recorded, &data);
    let mut resume = slate();
    stdout(resume.args(["train", "--resume", "--out"]).arg(&killed).arg("--data").arg(&data));
    assert!(learned(&whole) == learned(&killed));
}

/// Copies a folder of folders.
fn copy(from: &Path, to: &Path) {
    fs_err::create_dir(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs_err::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn what_a_log_continues_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    for (flags, expected) in [
        (&["--method", "lgp"][..], &["method.kind", "expected `logged`", "--estimate"][..]),
        (&["--estimate", "direct", "--method", "logged"], &["method.kind", "--estimate wants"]),
        (&["--slate-size", "3"], &["slate_size", "stays as it was", "→ 3)"]),
        (&["--set", "tower.balance=false"], &["a log continues the model", "tower.balance"]),
        (&["--set", "retrieval.exclude_observed=true"], &["retrieval.exclude_observed", "stays"]),
        (&["--set", "reward.kind=dcg"], &["reward.kind", "stays as it was"]),
        (&["--set", "method.sigma=inverse-dim"], &["method.sigma", "were drawn by relative"]),
    ] {
        assert_says(&refused(&mut learn(&out, flags)), expected);
        assert!(!out.exists(), "{flags:?}");
    }
}

#[test]
fn a_bundle_keeps_what_was_learned_within_its_radius() {
    let folder = tempfile::tempdir().unwrap();
    let policy = Policy::open(&at("round-01/run"), Which::Last, Some("ndarray")).unwrap();
    let start = Policy::open(&at("start"), Which::Best, Some("ndarray")).unwrap();
    let out = folder.path().join("bundle");
    policy.bundle(true).unwrap().write(&out, VectorScalar::F32, false).unwrap();
    let opened =
        Recommender::open(&out, &fast_slate::device::choose(Some("ndarray")).unwrap().device);
    let requests: Vec<Request> =
        (1..=50).map(|user| Who::User { id: user.to_string(), newer: Vec::new() }.into()).collect();
    let options = Options { queries: true, ..Options::default() };
    let ask = |recommender: &Recommender| recommender.recommend(&requests, &options).unwrap();
    let (from_run, from_bundle) = (ask(policy.recommender().unwrap()), ask(&opened.unwrap()));
    assert_eq!(from_run, from_bundle);
    let mut moved = 0;
    for (now, before) in from_run.iter().zip(ask(start.recommender().unwrap())) {
        let (now, before) = (now.query.as_ref().unwrap(), before.query.unwrap());
        let distance = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
        };
        let length = distance(&before.h, &[0.0; 8]);
        // c‖h‖/√L, ρ = 1.
        let sigma = 0.5 * length / 8_f32.sqrt();
        let way = distance(&now.h, &before.h);
        assert!(way <= 1.0001 * sigma, "{way} {sigma}");
        moved += usize::from(way > 0.01 * sigma);
    }
    assert!(moved > 25, "{moved}");
    let mut export = slate();
    export.arg("export").arg(at("round-01/run")).args(["--checkpoint", "last", "--onnx", "--out"]);
    let error = refused(export.arg(folder.path().join("onnx")));
    assert_says(&error, &["corrected by what it learned from a log", "without --onnx"]);
}

#[test]
fn rows_that_say_nothing_are_counted_by_their_reason() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::read(&[at("round-01/log")]).unwrap();
    let changed = |name: &str, change: &dyn Fn(&mut Log)| {
        let mut log = Log { exposures: log.exposures[..600].to_vec(), ..log.clone() };
        change(&mut log);
        let path = folder.path().join(name);
        log.write(&path).unwrap();
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(at("start")).arg("--logged").arg(path);
        evaluate
    };
    let unused =
        |name: &str, change: &dyn Fn(&mut Log)| json(&mut changed(name, change))["unused"].clone();
    let found = unused("some", &|log| {
        log.exposures[0].vectors = "others".into();
        log.exposures[1].retrieval = "hnsw".into();
        log.exposures[2].fallback = true;
        log.exposures[3].filters = vec!["by hand".into()];
        log.exposures[4].who = Who::User { id: "nobody".into(), newer: Vec::new() };
        log.exposures[5].h = vec![0.0; 8];
        log.exposures[7].sigma *= 2.0;
        (log.exposures[6].sigma, log.exposures[6].exploring) = (0.0, false);
        log.exposures[6].z = log.exposures[6].h.clone();
        log.feedback.truncate(3);
        log.feedback[0].time = 0;
        log.feedback[1].position = 7;
        log.feedback[2].request = "elsewhere".into();
    });
    for reason in [
        "other action vectors",
        "another search than most rows",
        "degraded",
        "re-ranked",
        "a user or a context that is not known",
        "too short a query: its noise is not relative to it",
        "shown without noise",
        "drawn with another noise than this policy's",
        "feedback before its slate",
        "feedback beyond the slate",
        "feedback on a request that is not in the log",
    ] {
        assert_eq!(found[reason], 1, "{reason}: {found}");
    }
    let error = refused(&mut changed("none", &|log| {
        log.exposures.iter_mut().for_each(|row| row.vectors = "others".into());
    }));
    assert_says(&error, &["no row to learn from", "600 other action vectors"]);
    // Whether one person is like others cannot be told, nor can one teach and say when to stop.
    let of_one = |log: &mut Log| {
        let who = log.exposures[0].who.clone();
        log.exposures.iter_mut().for_each(|row| row.who = who.clone());
    };
    let output = changed("one", &of_one).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_says(&text, &["no interval: these are rows of 1 persons, fewer than 30"]);
    for estimate in [&[][..], &["--estimate", "direct"]] {
        let mut train = slate();
        train.args(["train", "--out"]).arg(folder.path().join("run")).args(estimate);
        train.arg("--logged").arg(folder.path().join("one")).arg("--from").arg(at("start"));
        assert_says(
            &refused(&mut train),
            &["one: has no person to ", "give a log of more persons"],
        );
    }
}

#[test]
fn weights_that_do_not_average_to_one_leave_no_interval() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Log::read(&[at("round-01/log")]).unwrap();
    for row in &mut log.exposures {
        // The noise was half of what the log says.
        row.z.iter_mut().zip(&row.h).for_each(|(z, h)| *z = h + (*z - h) / 2.0);
    }
    let path = folder.path().join("log");
    log.write(&path).unwrap();
    let mut evaluate = slate();
    evaluate.arg("evaluate").arg(at("round-01/run")).args(["--checkpoint", "last"]);
    let output = evaluate.arg("--logged").arg(path).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_says(&text, &["no interval: the mean weight is", "standard errors from 1"]);
    assert!(!text.contains("plain"), "{text}");
}

#[test]
fn only_a_log_teaches_more_to_what_a_log_has_taught() {
    let folder = tempfile::tempdir().unwrap();
    let again = folder.path().join("again");
    let mut train = slate();
    train.args(["train", "--steps", "5", "--out"]).arg(&again).arg("--data").arg(at("data"));
    train.arg("--config").arg(at("start/run.toml")).arg("--init").arg(at("round-01/run"));
    assert_says(&refused(&mut train), &["init", "that run learned from a log"]);
    assert!(!again.join("run.toml").exists());
    let mut train = slate();
    train.args(["train", "--method", "logged", "--steps", "5", "--out"]).arg(&again);
    let error = refused(train.arg("--data").arg(at("data")));
    assert_says(&error, &["--logged", "--from"]);
}

/// A table of the slates of the first exposures, as another system would write it.
fn table_of_slates(path: &Path, propensity: f64) {
    let log = Log::read(&[at("round-01/log")]).unwrap();
    let rows = &log.exposures[..2000];
    let user = |row: &Exposure| match &row.who {
        Who::User { id, .. } => id.parse::<i64>().unwrap(),
        who => panic!("{who:?}"),
    };
    let clicked = |row: &Exposure, position: usize| {
        let here =
            |event: &Feedback| event.request == row.request && event.position as usize == position;
        u32::from(log.feedback.iter().any(here))
    };
    let lists = |name: &str, of: &dyn Fn(&Exposure) -> Series| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<Series>>())
    };
    let mut table = DataFrame::new_infer_height(vec![
        Column::new("user".into(), rows.iter().map(user).collect::<Vec<i64>>()),
        lists("slate", &|row| row.slate.iter().map(String::as_str).collect()),
        lists("outcomes", &|row| (0..5).map(|at| clicked(row, at)).collect()),
        lists("propensities", &|_| Series::from_iter([propensity; 5])),
    ])
    .unwrap();
    ParquetWriter::new(fs_err::File::create(path).unwrap()).finish(&mut table).unwrap();
}

#[test]
fn clicks_that_histories_hold_already_are_counted_and_may_be_no_lesson() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    let mut train = slate();
    train.args(["train", "--steps", "5", "--set", "retrieval.exclude_observed=true", "--data"]);
    train.arg(at("data")).arg("--config").arg(at("start/run.toml"));
    stdout(train.arg("--out").arg(in_folder("excludes")));

    // Slates of four items of the user and another one.
    let policy = Policy::open(&at("start"), Which::Best, Some("ndarray")).unwrap();
    let recommender = policy.recommender().unwrap();
    let slates = (1..=200_i64).filter_map(|user| {
        let who = Who::User { id: user.to_string(), newer: Vec::new() };
        let (_, known) = recommender.context(&who.into()).unwrap();
        let other = (0..300).find(|action| !known.contains(action)).unwrap();
        let actions = known.get(..4)?.iter().chain([&other]);
        let ids: Vec<&str> =
            actions.map(|action| recommender.bundle().items.ids.id(*action)).collect();
        Some((user, Series::from_iter(ids)))
    });
    let (users, slates): (Vec<i64>, Vec<Series>) = slates.unzip();
    let train = |outcomes: [u32; 5], from: &Path, out: &str| {
        let outcomes = vec![Series::from_iter(outcomes); users.len()];
        let mut table = DataFrame::new_infer_height(vec![
            Column::new("user".into(), &users),
            Column::new("slate".into(), &slates),
            Column::new("outcomes".into(), outcomes),
        ])
        .unwrap();
        let path = in_folder("slates.parquet");
        ParquetWriter::new(fs_err::File::create(&path).unwrap()).finish(&mut table).unwrap();
        let mut train = slate();
        train.args(["train", "--steps", "5", "--estimate", "direct", "--logged"]).arg(path);
        train.arg("--from").arg(from).arg("--out").arg(in_folder(out));
        train
    };
    let (excludes, n) = (in_folder("excludes"), users.len());
    let error = refused(&mut train([1, 0, 0, 0, 0], &excludes, "refused"));
    let found = format!("{n} of {n} outcomes above 0 are on items that the person's history holds");
    assert_says(&error, &["slates.parquet: ", &found, "from data older than the slates"]);
    assert!(!in_folder("refused").exists());
    // As many are on the other item; and who may be shown the item again may take it again.
    let half = found.replace(&format!("of {n}"), &format!("of {}", 2 * n));
    for (outcomes, from, out, found) in [
        ([1, 0, 0, 0, 1], &excludes, "half", half),
        ([1, 0, 0, 0, 0], &at("start"), "again", found),
    ] {
        let output = train(outcomes, from, out).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_says(&String::from_utf8(output.stderr).unwrap(), &[&found]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_says(&text, &["by the log of answers that explore", "--logged LOG"]);
    }
    let output = train([0, 0, 0, 0, 1], &excludes, "others").output().unwrap();
    assert!(
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("history")
    );
}

#[test]
fn slates_of_another_system_are_learned_from_by_estimated_rewards() {
    let folder = tempfile::tempdir().unwrap();
    let (table, out) = (folder.path().join("slates.parquet"), folder.path().join("run"));
    table_of_slates(&table, 0.25);
    let held = json(slate().args(["log", "check"]).arg(&table));
    assert_eq!((held["slates"].as_u64(), held["lengths"]["5"].as_u64()), (Some(2000), Some(2000)));
    assert_says(&stdout(slate().args(["log", "check"]).arg(&table)), &["ips or doubly-robust"]);
    let train = |estimate: &[&str], out: &Path| {
        let mut train = slate();
        train.args(["train", "--steps", "5", "--logged"]).arg(&table).args(estimate);
        train.arg("--from").arg(at("start")).arg("--out").arg(out);
        train
    };
    for estimate in ["ips", "doubly-robust", "direct"] {
        let trained = json(&mut train(&["--estimate", estimate], &out));
        assert!(trained["step"].as_u64() > Some(0), "{estimate}: {trained}");
        // It reads the table again.
        stdout(slate().args(["train", "--resume", "--out"]).arg(&out));
        // Who taught it would judge a run that forgets so.
        let mut train = slate();
        train.args(["train", "--data"]).arg(at("data")).arg("--config").arg(at("start/run.toml"));
        train.arg("--init").arg(&out).arg("--out").arg(folder.path().join("forgets"));
        assert_says(&refused(&mut train), &["init", "that run learned from a log"]);
        fs_err::remove_dir_all(&out).unwrap();
    }
    let error = refused(&mut train(&[], &out));
    assert_says(&error, &["slates.parquet: is no table of a log", "--estimate"]);
    let error = refused(&mut train(&["--estimate", "direct", "--outcome", "any"], &out));
    assert_says(&error, &["outcome", "--estimate learns from what each item earned"]);
    table_of_slates(&table, 1.5);
    let error = refused(&mut train(&["--estimate", "ips"], &out));
    assert_says(&error, &["row 1: the propensity at position 0 is 1.5"]);
    assert!(!out.exists());
}
