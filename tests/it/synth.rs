//! Synthetic logs, from the command line to a policy and to the baselines.

use assert_cmd::Command;
use serde_json::Value;

use crate::common::{assert_says, limited, names, refused, slate, stdout};

const SHAPE: [&str; 8] =
    ["--users", "2000", "--actions", "1000", "--density", "0.04", "--topics", "20"];

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

#[test]
fn a_policy_earns_more_than_popularity_and_less_than_the_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = json(slate().arg("synth").args(SHAPE).arg("--out").arg(at("log.parquet")));
    assert_eq!((&made["users"], &made["made"]["interactions"]), (&2000.into(), &80_000.into()));
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.parquet")).arg("--out").arg(at("data"));
    prepare.args(["--user-column", "user_id", "--item-column", "item_id", "--latent-dim", "32"]);
    // More users to judge by.
    let prepared = json(prepare.args(["--no-index", "--validation-share", "0.4"]));
    let statistics = &prepared["statistics"];
    assert_eq!((&statistics["users"], &statistics["actions"]), (&2000.into(), &1000.into()));
    assert_eq!(statistics["density"], 0.04);

    let mut train = slate();
    train.args(["train", "--steps", "600", "--slate-size", "5", "--set", "method.kind=lgp"]);
    stdout(train.arg("--data").arg(at("data")).arg("--out").arg(at("run")));
    let policy = json(slate().arg("evaluate").arg(at("run")));
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let (reward, se) = (number(&policy, "reward"), number(&policy, "reward_se"));
    let bound = |who: &str| {
        let bound = &made["made"][who];
        (number(bound, "mean"), 3.0 * number(bound, "standard_error").hypot(se))
    };
    let ((ceiling, above), (popularity, below)) = (bound("ceiling"), bound("popularity"));
    assert!(reward < ceiling + above, "{reward} is not below {ceiling}");
    assert!(reward > popularity + below, "{reward} is not above {popularity}");
}

#[test]
fn no_baseline_earns_more_than_the_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Long sessions on few topics, where what was observed tells nearly all of the taste.
    let mut synth = slate();
    synth.args(["synth", "--users", "6000", "--actions", "400", "--density", ".2"]);
    let made = json(synth.args(["--topics", "8"]).arg("--out").arg(at("log.parquet")));
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.parquet")).arg("--out").arg(at("data")).arg("--no-index");
    prepare.args(["--user-column", "user_id", "--item-column", "item_id", "--latent-dim", "32"]);
    stdout(prepare.args(["--validation-share", "0.4"]));

    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let ceiling = &made["made"]["ceiling"];
    let all = "popularity,uniform,svd,als,ease,item-knn";
    for (exclude, names) in [(true, all), (false, "popularity,ease,item-knn")] {
        let run = at(&format!("run-{exclude}"));
        let mut train = slate();
        train.args(["train", "--steps", "1", "--slate-size", "5", "--set"]);
        train.arg(format!("retrieval.exclude_observed={exclude}"));
        stdout(train.arg("--data").arg(at("data")).arg("--out").arg(&run));
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(["--split", "validation", "--against", names]);
        let judged = json(&mut evaluate);
        let rows = judged["against"].as_array().unwrap();
        assert_eq!(rows.len(), names.split(',').count());
        let best = rows.iter().map(|row| number(row, "reward")).fold(0.0, f64::max);
        for row in rows.iter().chain([&judged]) {
            let (reward, se) = (number(row, "reward"), number(row, "reward_se"));
            let noise = 3.0 * number(ceiling, "standard_error").hypot(se);
            assert!(reward < number(ceiling, "mean") + noise, "{row} {ceiling}");
        }
        // It is not far above the best either.
        assert!(!exclude || best > 0.8 * number(ceiling, "mean"), "{best} {ceiling}");
    }
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("log.csv");
    let synth = |args: &[&str]| {
        let mut synth = slate();
        synth.arg("synth").args(args).arg("--out").arg(&out);
        synth
    };
    let shape = |users, actions, density| {
        refused(&mut synth(&["--users", users, "--actions", actions, "--density", density]))
    };
    assert_says(&shape("0", "1000", "0.1"), &["setting `users`: expected at least 1"]);
    for density in ["0.019", "0.26", "NaN"] {
        let error = shape("10", "1000", density);
        assert_says(&error, &["setting `density`", density, "expected 20 to 250"]);
    }
    assert_says(&shape("10", "79", ".5"), &["setting `actions`: expected at least 80", "found 79"]);
    let error = shape("10", "1000", "0.03");
    assert_says(&error, &["setting `actions`", "10 users have 300"]);
    let error = refused(&mut synth(&[&SHAPE[..6], &["--topics", "1001"]].concat()));
    assert_says(&error, &["setting `topics`: expected 1 to 1000"]);
    let error = refused(&mut synth(&[&SHAPE[..], &["--ceiling-users", "0"]].concat()));
    assert_says(&error, &["setting `ceiling_users`"]);
    let error = refused(slate().arg("synth").args(SHAPE).arg("--out").arg("log.txt"));
    assert_says(&error, &["log.txt", ".parquet or .csv"]);
    let usage = |args: &[&str]| {
        let output = synth(args).assert().code(2).get_output().stderr.clone();
        String::from_utf8(output).unwrap()
    };
    assert_says(&usage(&["--like", "netflix"]), &["movielens-25m, twitch, goodreads"]);
    assert_says(&usage(&["--users", "9"]), &["--like"]);
    assert_says(&usage(&["--like", "twitch", "--users", "9"]), &["cannot be used with"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_log_that_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["log.csv", "log.parquet"] {
        let out = folder.path().join(name);
        fs_err::write(&out, "mine").unwrap();
        let mut synth = slate();
        synth.arg("synth").args(SHAPE).arg("--out").arg(&out);
        assert_says(&refused(&mut synth), &[name, "is there already", "--force"]);
        #[cfg(unix)]
        assert_says(&refused(&mut limited(4, synth.arg("--force"))), &[name, "File too large"]);
        assert_eq!(fs_err::read_to_string(&out).unwrap(), "mine");
        assert_eq!(names(folder.path()).len(), 1);
        let text = stdout(&mut synth);
        assert_says(&text, &["80000 interactions of 2000 users with 1000 actions", "ceiling"]);
        assert_says(&text, &[&format!("slate prepare {} --user-column", out.display())]);
        fs_err::remove_file(&out).unwrap();
    }
}
