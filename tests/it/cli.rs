//! The verbs as people and programs use them, one after the other.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{assert_says, log_csv, refused, slate, small, stdout, table};

fn json(command: &mut Command) -> Value {
    let text = stdout(command.arg("--json"));
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Ids of a slate.
fn ids(slate: &Value) -> Vec<&str> {
    slate.as_array().unwrap().iter().map(|item| item["item_id"].as_str().unwrap()).collect()
}

/// The log of `common`, prepared with 8 numbers an item, and a run of 20 steps on it.
fn trained() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log_csv(&at("log.csv"));
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.csv")).arg("--out").arg(at("data"));
    prepare.args(["--user-column", "who", "--item-column", "what", "--latent-dim", "8"]);
    stdout(&mut prepare);
    let mut train = slate();
    train.args(["train", "--steps", "20", "--set", "evaluation.count=2", "--samples", "4"]);
    stdout(train.arg("--data").arg(at("data")).arg("--out").arg(at("run")));
    let (data, run) = (at("data"), at("run"));
    (folder, data, run)
}

#[test]
fn the_demo_replaces_a_demo_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let demo = |out: &Path| {
        let mut demo = slate();
        demo.args(["demo", "--steps", "2", "--set", "evaluation.count=1", "--out"]).arg(out);
        demo
    };
    stdout(&mut demo(&at("demo")));
    stdout(&mut demo(&at("demo")));
    log_csv(&at("log.csv"));
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.csv")).arg("--out").arg(at("mine").join("data"));
    prepare.args(["--user-column", "who", "--item-column", "what", "--embeddings", "svd"]);
    stdout(prepare.args(["--latent-dim", "6"]));
    assert_says(&refused(&mut demo(&at("mine"))), &["data: no demo made what is here", "--out"]);
    fs_err::remove_dir_all(at("demo").join("data")).unwrap();
    fs_err::rename(at("mine").join("data"), at("demo").join("data")).unwrap();
    assert_says(&refused(&mut demo(&at("demo"))), &["data: no demo made what is here"]);
}

#[test]
fn the_demo_ends_in_a_slate() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = slate();
    demo.args(["demo", "--steps", "60", "--set", "evaluation.count=2", "--out"]).arg(folder.path());
    let text = stdout(&mut demo);
    assert_says(
        &text,
        &["trained at step 60", "validation reward", "slate for user 1\n", "Topic "],
    );
    // Again, in the place of the first.
    let report = json(&mut demo);
    assert_eq!(ids(&report["slate"]).len(), 5);
    assert_eq!(report["trained"]["step"], 60);
    assert!(report["trained"]["reward"].as_f64().unwrap() > 0.0);
    assert!(text.contains(ids(&report["slate"])[0]), "{text}");
}

#[test]
fn als_embeddings_are_trained_on_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log_csv(&at("log.csv"));
    let mut prepare = slate();
    prepare.arg("prepare").arg(at("log.csv")).arg("--out").arg(at("data"));
    prepare.args(["--user-column", "who", "--item-column", "what", "--embeddings", "als"]);
    prepare.args(["--latent-dim", "6", "--confidence", "4", "--regularization", "0.5"]);
    let report = json(prepare.args(["--iterations", "3"]));
    let options = &report["settings"]["embedding"]["als"]["options"];
    let expected = serde_json::json!({
        "latent_dim": 6, "iterations": 3, "regularization": 0.5, "confidence": 4.0
    });
    assert_eq!(options, &expected);
    let mut train = slate();
    train.args(["train", "--steps", "20", "--set", "evaluation.count=2", "--data"]);
    let report = json(train.arg(at("data")).arg("--out").arg(at("run")));
    assert!(report["reward"].as_f64().unwrap() > 0.0);
    let info = json(slate().arg("info").arg(at("run")));
    assert_eq!(info["settings"]["embedding"]["power"], 0.0);
}

#[test]
fn a_table_becomes_slates() {
    let (_folder, data, run) = trained();
    let info = stdout(slate().arg("info").arg(&data));
    assert_says(&info, &["log.csv", "#Actions", "[filters]", "latent_dim = 8"]);
    let info = json(slate().arg("info").arg(&data));
    let statistics = &info["statistics"];
    assert_eq!((&statistics["users"], &statistics["actions"]), (&60.into(), &40.into()));

    let info = stdout(slate().arg("info").arg(&run));
    assert_says(&info, &["(ndarray)", "step 20 after", "best validation reward", "samples = 4"]);
    let info = json(slate().arg("info").arg(&run));
    assert_eq!(
        (&info["last"]["step"], &info["settings"]["budget"]["amount"]),
        (&20.into(), &20.into())
    );

    for split in ["train", "validation", "test"] {
        for retrieval in [&[][..], &["--index"]] {
            let mut evaluate = slate();
            evaluate.arg("evaluate").arg(&run).args(["--checkpoint", "last", "--split", split]);
            let report = json(evaluate.args(retrieval));
            assert_eq!((&report["step"], &report["split"]), (&20.into(), &split.into()));
            assert_eq!(report["contexts"], if split == "train" { 48 } else { 6 });
            assert!(report["reward"].as_f64().unwrap() > 0.0);
        }
    }
    let text = stdout(slate().arg("evaluate").arg(&run).args(["--split", "test"]));
    assert_says(&text, &["6 test users, K = 5, exact retrieval", "95 % interval"]);
}

#[test]
fn a_run_is_compared_with_another_on_the_same_users() {
    let (folder, data, run) = trained();
    let other = folder.path().join("other");
    let mut train = slate();
    train.args(["train", "--steps", "20", "--set", "optimizer.learning_rate=0.1", "--data"]);
    stdout(train.arg(&data).arg("--out").arg(&other));
    let against = |other: &Path| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(["--split", "train", "--checkpoint", "last"]);
        json(evaluate.arg("--against").arg(other))
    };
    let report = against(&other);
    let reward = |of: &serde_json::Value| of["reward"].as_f64().unwrap();
    let row = &report["against"][0];
    let difference = &row["difference"];
    let mean = difference["mean"].as_f64().unwrap();
    assert!((mean - (reward(&report) - reward(row))).abs() < 1e-6, "{report}");
    assert!(difference["low"].as_f64() < difference["high"].as_f64(), "{report}");
    let itself = &against(&run)["against"][0]["difference"];
    assert_eq!((&itself["low"], &itself["high"]), (&0.0.into(), &0.0.into()));

    // Another run shows what this one may show, whatever it was trained to show.
    let repeats = folder.path().join("repeats");
    let mut train = slate();
    train.args(["train", "--steps", "1", "--set", "retrieval.exclude_observed=false", "--data"]);
    stdout(train.arg(&data).arg("--out").arg(&repeats));
    let mut evaluate = slate();
    evaluate.arg("evaluate").arg(&run).args(["--split", "train", "--checkpoint", "0", "--against"]);
    let start = &json(evaluate.arg(&repeats))["against"][0]["difference"];
    assert_eq!((&start["low"], &start["high"]), (&0.0.into(), &0.0.into()));

    // Other embeddings of the same sessions can be compared with, other sessions cannot.
    let prepared = |name: &str, args: &[&str]| {
        let (data, run) = (folder.path().join(name), folder.path().join(format!("run-{name}")));
        let mut prepare = slate();
        prepare.args(["prepare", "--user-column", "who", "--item-column", "what"]).args(args);
        stdout(prepare.arg(folder.path().join("log.csv")).arg("--out").arg(&data));
        let mut train = slate();
        train.args(["train", "--steps", "1", "--slate-size", "7", "--data"]).arg(data);
        stdout(train.arg("--out").arg(&run));
        run
    };
    let shorter = prepared("shorter", &["--latent-dim", "6"]);
    assert!(reward(&against(&shorter)["against"][0]) > 0.0);
    let foreign = prepared("elsewhere", &["--latent-dim", "6", "--seed", "1"]);
    let error = refused(slate().arg("evaluate").arg(&run).arg("--against").arg(&foreign));
    assert_says(&error, &["run-elsewhere: was trained on", "whose sessions are not those of"]);
}

#[test]
fn baselines_have_a_row_each() {
    let (_folder, _data, run) = trained();
    let all = "popularity,uniform,svd,als,ease,item-knn";
    let against = |names: &str, args: &[&str]| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(["--split", "test", "--against", names]).args(args);
        evaluate
    };
    let text = stdout(&mut against(&format!("{all},{}", run.display()), &[]));
    let table: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(table.len(), 2 + 2 + 7, "{text}");
    assert_says(table[1], &["reward", "nDCG", "recall", "hits", "catalogue", "95 % interval"]);
    assert!(table[2].starts_with("policy, step"), "{text}");
    assert!(table[3].starts_with("its step 0"), "{text}");
    for (line, name) in table[4..].iter().zip(all.split(',')) {
        assert!(line.starts_with(name) && line.contains('±') && line.ends_with(']'), "{text}");
    }
    assert!(table[10].contains("run, step") && table[10].ends_with("+0.0000 [+0.0000, +0.0000]"));
    assert!(table[1..].iter().all(|line| line.chars().count() <= 100), "{text}");
    // 48 training users and 40 items allow an L of 39.
    assert_says(&text, &["ease: λ = 100 (not tuned: --tune SECONDS)", "svd: L = 39 (not"]);

    let report = json(&mut against(all, &["--tune", "1"]));
    for row in report["against"].as_array().unwrap() {
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let difference = number(&report, "reward") - number(row, "reward");
        assert!((number(&row["difference"], "mean") - difference).abs() < 1e-6, "{row}");
        for metric in ["ndcg", "recall", "hit_rate", "catalogue_coverage"] {
            assert!((0.0..=1.0).contains(&number(row, metric)), "{row}");
        }
        let tried = row["tried"].as_array().unwrap();
        let nothing_to_tune = row["settings"].is_null();
        assert_eq!(tried.is_empty(), nothing_to_tune, "{row}");
        if !nothing_to_tune {
            let best = tried.iter().map(|trial| number(trial, "reward")).fold(0.0, f64::max);
            let is_chosen = |trial: &&Value| trial["settings"] == row["settings"];
            let chosen = number(tried.iter().find(is_chosen).unwrap(), "reward");
            assert!((chosen - best).abs() < 1e-12, "{row}");
        }
    }

    let given = stdout(&mut against("ease:ridge=50,als:latent_dim=8:confidence=3", &[]));
    assert_says(&given, &["ease: λ = 50 (not tuned", "als: L = 8, α = 3, λ = 1, 15 sweeps"]);
    let error = refused(&mut against("ease:lambda=50", &[]));
    assert_says(&error, &["`ease`", "expected KEY=NUMBER of ridge", "lambda=50"]);
    let output = against("ease, esea", &["--tune", "600"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_says(&said, &["`against`: esea", "popularity, uniform, svd, als, ease, item-knn"]);
    assert!(!said.contains("fitting"), "before anything is tuned: {said}");
    // A path is no name.
    assert_says(&refused(&mut against("./ease", &[])), &["`against`: ./ease", "neither"]);
    for wrong in
        ["item-knn:neighbours=2.5", "ease:ridge=0", "als:latent_dim=0", "item-knn:shrinkage=-1"]
    {
        let word = wrong.split_once(':').unwrap().1;
        assert_says(&refused(&mut against(wrong, &[])), &["in its range, found", word]);
    }
}

#[test]
fn slates_show_nothing_that_is_known() {
    let (_folder, data, run) = trained();
    let recommend =
        |args: &[&str]| json(slate().arg("recommend").arg(&run).args(args))["slate"].clone();
    let log = fs_err::read_to_string(data.with_file_name("log.csv")).unwrap();
    let slate_of = recommend(&["--user", "u7"]);
    assert_eq!(ids(&slate_of).len(), 5);
    for id in ids(&slate_of) {
        assert!(!log.contains(&format!("u7,{id},")), "{id} is known");
    }
    let first = ids(&slate_of)[0];
    let without = recommend(&["--items", &format!("i1, {first}")]);
    assert!(!ids(&without).contains(&first) && !ids(&without).contains(&"i1"));
    assert_eq!(ids(&without).len(), 5);

    // Actions are numbered by popularity, and nothing is known of somebody without items.
    let nobody = recommend(&["--items", ""]);
    let actions = table(&data.join("actions.parquet"));
    let popular: Vec<_> =
        actions.column("item_id").unwrap().str().unwrap().iter().take(5).collect();
    assert_eq!(ids(&nobody).into_iter().map(Some).collect::<Vec<_>>(), popular);

    // As text: rank, id, score; without titles.
    let text = stdout(slate().arg("recommend").arg(&run).args(["--items", ""]));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows.len(), rows[0].len()), (5, 3));
    assert_eq!((rows[0][0], rows[0][1], rows[0][2]), ("1", popular[0].unwrap(), "0.0000"));
}

#[test]
fn settings_that_cannot_work_leave_nothing_behind() {
    let (folder, data, _run) = trained();
    let out = folder.path().join("out");
    let with = |verb: &str, sets: &[&str]| {
        let mut command = slate();
        command.args([verb, "--steps", "2", "--samples", "2", "--out"]).arg(&out);
        if verb != "demo" {
            command.arg("--data").arg(&data);
        }
        if verb == "tune" {
            command.args(["--trials", "1"]);
        }
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        command
    };
    let two_encoders = "context.encoders=[\"weighted-mean\", \"mean\"]";
    let bad: [(&[&str], &str); 4] = [
        (&["method.sigma=inverse-dim"], "method.radial"),
        (&["method.kind=fopo"], "slates of one action"),
        (&["slate_size=5000"], "5000"),
        (&["method.kind=pl-rank", "method.learn_actions=true", two_encoders], "has to be L"),
    ];
    for verb in ["train", "tune", "demo"] {
        for (sets, says) in bad {
            assert_says(&refused(&mut with(verb, sets)), &[says]);
            assert!(!out.join("run.toml").exists() && !out.join("run").exists(), "{verb} {sets:?}");
            assert!(!out.join("tune.toml").exists(), "{verb} {sets:?}");
        }
        // The folder takes the corrected command.
        stdout(&mut with(verb, &["method.sigma=inverse-dim", "method.radial=keep"]));
        fs_err::remove_dir_all(&out).unwrap();
    }
}

/// What is said of a checkpoint on the users that chose it.
const CHOSEN: &str = "this checkpoint was chosen on these users";

#[test]
fn a_run_is_judged_on_test_users_unless_told_otherwise() {
    let (_folder, _, run) = trained();
    let evaluate = |args: &[&str]| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(args);
        evaluate
    };
    let text = stdout(&mut evaluate(&[]));
    assert_says(&text, &["6 test users"]);
    assert!(!text.contains(CHOSEN), "{text}");
    assert!(json(&mut evaluate(&[]))["note"].is_null());

    let on_validation = ["--split", "validation"];
    let text = stdout(&mut evaluate(&on_validation));
    assert_says(&text, &["6 validation users", &format!("policy: {CHOSEN}")]);
    assert_eq!(json(&mut evaluate(&on_validation))["note"], CHOSEN);
    // The validation users did not choose the last checkpoint.
    let last = [&on_validation[..], &["--checkpoint", "last"]].concat();
    assert!(json(&mut evaluate(&last))["note"].is_null());
    assert!(!stdout(&mut evaluate(&last)).contains(CHOSEN));

    // Another run was chosen on them as well.
    let against = [&on_validation[..], &["--against", run.to_str().unwrap()]].concat();
    assert_eq!(stdout(&mut evaluate(&against)).matches(CHOSEN).count(), 2);
    assert_eq!(json(&mut evaluate(&against))["against"][0]["note"], CHOSEN);
}

#[test]
fn a_tuned_baseline_says_on_whom_it_was_tuned() {
    let (_folder, _, run) = trained();
    let evaluate = |split: &str, args: &[&str]| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(["--against", "ease,popularity"]);
        evaluate.args(["--split", split]).args(args);
        evaluate
    };
    let chosen = "these settings were chosen on these users";
    let tuned = &["--tune", "1"];
    let text = stdout(&mut evaluate("validation", tuned));
    let line = text.lines().find(|line| line.starts_with("ease: ")).unwrap();
    assert_says(line, &["validation reward", "tried in", chosen]);
    let report = json(&mut evaluate("validation", tuned));
    assert!(report["against"][0]["note"].as_str().unwrap().starts_with(chosen));
    // Popularity has no settings, test users chose nothing, and without --tune nobody chose.
    assert!(report["against"][1]["note"].is_null());
    let report = json(&mut evaluate("test", tuned));
    assert!(!report["against"][0]["note"].to_string().contains(chosen));
    assert!(!stdout(&mut evaluate("test", tuned)).contains(chosen));
    assert!(!stdout(&mut evaluate("validation", &[])).contains(chosen));
}

#[test]
fn a_training_says_on_whom_its_checkpoint_was_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    log_csv(&at("log.csv"));
    let prepare = |name: &str, share: &str| {
        let mut prepare = slate();
        prepare.arg("prepare").arg(at("log.csv")).arg("--out").arg(at(name));
        prepare.args(["--user-column", "who", "--item-column", "what", "--latent-dim", "8"]);
        stdout(prepare.args(["--test-share", "0", "--validation-share", share]));
    };
    let train = |data: &str, out: &str| {
        let mut train = slate();
        train.args(["train", "--steps", "4", "--set", "evaluation.count=2", "--samples", "4"]);
        train.arg("--data").arg(at(data)).arg("--out").arg(at(out));
        train
    };
    prepare("data", "0.2");
    let text = stdout(&mut train("data", "one"));
    // Four steps gain nothing beyond chance.
    assert_says(&text, &["no checkpoint is above the start by more than chance: the start is"]);
    assert_eq!(json(&mut train("data", "two"))["note"], CHOSEN);
    // Without test users the validation users are judged on, and the report says so.
    let mut evaluate = slate();
    let report = json(evaluate.arg("evaluate").arg(at("one")));
    assert_eq!((&report["split"], &report["note"]), (&"validation".into(), &CHOSEN.into()));

    // Without validation users nobody chose.
    prepare("nobody", "0");
    let report = json(&mut train("nobody", "three"));
    assert!(report["best"].is_null() && report["note"].is_null(), "{report}");
    let output = train("nobody", "four").output().unwrap();
    let (text, warned) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    assert_says(&text.unwrap(), &["no validation user chose a checkpoint: the last is"]);
    let warned = warned.unwrap();
    assert_says(&warned, &["no validation user judges this run", "--validation-share"]);
    assert_eq!(warned.matches("evaluation.patience").count(), 1, "{warned}");
}

#[test]
fn prepared_tables_are_as_promised() {
    let (_folder, data, _) = trained();
    let describe = |name: &str| {
        let table = table(&data.join(name));
        let columns = table.columns().iter().map(|c| format!("{}: {}", c.name(), c.dtype()));
        columns.collect::<Vec<_>>().join(", ")
    };
    insta::assert_snapshot!(describe("interactions.parquet"), @"context: u32, action: u32, hidden: bool, split: str");
    insta::assert_snapshot!(describe("contexts.parquet"), @"context: u32, user_id: str");
    insta::assert_snapshot!(describe("actions.parquet"), @"action: u32, item_id: str");
    let interactions = table(&data.join("interactions.parquet"));
    let rows = fs_err::read_to_string(data.with_file_name("log.csv")).unwrap().lines().count() - 1;
    assert_eq!(interactions.height(), rows);
}

#[test]
fn a_movielens_folder_has_titles() {
    let folder = tempfile::tempdir().unwrap();
    let (release, data, run) =
        (folder.path().join("ml-tiny"), folder.path().join("data"), folder.path().join("run"));
    fs_err::create_dir(&release).unwrap();
    let (mut ratings, mut movies) =
        (String::from("userId,movieId,rating,timestamp\n"), String::from("movieId,title,genres\n"));
    for user in 1..=50 {
        for movie in 0..24 {
            let rating = if movie < 22 { "4.5" } else { "1.0" };
            ratings += &format!("{user},{},{rating},9\n", 1 + (user * 5 + movie) % 30);
        }
    }
    for movie in 1..=30 {
        movies += &format!("{movie},\"Film {movie}, The (1995)\",Drama|War\n");
    }
    fs_err::write(release.join("ratings.csv"), ratings).unwrap();
    fs_err::write(release.join("movies.csv"), movies).unwrap();

    let mut prepare = slate();
    prepare.arg("prepare").arg(&release).arg("--out").arg(&data).arg("--force");
    prepare.args([
        "--min-rating",
        "4",
        "--latent-dim",
        "6",
        "--preset",
        "paper",
        "--recall",
        "0.9",
    ]);
    let hint = stdout(&mut prepare);
    let report = json(&mut prepare);
    assert_eq!(report["statistics"]["interactions"], 50 * 22);
    assert_eq!(report["statistics"]["test"]["users"], 0); // as the preset has it
    assert!(report["recall"]["recall"].as_f64().unwrap() > 0.5);
    let ef = report["tuning"]["ef_search"].as_u64().unwrap();
    assert_says(
        &hint,
        &["--preset paper", &format!("ef_search {ef} is the least with recall 0.9")],
    );
    let mut train = slate();
    train.args(["train", "--preset", "paper", "--epochs", "3", "--data"]).arg(&data);
    stdout(train.arg("--out").arg(&run));
    // The run takes what the preparation has found.
    let settings = fs_err::read_to_string(run.join("run.toml")).unwrap();
    assert_says(&settings, &[&format!("ef_search = {ef}\n")]);
    let text = stdout(slate().arg("recommend").arg(&run).args(["--user", "7"]));
    assert_eq!(text.matches(", The (1995)").count(), 5, "{text}");
    // The first genre is the group.
    let mut mixed = slate();
    mixed.arg("recommend").arg(&run).args(["--user", "7", "--max-per-group", "2"]);
    assert_eq!(stdout(&mut mixed).lines().count(), 2);
    let error = refused(slate().arg("evaluate").arg(&run).args(["--split", "test"]));
    assert_says(&error, &["data", "no user is in the test split"]);
}

#[test]
fn the_build_describes_itself() {
    assert_says(&stdout(slate().arg("--help")), &["prepare", "train", "demo", "completions"]);
    assert_says(&stdout(slate().args(["train", "--help"])), &["--resume", "--set <KEY=VALUE>"]);
    assert_says(&stdout(slate().arg("--version")), &[env!("CARGO_PKG_VERSION")]);
    assert_says(&stdout(slate().args(["completions", "bash"])), &["_slate", "--min-rating"]);
    let build = json(slate().arg("info"));
    let devices: Vec<_> = build["devices"].as_array().unwrap().iter().collect();
    assert_eq!(devices, fast_slate::device::compiled());
    assert_eq!(build["train"], true);
    slate().arg("recommend").arg("run").assert().code(2); // neither --user nor --items
}

#[cfg(unix)]
#[test]
fn readers_may_go_away() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    small(&data);
    let train = format!(
        "train --steps 20 --set evaluation.patience=0 --data {} --out {} 2>&1 >/dev/null",
        data.display(),
        run.display()
    );
    let error = format!("evaluate {} 2>&1", folder.path().display());
    for (args, code) in [
        ("completions bash", "0"),
        ("--help", "0"),
        ("info --json", "0"),
        (train.as_str(), "0"),
        (error.as_str(), "2"),
    ] {
        // The reader of the pipe is gone before anything is written.
        let status = folder.path().join("status");
        let script = format!(
            "exec 3> {0}; (until [ -e {0}.closed ]; do sleep 0.01; done; {1} {args}; echo $? >&3) \
             | (exec <&-; touch {0}.closed)",
            status.display(),
            env!("CARGO_BIN_EXE_slate")
        );
        Command::new("bash").args(["-c", &script]).assert().success();
        assert_eq!(fs_err::read_to_string(&status).unwrap().trim(), code, "{args}");
        fs_err::remove_file(folder.path().join("status.closed")).unwrap();
    }
    assert_eq!(fast_slate::run::RunFolder::new(&run).checkpoints().unwrap().last(), Some(&20));
}

#[test]
fn nothing_is_coloured_where_nobody_sees_it() {
    let (_folder, _, run) = trained();
    let output = slate().env_remove("NO_COLOR").arg("evaluate").arg(&run).output().unwrap();
    assert!(!output.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn variance_compares_methods_and_says_what_there_is_none_of() {
    let (_folder, data, run) = trained();
    let asked = |draws: &str, methods: &str| {
        let mut variance = slate();
        variance.arg("variance").arg(&data).args(["--draws", draws, "--sample-sizes", "2"]);
        variance.args(["--methods", methods, "--slate-sizes", "1,3"]);
        variance.args(["--set", "optimizer.batch_size=8"]);
        variance
    };
    let variance = || asked("4", "lgp,pl-rank,fopo");
    let text = stdout(&mut variance());
    assert_eq!(text.lines().count(), 1 + 2 * 3, "{text}");
    assert_says(&text, &["variance", "signal/noise", "  1    2  fopo ", "slates of one action"]);

    let cells = json(&mut variance());
    let find = |method: &str, slate_size: u64| {
        let is = |cell: &&Value| cell["method"] == method && cell["slate_size"] == slate_size;
        cells.as_array().unwrap().iter().find(is).unwrap()
    };
    for (method, slate_size) in [("lgp", 1), ("lgp", 3), ("pl-rank", 1), ("pl-rank", 3)] {
        let cell = find(method, slate_size);
        assert!(cell["variance"].as_f64().unwrap() > 0.0, "{cell}");
        assert_eq!((&cell["draws"], &cell["batch_size"]), (&4.into(), &8.into()));
    }
    assert!(find("fopo", 3)["refused"].as_str().unwrap().contains("slates of one action"));

    // At a trained θ the same draws give another gradient.
    let at_run = json(variance().args(["--checkpoint", "last", "--run"]).arg(&run));
    assert_ne!(at_run, cells);
    let error = refused(variance().args(["--set", "embedding.power=1", "--run"]).arg(&run));
    assert_says(&error, &["its model is another one: embedding.power: 0.25 → 1", "--config"]);
    assert_says(&refused(&mut asked("1", "lgp")), &["at least 2 draws"]);
    assert_says(&refused(asked("4", "lgp").args(["--samples", "3"])), &["--sample-sizes"]);
    let output = asked("4", "lpg").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_says(&error, &["no method `lpg`", "lgp-mips"]);
}

#[test]
fn the_width_found_for_a_recall_has_it_in_training() {
    let (folder, data, _run) = trained();
    let poor = ["retrieval.hnsw.connectivity=2", "retrieval.hnsw.ef_construction=4"];
    let with_poor = |command: &mut Command| {
        command.args(poor.iter().flat_map(|set| ["--set", set]));
    };
    let mut bench = slate();
    bench.args(["bench", "recall", "--recall", "0.9"]).arg(&data);
    with_poor(&mut bench);
    let text = stdout(&mut bench);
    let found = json(&mut bench);
    let ef = found["ef_search"].as_u64().unwrap();
    let set = format!("retrieval.hnsw.ef_search={ef}");
    assert_says(&text, &[&format!("train with\n  --set {set}"), "ef_search  recall"]);
    // A search narrower than K would be one of K.
    assert!(ef > 5, "{text}");

    let run = folder.path().join("wide");
    let mut train = slate();
    train.args(["train", "--steps", "1", "--set", &set, "--data"]).arg(&data);
    train.args(["--set", "context.folds=0"]); // folds are searched exactly
    with_poor(&mut train);
    stdout(train.arg("--out").arg(&run));
    let rows = fs_err::read_to_string(run.join("metrics.jsonl")).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let audited = rows.into_iter().find(|row| row["kind"] == "recall").unwrap();
    assert!(audited["recall"].as_f64().unwrap() >= 0.9, "{audited}");

    let mut bench = slate();
    bench.args(["bench", "recall", "--recall", "0.9", "--set", "method.kind=lgp"]).arg(&data);
    assert_says(&refused(&mut bench), &["retrieval.hnsw.ef_search", "does not search the graph"]);
}

#[test]
fn a_benchmark_divides_a_step_into_its_parts() {
    let (_folder, data, _run) = trained();
    for (method, parts) in [
        (
            &[][..],
            &["forward", "noise", "retrieval", "reward", "estimator", "backward", "optimiser"][..],
        ),
        (&["--method", "pl-rank"], &["forward", "sampling", "backward", "optimiser"]),
    ] {
        let mut bench = slate();
        bench.args(["bench", "step", "--steps", "5"]).arg(&data).args(method);
        let text = stdout(&mut bench);
        assert_says(&text, &["5 steps, ", "a step"]);
        assert_says(&text, parts);

        let measured = json(&mut bench);
        let of_parts = measured["parts"].as_array().unwrap();
        let names: Vec<_> = of_parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), parts.len() + 1, "{names:?}");
        assert_eq!(names.last(), Some(&"other"));
        let shares = of_parts.iter().map(|part| part["share"].as_f64().unwrap());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6, "{measured}");
    }
}

#[test]
fn a_benchmark_times_the_search_that_training_uses() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    small(&data);
    let bench = |sets: &[&str]| {
        let mut bench = slate();
        bench.args(["bench", "step", "--steps", "10", "--samples", "100"]).arg(&data);
        for set in ["method.kind=lgp", "method.candidates=10"].iter().chain(sets) {
            bench.args(["--set", set]);
        }
        bench
    };
    let retrieval = |report: &Value| {
        let parts = report["parts"].as_array().unwrap();
        let part = parts.iter().find(|part| part["name"] == "retrieval").unwrap();
        part["milliseconds"].as_f64().unwrap()
    };
    // Noise far larger than h: ten candidates hold little of the samples' top.
    let noisy = "method.sigma=relative(10)";
    let text = stdout(&mut bench(&[noisy]));
    assert_says(&text, &["shared candidates hold", "% of the true top 5, less than 98.0 %"]);
    assert_says(&text, &["training searches for every sample, and so did these steps"]);
    let fallen_back = json(&mut bench(&[noisy]));
    assert_eq!(fallen_back["candidates"]["used"], false);
    // Whoever asks for no coverage keeps sharing, which is faster.
    let any = json(&mut bench(&[noisy, "method.coverage=0.0"]));
    assert_eq!(any["candidates"]["used"], true);
    assert!(retrieval(&fallen_back) > 2.0 * retrieval(&any), "{fallen_back} {any}");
    let none = json(&mut bench(&[noisy, "method.candidates=0"]));
    assert!(none["candidates"].is_null());
    assert!(retrieval(&none) > 2.0 * retrieval(&any), "{none} {any}");
}

#[test]
fn a_search_benchmark_has_a_row_for_every_size() {
    let mut bench = slate();
    bench.args(["bench", "search", "--actions", "300,1000", "--latent-dim", "8"]);
    bench.args(["--queries", "1,40", "--slate-size", "3", "--repetitions", "1"]);
    assert_says(&stdout(&mut bench), &["L = 8", "a plain product: ", " GFLOP/s"]);
    let measured = json(&mut bench);
    let product = measured["product_gflops"].as_f64().unwrap();
    let searches = measured["searches"].as_array().unwrap();
    let number = |search: &serde_json::Value, name: &str| search[name].as_f64().unwrap();
    let sizes =
        searches.iter().map(|search| (number(search, "actions"), number(search, "queries")));
    let expected = [(300.0, 1.0), (300.0, 40.0), (1000.0, 1.0), (1000.0, 40.0)];
    assert!(sizes.eq(expected), "{measured}");
    for search in searches {
        let work = 2.0 * 8.0 * number(search, "actions") * number(search, "queries");
        let gflops = number(search, "gflops");
        assert!((gflops * number(search, "milliseconds") / (1e-6 * work) - 1.0).abs() < 1e-6);
        assert!((number(search, "share") * product / gflops - 1.0).abs() < 1e-6);
    }
    let error = refused(bench.args(["--slate-size", "301"]));
    assert_says(&error, &["--slate-size", "300"]);
}
