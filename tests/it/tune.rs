//! `slate tune`: what it finds, and that it goes on as if never stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use fast_slate::dataset::Split;
use fast_slate::facade::{Judging, Policy, Which};
use fast_slate::tower::TowerKind;
use serde_json::Value;

use crate::common::{assert_says, process, refused, slate, small, stdout};

const SEARCH: [&str; 14] = [
    "--trials",
    "5",
    "--steps",
    "20",
    "--samples",
    "4",
    "--set",
    "evaluation.count=2",
    "--set",
    "method.kind=lgp",
    "--over",
    "optimizer.learning_rate=1e-4..1e-1",
    "--over",
    "method.sigma=relative(0.1..1)",
];

fn tune(data: &Path, out: &Path) -> assert_cmd::Command {
    let mut command = slate();
    command.arg("tune").arg("--data").arg(data).arg("--out").arg(out).args(SEARCH);
    command
}

/// Rung, trial and reward of every row.
fn found(report: &str) -> Vec<(u64, u64, f64)> {
    let report: Value = serde_json::from_str(report).unwrap();
    let trials = report["trials"].as_array().unwrap().iter();
    trials
        .map(|trial| {
            let number = |key: &str| trial[key].as_u64().unwrap();
            (number("rung"), number("trial"), trial["best"]["reward"].as_f64().unwrap())
        })
        .collect()
}

#[test]
fn the_best_of_a_third_of_each_rung_goes_on_beside_the_settings_as_given() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("tune"));
    small(&data);
    let trials = found(&stdout(tune(&data, &out).arg("--json")));
    // The trials of a rung, the best first, beside trial 0, which has the settings as given.
    let rung = |rung: u64| {
        let mut tried: Vec<_> = trials.iter().filter(|trial| trial.0 == rung).collect();
        tried.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.1.cmp(&b.1)));
        let mut others: Vec<u64> = tried.iter().map(|trial| trial.1).collect();
        others.retain(|trial| *trial != 0);
        assert_eq!(others.len() + 1, tried.len(), "trial 0 trains in every rung: {trials:?}");
        others
    };
    let sorted = |trials: &[u64]| {
        let mut trials = trials.to_vec();
        trials.sort_unstable();
        trials
    };
    // Four, then the best two, then the best one.
    assert_eq!(sorted(&rung(0)), [1, 2, 3, 4]);
    assert_eq!(sorted(&rung(1)), sorted(&rung(0)[..2]), "{trials:?}");
    assert_eq!(rung(2), rung(1)[..1], "{trials:?}");
    // The best validation reward wins, so nothing is worse than the settings as given.
    assert!(trials.is_sorted_by(|a, b| a.2 >= b.2), "{trials:?}");
    // The budget grows by three each rung, and the winner's settings train on.
    let mut train = slate();
    train.arg("train").arg("--data").arg(&data).arg("--out").arg(folder.path().join("run"));
    let last = run(&out, 2, rung(2)[0]).join("run.toml");
    let text = stdout(train.arg("--config").arg(last));
    assert_says(&text, &["trained at step 180"]);
    let again = refused(&mut tune(&data, &out));
    assert_says(&again, &["there is a search here already", "--resume"]);
}

#[test]
fn all_the_wall_clock_time_of_a_search_is_counted_after_a_kill_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let command = |out: &Path, within: &str| {
        let mut command = process();
        command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(out);
        command.args(["--within", within, "--trials", "5", "--over", "method.samples=2|4|8"]);
        command
    };
    let began = Instant::now();
    let output = command(&at("whole"), "12").arg("--json").output().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((report["seconds"].as_f64().unwrap() - seconds).abs() < 2.0, "{seconds}");
    let trials = report["trials"].as_array().unwrap();
    let last = trials.iter().map(|trial| trial["rung"].as_u64().unwrap()).max();
    assert!(trials.iter().any(|t| t["trial"] == 0 && t["rung"].as_u64() == last), "{trials:?}");

    // So long that a busy machine has time for more than the first trial.
    let mut child = command(&at("killed"), "24")
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The second rung has begun when it is killed, however busy the machine is.
    while !at("killed/rung-1").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended with its first rung");
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let record = fs_err::read_to_string(at("killed/tried.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let before = record["seconds"].as_f64().unwrap();
    let began = Instant::now();
    let mut resume = slate();
    resume.args(["tune", "--resume", "--json", "--out"]).arg(at("killed"));
    let report: Value = serde_json::from_str(&stdout(&mut resume)).unwrap();
    let rest = began.elapsed().as_secs_f64();
    assert!(before > 2.0 && (report["seconds"].as_f64().unwrap() - before - rest).abs() < 2.0);
    // The first rung was over when it was killed; the best of it went on.
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.iter().any(|t| t["trial"] != 0 && t["rung"] != 0), "{trials:?}");
}

#[test]
fn what_a_rung_has_tried_counts_though_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let first = |trials: &[(u64, u64, f64)]| -> Vec<_> {
        trials.iter().filter(|trial| trial.0 == 0).copied().collect()
    };
    let whole = found(&stdout(tune(&at("data"), &at("tune")).arg("--json")));
    // A search of three seconds, stopped after the last trial of its first rung, which was late.
    for rung in ["tune/rung-1", "tune/rung-2"] {
        fs_err::remove_dir_all(at(rung)).unwrap();
    }
    let (plan, record) = (at("tune/tune.toml"), at("tune/tried.json"));
    let limited = format!("within = 3\n{}", fs_err::read_to_string(&plan).unwrap());
    fs_err::write(&plan, limited).unwrap();
    let mut tried: Value = serde_json::from_str(&fs_err::read_to_string(&record).unwrap()).unwrap();
    tried["rungs"].as_array_mut().unwrap().truncate(1);
    tried["rungs"][0]["until"] = 1.into();
    tried["seconds"] = 2.into();
    fs_err::write(&record, tried.to_string()).unwrap();
    let mut resume = slate();
    resume.args(["tune", "--resume", "--json", "--out"]).arg(at("tune"));
    let resumed = found(&stdout(&mut resume));
    assert_eq!(first(&resumed), first(&whole));
    // Two of them go on beside the settings as given, then one.
    let count = |rung| resumed.iter().filter(|trial| trial.0 == rung).count();
    assert_eq!((count(1), count(2)), (3, 2), "{resumed:?}");
}

fn run(out: &Path, rung: u64, trial: u64) -> std::path::PathBuf {
    out.join(format!("rung-{rung}/trial-{trial:03}"))
}

#[test]
fn a_search_that_was_killed_goes_on_to_the_same_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let whole = found(&stdout(tune(&at("data"), &at("whole")).arg("--json")));
    let mut child = process()
        .arg("tune")
        .arg("--data")
        .arg(at("data"))
        .arg("--out")
        .arg(at("killed"))
        .args(SEARCH)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !run(&at("killed"), 0, 2).join("metrics.jsonl").exists() {
        assert!(began.elapsed() < Duration::from_mins(1), "the third trial does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut resume = slate();
    resume.args(["tune", "--resume", "--json", "--out"]).arg(at("killed"));
    assert_eq!(found(&stdout(&mut resume)), whole);
}

#[test]
fn a_search_over_what_is_not_there_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let mut command = slate();
    command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(at("tune"));
    let text = refused(command.args(["--over", "method.sample=1|2"]));
    assert_says(&text, &["method.samples"]);
    for (over, key, says) in [
        ("evaluation.validation_halves=1|16", "`evaluation.validation_halves`", "is measured"),
        ("evaluation.search=exact|index", "`evaluation.search`", "changes what is measured"),
        ("budget.amount=1|2", "`budget.amount`", "the search decides it"),
    ] {
        let mut command = slate();
        command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(at("tune"));
        assert_says(&refused(command.args(["--over", over])), &[key, says]);
    }
    // A search that goes on has its settings.
    for flag in ["--samples", "--slate-size", "--seed"] {
        let mut command = slate();
        command.args(["tune", "--resume", flag, "3", "--out"]).arg(at("none"));
        let usage = command.assert().code(2).get_output().stderr.clone();
        let usage = String::from_utf8(usage).unwrap();
        assert_says(&usage, &["--resume", "cannot be used with", flag]);
    }
    let text = refused(slate().args(["tune", "--resume", "--out"]).arg(at("none")));
    assert_says(&text, &["no search here", "slate tune"]);
}

#[test]
fn towers_that_need_other_contexts_are_searched_together() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    // The settings as given have either tower, and the other one's trials come after.
    for kind in ["residual-mlp", "linear"] {
        let out = at(kind);
        let mut command = slate();
        command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(&out);
        command.args(["--trials", "4", "--steps", "4", "--samples", "4"]);
        command.args(["--set", "evaluation.count=1", "--set", &format!("tower.kind={kind}")]);
        command.args(["--over", "tower.kind=linear|residual-mlp"]);
        let trials = found(&stdout(command.arg("--json")));
        let mut kinds = Vec::new();
        for (rung, trial, reward) in trials {
            let policy = Policy::open(&run(&out, rung, trial), Which::Best, None).unwrap();
            kinds.push(policy.settings.tower.kind);
            // What is opened is what was trained.
            let asked = Judging { split: Some(Split::Validation), ..Judging::default() };
            let judged = policy.judge(&asked).unwrap();
            assert!((judged.scores.reward - reward).abs() < 1e-9, "{judged:?} {reward}");
        }
        assert!(kinds.contains(&TowerKind::Linear) && kinds.contains(&TowerKind::ResidualMlp));
    }
}

#[test]
fn a_trial_that_the_data_has_nothing_for_drops_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let mut command = slate();
    command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(at("tune"));
    command.args(["--trials", "5", "--steps", "4", "--samples", "4", "--json"]);
    // The data has no times.
    command.args(["--set", "evaluation.count=1", "--over", "context.recency=0|1"]);
    let output = command.output().unwrap();
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{warned}");
    assert_says(&warned, &["of rung 0 cannot be trained: setting `context.recency`", "times"]);
    let trials = found(&String::from_utf8(output.stdout).unwrap());
    assert!(trials.iter().any(|trial| trial.0 > 0 && trial.1 > 0), "{trials:?}");
}

#[test]
fn a_trial_whose_parameters_overflow_drops_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    small(&at("data"));
    let tune = |out: &str, over: &str| {
        let mut command = slate();
        command.arg("tune").arg("--data").arg(at("data")).arg("--out").arg(at(out));
        command.args(["--trials", "5", "--steps", "4", "--samples", "4", "--over", over]);
        command.args([
            "--set",
            "evaluation.count=1",
            "--set",
            "optimizer.weight_decay=0",
            "--json",
        ]);
        command
    };
    let output = tune("some", "optimizer.learning_rate=1e-3|1e300").output().unwrap();
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{warned}");
    assert_says(&warned, &["of rung 0 cannot be trained: step", "expected a finite number"]);
    let trials = found(&String::from_utf8(output.stdout).unwrap());
    let firsts = trials.iter().filter(|trial| trial.0 == 0).count();
    assert!((2..5).contains(&firsts), "{trials:?}");
    assert!(trials.iter().any(|trial| trial.0 > 0 && trial.1 > 0), "{trials:?}");
    // What is found again is the same, for nothing is trained twice.
    let resumed = stdout(slate().args(["tune", "--resume", "--json", "--out"]).arg(at("some")));
    assert_eq!(found(&resumed), trials);

    let mut none = tune("none", "method.samples=2|4");
    let told = refused(none.args(["--set", "optimizer.learning_rate=1e300"]));
    assert_says(&told, &["step", "expected a finite number"]);
}
