//! `slate tune`: what it finds, and that it goes on as if never stopped.

use std::path::Path;
use std::time::{Duration, Instant};

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
fn the_best_of_a_third_of_each_rung_wins() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("tune"));
    small(&data);
    let trials = found(&stdout(tune(&data, &out).arg("--json")));
    assert_eq!(trials.len(), 5);
    // Five, then two, then one.
    let mut rungs: Vec<u64> = trials.iter().map(|trial| trial.0).collect();
    rungs.sort_unstable();
    assert_eq!(rungs, [0, 0, 0, 1, 2]);
    assert_eq!(trials[0].0, 2);
    // Those that stayed in the first rung were no better there than any that went on.
    let first = |trial: u64| {
        let text = stdout(slate().args(["evaluate", "--json"]).arg(run(&out, 0, trial)));
        serde_json::from_str::<Value>(&text).unwrap()["reward"].as_f64().unwrap()
    };
    let (on, stayed) = trials.split_at(2);
    for winner in on {
        assert!(stayed.iter().all(|other| other.2 <= first(winner.1)), "{trials:?}");
    }
    // The budget grows by three each rung, and the winner's settings train on.
    let mut train = slate();
    train.arg("train").arg("--data").arg(&data).arg("--out").arg(folder.path().join("run"));
    let text = stdout(train.arg("--config").arg(run(&out, 2, trials[0].1).join("run.toml")));
    assert_says(&text, &["trained at step 180"]);
    let again = refused(&mut tune(&data, &out));
    assert_says(&again, &["there is a search here already", "--resume"]);
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
    let text = refused(command.args(["--over", "policy.sample=1|2"]));
    assert_says(&text, &["method.samples"]);
    let text = refused(slate().args(["tune", "--resume", "--out"]).arg(at("none")));
    assert_says(&text, &["no search here", "slate tune"]);
}
