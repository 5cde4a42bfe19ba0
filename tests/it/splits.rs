//! Splits by time and splits that are given, from the log to the metrics of a benchmark.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use fast_slate::dataset::{Split, read_item_ids, read_user_ids};
use fast_slate::prepared::Prepared;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{assert_says, real_data, refused, slate, stdout};

/// A log of 60 users who walk through 40 items: columns `who`, `what`, `day`; and the walks.
fn walks(folder: &Path) -> (PathBuf, HashMap<String, Vec<String>>) {
    let (path, mut walks) = (folder.join("walks.csv"), HashMap::new());
    let mut text = String::from("who,what,day\n");
    for user in 0..60_u32 {
        let items: Vec<_> =
            (0..8 + user % 9).map(|at| format!("i{}", (user * 7 + at) % 40)).collect();
        // The log is not in the order of time, and what is repeated later is known already.
        text += &format!("u{user},{},{}\n", items[0], 99);
        for (at, item) in items.iter().enumerate().rev() {
            text += &format!("u{user},{item},{}\n", 10 * user % 30 + at as u32);
        }
        walks.insert(format!("u{user}"), items);
    }
    fs_err::write(&path, text).unwrap();
    (path, walks)
}

const COLUMNS: [&str; 4] = ["--user-column", "who", "--item-column", "what"];

/// `slate prepare` into `data`, with 6 numbers an item and everybody.
fn prepare(folder: &Path) -> Command {
    let mut command = slate();
    command.args(["prepare", "--no-index", "--latent-dim", "6", "--min-user-interactions", "1"]);
    command.args(COLUMNS).arg("--out").arg(folder.join("data"));
    command
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

fn timed() -> (TempDir, HashMap<String, Vec<String>>) {
    let folder = tempfile::tempdir().unwrap();
    let (log, walks) = walks(folder.path());
    let time = ["--split", "temporal", "--time-column", "day"];
    let report = json(prepare(folder.path()).arg(log).args(time));
    assert_eq!(report["settings"]["split"]["kind"], "temporal");
    assert_eq!(report["settings"]["split"]["test_share"], 0.2);
    for split in ["train", "validation", "test"] {
        assert_eq!(report["statistics"][split]["users"], 60);
    }
    let pairs: usize = walks.values().map(Vec::len).sum();
    assert_eq!(
        (&report["statistics"]["users"], &report["statistics"]["interactions"]),
        (&60.into(), &pairs.into())
    );
    (folder, walks)
}

#[test]
fn a_split_by_time_is_trained_on_judged_and_served() {
    let (folder, walks) = timed();
    let at = |name: &str| folder.path().join(name);
    let sessions = Prepared::open(&at("data")).unwrap().sessions;
    let users = read_user_ids(&at("data")).unwrap();
    let items = read_item_ids(&at("data")).unwrap();
    assert_eq!(users.len(), 180);
    for (context, user) in (0_u32..).zip(&users) {
        let place = |action: u32| {
            let item = &items[action as usize];
            walks[user].iter().position(|other| other == item).unwrap()
        };
        let places = |set: &[u32]| set.iter().map(|&a| place(a)).collect::<HashSet<_>>();
        let (x, y) = (places(sessions.observed.of(context)), places(sessions.hidden.of(context)));
        // X is the beginning of the walk and Y goes on from there.
        assert_eq!(x, (0..x.len()).collect());
        assert_eq!(y, (x.len()..x.len() + y.len()).collect());
        if sessions.split[context as usize] == Split::Test {
            assert_eq!(x.len() + y.len(), walks[user].len());
        }
    }

    let mut train = slate();
    train.args(["train", "--steps", "20", "--set", "evaluation.count=2", "--data"]);
    stdout(train.arg(at("data")).arg("--out").arg(at("run")));
    let evaluate = |args: &[&str]| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(at("run")).args(args);
        evaluate
    };
    let asked = "recall@5,ndcg@5,hits@5,recall@12,ndcg@12";
    let rows = "popularity,uniform,svd,als,ease,item-knn";
    let plain = json(&mut evaluate(&["--against", rows]));
    assert_eq!((&plain["contexts"], &plain["split"]), (&60.into(), &"test".into()));
    let with = json(&mut evaluate(&["--against", rows, "--metrics", asked]));
    let of = |report: &Value| {
        let against = report["against"].as_array().unwrap().iter().cloned();
        [report.clone(), report["start"].clone()].into_iter().chain(against).collect::<Vec<_>>()
    };
    for (plain, with) in of(&plain).iter().zip(of(&with)) {
        // The slates of the run's size are the beginnings of the longer ones.
        for metric in ["reward", "ndcg", "recall", "hit_rate", "catalogue_coverage"] {
            assert_eq!(plain[metric], with[metric], "{metric}: {with}");
        }
        assert!(plain["recall@5"].is_null());
        for (at_five, metric) in
            [("recall@5", "recall"), ("ndcg@5", "ndcg"), ("hits@5", "hit_rate")]
        {
            assert_eq!(with[at_five], with[metric], "{with}");
        }
        assert!(with["recall@12"].as_f64() > with["recall@5"].as_f64(), "{with}");
        assert!(with["ndcg@12"].as_f64() > Some(0.0), "{with}");
    }
    let text = stdout(&mut evaluate(&["--against", "ease", "--metrics", asked]));
    let table: Vec<&str> = text.split("\n\n").nth(1).unwrap().lines().collect();
    assert_eq!(table[0].split_whitespace().collect::<Vec<_>>().join(","), asked);
    let names = ["policy, step", "its step 0", "ease"];
    assert!(table[1..].iter().zip(names).all(|(row, name)| row.starts_with(name)), "{text}");
    assert_eq!(table[1].split_whitespace().count(), 3 + 5, "{text}");

    // What a user has ever done stays off the slate, and the user is known by all of it.
    let slate_of = json(slate().args(["recommend", "--user", "u3"]).arg(at("run")));
    let shown =
        slate_of["slate"].as_array().unwrap().iter().map(|item| item["item_id"].as_str().unwrap());
    assert!(shown.clone().all(|item| !walks["u3"].iter().any(|other| other == item)));
    let known = walks["u3"].join(",");
    let stranger = json(slate().args(["recommend", "--items", &known]).arg(at("run")));
    assert_eq!(slate_of, stranger);
}

#[test]
fn metrics_that_cannot_be_are_named() {
    let (folder, _) = timed();
    let run = folder.path().join("run");
    let mut train = slate();
    train.args(["train", "--steps", "1", "--data"]).arg(folder.path().join("data"));
    stdout(train.arg("--out").arg(&run));
    let evaluate = |metrics: &str| {
        let mut evaluate = slate();
        evaluate.arg("evaluate").arg(&run).args(["--metrics", metrics]);
        evaluate
    };
    // 40 items, of which a test user has seen 13 of 16.
    let error = refused(&mut evaluate("recall@27,ndcg@28"));
    assert_says(&error, &["`metrics`: ndcg@28: only 27 items can be shown to every user"]);
    for wrong in ["recall", "map@5", "recall@0"] {
        let output = evaluate(wrong).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_says(&stderr, &[&format!("found `{wrong}`"), "such as recall@20"]);
    }
    let report = json(evaluate("recall@20").args(["--index", "--split", "train"]));
    assert!(report["recall@20"].as_f64().unwrap() > 0.0);
}

#[test]
fn given_files_are_taken_at_their_word() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (mut train, mut test) = (String::from("who,what\n"), String::from("who,what\n"));
    for user in 0..60_u32 {
        for place in 0..10 {
            let row = format!("u{user},i{}\n", (user * 7 + place) % 40);
            if place < 7 { &mut train } else { &mut test }.push_str(&row);
        }
    }
    fs_err::write(at("train.csv"), &train).unwrap();
    fs_err::write(at("test.csv"), test + "u0,new\nstranger,i3\n").unwrap();
    let given = || {
        let mut command = slate();
        command.args(["prepare", "--no-index", "--latent-dim", "6"]).args(COLUMNS);
        command.arg("--train").arg(at("train.csv")).arg("--test").arg(at("test.csv"));
        command.arg("--out").arg(at("data"));
        command
    };
    // Nobody has 20 interactions, which a given split does not ask for.
    let report = json(&mut given());
    assert_eq!(report["settings"]["split"]["kind"], "given");
    assert!(report["input"].as_str().unwrap().contains("test.csv"), "{report}");
    let statistics = &report["statistics"];
    assert_eq!((&statistics["users"], &statistics["actions"]), (&60.into(), &41.into()));
    assert_eq!(statistics["interactions"], 601);
    // One of seven is held out for validation; the rest is trained on.
    assert_eq!(
        (&statistics["train"]["interactions"], &statistics["validation"]["interactions"]),
        (&360.into(), &420.into())
    );
    assert_eq!(statistics["test"]["users"], 60);

    // The same settings take the sessions over, others do not.
    let reused = |report: &Value| report["reused"].as_array().unwrap().len();
    assert_eq!(reused(&json(given().arg("--force"))), 2);
    assert_eq!(reused(&json(given().args(["--force", "--validation-share", "0.3"]))), 0);
    fs_err::write(at("validation.csv"), "who,what\nu0,i30\n").unwrap();
    let report = json(given().arg("--force").arg("--validation").arg(at("validation.csv")));
    assert_eq!((reused(&report), &report["statistics"]["validation"]["users"]), (0, &1.into()));
    // Asked for, a least number counts the rows of the train file.
    let error = refused(given().args(["--force", "--min-user-interactions", "8"]));
    assert_says(&error, &["train.csv: at least 8 items per user leaves none"]);
}

#[test]
fn users_with_five_items_count_and_by_the_paper_those_with_twenty() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = "who,what\n".to_owned();
    for user in 0..30 {
        let items = [4, 5, 20][user % 3];
        (0..items).for_each(|item| log += &format!("u{user},i{item}\n"));
    }
    fs_err::write(folder.path().join("walks.csv"), log).unwrap();
    let users = |flags: &[&str]| {
        let mut command = slate();
        command.args(["prepare", "--latent-dim", "2", "--no-index", "--force"]).args(COLUMNS);
        command.arg(folder.path().join("walks.csv")).args(flags);
        command.arg("--out").arg(folder.path().join("data"));
        json(&mut command)["statistics"]["users"].clone()
    };
    assert_eq!(users(&[]), 20);
    assert_eq!(users(&["--preset", "paper"]), 10);
    assert_eq!(users(&["--preset", "paper", "--min-user-interactions", "1"]), 30);
}

#[test]
fn flags_of_another_split_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = walks(folder.path());
    let log = log.to_str().unwrap();
    let refused = |args: &[&str]| {
        let error = refused(prepare(folder.path()).args(args));
        assert!(!folder.path().join("data").exists());
        error
    };
    let by_time = |args: &[&str]| refused(&[&[log, "--time-column", "day"], args].concat());
    let both = refused(&[log, "--train", log, "--test", log]);
    assert_says(&both, &["walks.csv: a log is split here", "give one or the other"]);
    assert_says(&refused(&["--train", log]), &["needs both --train FILE and --test FILE"]);
    assert_says(&refused(&[]), &["Give a log, or --train FILE and --test FILE"]);
    let error = refused(&[log, "--split", "temporal"]);
    assert_says(&error, &["a split by time needs --time-column NAME"]);
    let error = refused(&[log, "--split", "temporal", "--time-column", "year"]);
    assert_says(&error, &["no column `year`; the columns are who, what, day"]);
    let error = by_time(&["--test-after", "20", "--test-share", "0.1"]);
    assert_says(&error, &["--test-share does not go with --test-after"]);
    let error = by_time(&["--test-after", "20", "--validation-after", "20"]);
    assert_says(&error, &["--validation-after 20 has to be before --test-after 20"]);
    assert_says(&by_time(&["--validation-after", "9"]), &["goes with --test-after"]);
    assert_says(&by_time(&["--test-after", "9", "--split", "random"]), &["--split temporal"]);
    let error = by_time(&["--test-after", "2024-01-31"]);
    assert_says(&error, &["no user is left for test", "the log goes from 0 to"]);
    let error = refused(&["--train", log, "--test", log, "--split", "random"]);
    assert_says(&error, &["--split does not go with --train"]);
    let error = refused(&["--train", log, "--test", log]);
    assert_says(&error, &["no user of the test file is in the train file and has rows"]);

    let output = prepare(folder.path()).args([log, "--test-after", "tomorrow"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_says(
        &stderr,
        &["expected a day such as 2024-01-31, a time such as", "found `tomorrow`"],
    );
}

#[test]
fn public_sequences_and_a_published_split_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = |args: &[&str], files: &[PathBuf]| {
        let mut command = slate();
        command.args(["prepare", "--force", "--no-index", "--latent-dim", "8"]).args(args);
        json(command.args(files).arg("--out").arg(folder.path().join("data")))["statistics"].clone()
    };
    let users = |statistics: &Value| {
        ["train", "validation", "test"].map(|split| statistics[split]["users"].as_u64().unwrap())
    };
    if let Some(beauty) = real_data("amazon_beauty/sequences.parquet") {
        let columns =
            ["--user-column", "user_id", "--item-column", "item_id", "--time-column", "t"];
        let columns = [&columns[..], &["--min-user-interactions", "5"]].concat();
        let beauty = [beauty];
        let found = prepared(&[&columns[..], &["--split", "temporal"]].concat(), &beauty);
        assert_eq!(users(&found), [22_363; 3]);
        assert_eq!((&found["interactions"], &found["actions"]), (&198_502.into(), &12_101.into()));
        assert_eq!(found["train"]["interactions"], 133_598);
        let found = prepared(&[&columns[..], &["--test-after", "8"]].concat(), &beauty);
        assert_eq!(users(&found), [22_363, 10_980, 6_489]);
    }
    let files = ["train", "test"].map(|name| real_data(&format!("gowalla_split/{name}.parquet")));
    if let [Some(train), Some(test)] = files {
        let columns = ["--user-column", "user", "--item-column", "item", "--validation-share", "0"];
        let files = ["--train".into(), train, "--test".into(), test];
        let found = prepared(&columns, &files);
        assert_eq!(users(&found), [29_858, 0, 29_858]);
        assert_eq!(
            (&found["interactions"], &found["actions"]),
            (&1_027_370.into(), &40_981.into())
        );
        assert_eq!(found["train"]["interactions"], 810_128);
    }
}
