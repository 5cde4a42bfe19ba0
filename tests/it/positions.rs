//! Logs of other systems, whose rows are positions: what `slate log check` and `slate log value` say of
//! the Open Bandit data, against sums over the raw file, and of damaged files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{assert_says, real_data, refused, slate, stdout};

/// Item, position, click and propensity of each row of the Open Bandit data.
fn rows(path: &Path) -> Vec<(String, usize, f64, f64)> {
    let text = fs_err::read_to_string(path).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (
            cells[2].to_owned(),
            cells[3].parse().unwrap(),
            cells[4].parse().unwrap(),
            cells[5].parse().unwrap(),
        )
    };
    text.lines().skip(1).map(row).collect()
}

/// The logs of Thompson sampling and of uniform choice.
fn open_bandit() -> Option<[PathBuf; 2]> {
    let bts = real_data("obd/bts/men/men.csv")?;
    Some([bts, real_data("obd/random/men/men.csv")?])
}

fn json(args: &[&str], paths: &[&Path]) -> Value {
    let mut command = slate();
    let text = stdout(command.args(["log"]).args(args).args(paths).arg("--json"));
    serde_json::from_str(&text).unwrap()
}

fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

#[track_caller]
fn close(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
}

#[test]
fn the_value_of_uniform_choice_is_that_of_the_raw_file() {
    let Some([bts, random]) = open_bandit() else { return };
    let report = json(
        &["value", "--policy", "uniform", "--beside", random.to_str().unwrap()],
        &[bts.as_path()],
    );
    assert_eq!((&report["rows"], &report["above_zero"]), (&10_000.into(), &69.into()));
    assert_eq!(report["beside"]["above_zero"], 46);
    let (served, uniform) = (rows(&bts), rows(&random));
    for position in 0..=3_usize {
        let at = |rows: &[(String, usize, f64, f64)]| -> Vec<(String, usize, f64, f64)> {
            let here = |row: &&(String, usize, f64, f64)| position == 3 || row.1 == position + 1;
            rows.iter().filter(here).cloned().collect()
        };
        let (served, uniform) = (at(&served), at(&uniform));
        let (found, beside) = if position == 3 {
            (&report["all"], &report["beside"]["all"])
        } else {
            (&report["positions"][position], &report["beside"]["positions"][position][1])
        };
        assert_eq!(found["rows"], served.len());
        let weights: Vec<f64> = served.iter().map(|row| 1.0 / 34.0 / row.3).collect();
        let terms: Vec<f64> = weights.iter().zip(&served).map(|(w, row)| w * row.2).collect();
        let (ips, standard_error) = mean(&terms);
        close(&found["ips"]["mean"], ips);
        close(&found["ips"]["standard_error"], standard_error);
        close(&found["ips"]["low"], ips - 1.96 * standard_error);
        close(&found["ips"]["high"], ips + 1.96 * standard_error);
        let total: f64 = weights.iter().sum();
        close(&found["snips"]["mean"], terms.iter().sum::<f64>() / total);
        let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
        close(&found["effective_rows"], total * total / squares);
        close(
            &found["logged"]["mean"],
            mean(&served.iter().map(|row| row.2).collect::<Vec<_>>()).0,
        );
        let (expected, standard_error) = mean(&uniform.iter().map(|row| row.2).collect::<Vec<_>>());
        close(&beside["mean"], expected);
        close(&beside["standard_error"], standard_error);
        // With a dozen clicks at a position the intervals are rough; over all they are better.
        for estimate in ["ips", "snips", "doubly_robust"].iter().filter(|_| position == 3) {
            let [found, error] =
                ["mean", "standard_error"].map(|key| found[estimate][key].as_f64().unwrap());
            let joint = 3.0 * error.hypot(standard_error);
            assert!((found - expected).abs() < joint, "{estimate}: {found} {expected}");
        }
    }
    let text = stdout(slate().args(["log", "value", "--policy", "uniform"]).arg(&bts));
    assert_says(
        &text,
        &["10000 rows, each one item at one position, not a slate", "69 outcomes are above 0"],
    );
}

#[test]
fn a_log_says_its_own_mean_of_the_policy_that_wrote_it() {
    let Some([bts, random]) = open_bandit() else { return };
    // Uniform choice from its own log: every weight is 1, up to the six digits of the propensities.
    let report = json(&["value", "--policy", "uniform"], &[random.as_path()]);
    let all = &report["all"];
    let [ips, logged] = ["ips", "logged"].map(|key| all[key]["mean"].as_f64().unwrap());
    assert!((ips - logged).abs() < 1e-3 * logged, "{ips} {logged}");
    assert!((all["effective_rows"].as_f64().unwrap() - 10_000.0).abs() < 1e-3);
    let of = ["value", "--policy", "mean-propensity", "--of"];
    let report = json(&[&of[..], &[bts.to_str().unwrap()]].concat(), &[random.as_path()]);
    let policy = &report["policy"];
    assert!(policy["name"].as_str().unwrap().starts_with("mean logged propensities of "));
    assert_eq!(policy["sums"].as_array().unwrap().len(), 3);
    // The policy is not uniform, so fewer rows count.
    let effective = report["all"]["effective_rows"].as_f64().unwrap();
    assert!((500.0..9500.0).contains(&effective), "{effective}");
}

#[test]
fn check_says_what_a_log_of_another_system_holds() {
    let Some([bts, _]) = open_bandit() else { return };
    let report = json(&["check"], &[bts.as_path()]);
    assert_eq!((&report["rows"], &report["items"]), (&10_000.into(), &34.into()));
    assert_eq!(report["positions"].as_array().unwrap().len(), 3);
    assert_eq!(report["bad"]["skipped"], 0);
    let text = stdout(slate().args(["log", "check"]).arg(&bts));
    assert_says(
        &text,
        &[
            "each one item at one position, not a slate",
            "outcomes above 0  69",
            "by IPS, SNIPS and DR",
            "slates: rows are positions",
        ],
    );
}

/// Twelve rows of two items at two positions, with a change.
fn log(folder: &Path, change: impl Fn(String) -> String) -> PathBuf {
    let mut text = String::from("item_id,position,click,propensity_score\n");
    for row in 0..12 {
        text += &format!("i{},{},{},0.5\n", row % 2, 1 + row / 2 % 2, row % 3 / 2);
    }
    let path = folder.join("log.csv");
    fs_err::write(&path, change(text)).unwrap();
    path
}

#[test]
fn a_damaged_log_is_refused_or_its_rows_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let spoil =
        |from: &'static str, to: &'static str| move |text: String| text.replacen(from, to, 1);
    for (to, found) in [("i1,1,0,0", "0"), ("i1,1,0,1.5", "1.5"), ("i1,1,0,NaN", "NaN")] {
        let path = log(folder.path(), spoil("i1,1,0,0.5", to));
        let value = || {
            let mut command = slate();
            command.args(["log", "value", "--policy", "uniform"]).arg(&path);
            command
        };
        let error = refused(&mut value());
        let expected = format!(
            "log.csv: row 2: column `propensity_score`: expected a probability above 0 and at most 1, \
             found `{found}`; --skip-bad-rows skips such rows"
        );
        assert!(error.ends_with(&expected), "{error}");
        let text = stdout(value().args(["--skip-bad-rows", "1"]));
        assert_says(&text, &["11 rows", "skipped           1 rows with a propensity that is not"]);
        let report = json(&["check"], &[path.as_path()]);
        assert_eq!((&report["rows"], &report["bad"]["skipped"]), (&11.into(), &1.into()));
    }
    // A row with a field too many is skipped too; a line break within quotes is no bad row.
    let path = log(folder.path(), spoil("i1,1,0,0.5", "i1,1,0,0.5,9"));
    let report = json(&["check"], &[path.as_path()]);
    assert_eq!((&report["rows"], &report["bad"]["skipped"]), (&11.into(), &1.into()));
    let path = log(folder.path(), |text| {
        text.replace('\n', ",\"a\nb\"\n").replace("_score,\"a\nb\"", "_score,comment")
    });
    let report = json(&["check"], &[path.as_path()]);
    assert_eq!((&report["rows"], &report["bad"]["skipped"]), (&12.into(), &0.into()));
    let path = log(folder.path(), |text| text.replace(",0.5", ",2"));
    let mut value = slate();
    value.args(["log", "value", "--policy", "uniform", "--skip-bad-rows", "3"]).arg(&path);
    assert_says(&refused(&mut value), &["row 4: column", "3 rows before it were skipped"]);
}

#[test]
fn a_column_that_is_missing_is_named_and_one_of_another_name_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = log(folder.path(), |text| text.replace("click", "bought"));
    let value = || {
        let mut command = slate();
        command.args(["log", "value", "--policy", "uniform"]).arg(&path);
        command
    };
    assert_says(&refused(&mut value()), &["no column `click`; the columns are item_id, position"]);
    assert_says(
        &refused(slate().args(["log", "check"]).arg(&path)),
        &["no column `click`; the columns are item_id, position"],
    );
    let text = stdout(value().args(["--outcome-column", "bought"]));
    assert_says(&text, &["12 rows", "4 outcomes are above 0", "DR"]);

    // Without propensities only a model is left.
    let path = log(folder.path(), |text| text.replace("propensity_score", "note"));
    let text = stdout(slate().args(["log", "value", "--policy", "uniform"]).arg(&path));
    assert_says(&text, &["there are no propensities: only the direct method"]);
    assert!(!text.contains("IPS"), "{text}");
    let text = stdout(slate().args(["log", "check"]).arg(&path));
    assert_says(&text, &["propensities      none", "by the direct method only"]);
    let mut of = slate();
    of.args(["log", "value", "--policy", "mean-propensity", "--of"]).arg(&path).arg(&path);
    assert_says(&refused(&mut of), &["log.csv: has no propensities; name their column"]);
    let mut of = slate();
    of.args(["log", "value", "--policy", "mean-propensity"]).arg(&path);
    assert_says(&refused(&mut of), &["--policy mean-propensity needs --of FILE"]);
}

#[test]
fn logs_of_other_systems_are_checked_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = log(folder.path(), |text| text);
    let error = refused(slate().args(["log", "check"]).arg(&path).arg(&path));
    assert_says(
        &error,
        &["log.csv: is no log that this version reads", "takes both, such files one at a time"],
    );
    let error = refused(slate().args(["log", "check"]).arg(folder.path().join("typo.csv")));
    assert_says(&error, &["typo.csv", "No such file"]);
}
