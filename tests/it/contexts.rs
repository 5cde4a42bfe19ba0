//! Times and features of users are read with the log and kept in the prepared folder; training,
//! evaluation and recommendation see the same ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assert_cmd::Command;
use fast_slate::bundle::{Options, Recommender, VectorScalar, Who};
use fast_slate::dataset::Split;
use fast_slate::embedding::{FoldIn, FoldInOptions};
use fast_slate::encoder::{ContextSettings, EncoderKind, Known};
use fast_slate::facade::Policy;
use fast_slate::matrix::{Matrix, dot, norm};
use fast_slate::prepared::Prepared;
use fast_slate::retrieval::Queries;
use fast_slate::run::Which;
use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate::task::Task;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{assert_says, log_csv, names, parameters, refused, slate, stdout};

/// The log of `common` with times, and a table of its users, of whom u5 is missing.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        log_csv(&place.path("stars.csv"));
        let stars = fs_err::read_to_string(place.path("stars.csv")).unwrap();
        let mut log = String::from("who,what,when\n");
        for (at, line) in stars.lines().skip(1).enumerate() {
            let (pair, _) = line.rsplit_once(',').unwrap();
            log += &format!("{pair},{}\n", 1_600_000_000 + at * 7919 % 1009 * 20_000);
        }
        fs_err::write(place.path("log.csv"), log).unwrap();
        let mut users = String::from("id,taste,age\n");
        for user in (0..60).rev().filter(|user| *user != 5) {
            users += &format!("u{user},{},{}\n", ["even", "odd"][user % 2], 20 + user);
        }
        fs_err::write(place.path("users.csv"), users).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prepare(&self, args: &[&str]) -> Command {
        let mut command = slate();
        command.current_dir(self.folder.path());
        command.args(["prepare", "log.csv", "--out", "data", "--force", "--latent-dim", "8"]);
        command.args(["--user-column", "who", "--item-column", "what"]).args(args);
        command
    }

    /// Prepares times and features.
    fn prepared(&self) -> Prepared {
        stdout(&mut self.prepare(&[&TIMES[..], &FEATURES].concat()));
        Prepared::open(&self.path("data")).unwrap()
    }

    fn train(&self, run: &str, args: &[&str]) -> Command {
        let mut command = slate();
        command.current_dir(self.folder.path()).args(["train", "--data", "data", "--out", run]);
        let budget = ["--set", "budget.amount=30", "--set", "evaluation.count=3"];
        command.args(budget).args(args);
        command
    }
}

const TIMES: [&str; 2] = ["--time-column", "when"];
const FEATURES: [&str; 4] = ["--user-features", "users.csv", "--feature-id-column", "id"];
/// Settings that look at both.
const BOTH: [&str; 6] = [
    "--set",
    "context.encoders=[\"weighted-mean\", \"features\"]",
    "--set",
    "context.recency=1",
    "--set",
    "optimizer.learning_rate=0.05",
];

/// u7's slate, by `recommend`.
fn recommended(policy: &Policy, user: &str) -> Vec<String> {
    let answer = policy.recommend(user).unwrap();
    answer.slate.into_iter().map(|item| item.item_id).collect()
}

#[test]
fn a_recommendation_is_the_decision_for_what_is_known() {
    let place = Place::new();
    let prepared = place.prepared();
    stdout(&mut place.train("run", &BOTH));
    let policy = Policy::open(&place.path("run"), Which::Last, None).unwrap();
    let task = &policy.task;
    // Two means, the second for the balance of tastes.
    assert_eq!(task.contexts.cols(), 8 + 8 + 3);

    // The row of u7 in the tables on disk.
    let ids = fast_slate::dataset::Catalogue::read(prepared.folder()).unwrap();
    let context = ids.context_of("u7").unwrap();
    let log = fs_err::read_to_string(place.path("log.csv")).unwrap();
    let mut known: Vec<(u32, i64)> = log
        .lines()
        .filter_map(|line| line.strip_prefix("u7,")?.split_once(','))
        .map(|(item, time)| (ids.items.ids.number(item).unwrap(), time.parse().unwrap()))
        .collect();
    known.sort_unstable();
    let (actions, times): (Vec<u32>, Vec<i64>) = known.into_iter().unzip();
    let features = prepared.features().unwrap().unwrap();
    let encode = |known| {
        let mut encoded = Matrix::zeros(1, 19);
        task.encoder.encode(known, encoded.row_mut(0));
        encoded
    };
    let all = Known {
        actions: &actions,
        times: Some(&times),
        features: Some(features.row(context as usize)),
    };
    let decide = |known| {
        let latent = policy.model.latent(&encode(known)).unwrap();
        let excluded = Some(&[actions.as_slice()][..]);
        let slates =
            task.exact.search(Queries { latent: &latent, slate_size: 5, excluded }).unwrap();
        slates
            .slate(0)
            .iter()
            .map(|&action| ids.items.ids.id(action).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(recommended(&policy, "u7"), decide(all));
    // And each part of it is looked at.
    assert_ne!(encode(Known { times: None, ..all }), encode(all));
    assert_ne!(encode(Known { features: None, ..all }), encode(all));
    let text = stdout(slate().arg("recommend").arg(place.path("run")).args([
        "--user",
        "u7",
        "--checkpoint",
        "last",
    ]));
    let printed: Vec<_> =
        text.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(printed, decide(all));

    // Somebody new has items only.
    let item_ids: Vec<String> = actions.iter().map(|&a| ids.items.ids.id(a).to_owned()).collect();
    let new = policy.recommend_after(&item_ids).unwrap();
    let new: Vec<_> = new.slate.into_iter().map(|item| item.item_id).collect();
    let places: Vec<i64> = (0..).take(actions.len()).collect();
    assert_eq!(new, decide(Known { times: Some(&places), features: None, ..all }));

    // A bundle knows as much.
    let bundle = place.path("bundle");
    policy.bundle(true).unwrap().write(&bundle, VectorScalar::F32, false).unwrap();
    let device = fast_slate::device::choose(None).unwrap().device;
    let bundled = Recommender::open(&bundle, &device).unwrap();
    let user = Who::User { id: "u7".into(), newer: Vec::new() };
    let answers = bundled.recommend(&[user.into()], &Options::default()).unwrap();
    assert_eq!(answers[0], policy.recommend("u7").unwrap());

    // A context of the task has its observed actions and their times.
    let (sessions, times) = (&task.sessions, prepared.times().unwrap().unwrap());
    let observed = Known {
        actions: sessions.observed.of(context),
        times: Some(sessions.observed.values_of(context, &times.observed)),
        features: all.features,
    };
    assert_eq!(task.contexts.row(context as usize), encode(observed).row(0));
}

#[test]
fn contexts_of_folds_are_in_the_space_of_all_and_have_everybodys_features() {
    let place = Place::new();
    let prepared = place.prepared();
    let mut builder = SettingsBuilder::new(&prepared.preset(Preset::Default)).unwrap();
    for set in
        ["context.encoders=[\"weighted-mean\",\"features\",\"mean\"]", "context.popularity_power=0"]
    {
        builder = builder.assignment(set).unwrap();
    }
    let task = Task::load(&prepared, &builder.build().unwrap()).unwrap();
    assert_eq!((task.num_folds(), task.contexts.cols()), (5, 8 + 8 + 3 + 8));
    let features = prepared.features().unwrap().unwrap();
    let times = prepared.times().unwrap().unwrap();
    for context in task.sessions.contexts(Split::Train) {
        let known = Known {
            actions: task.sessions.observed.of(context),
            times: Some(task.sessions.observed.values_of(context, &times.observed)),
            features: Some(features.row(context as usize)),
        };
        let mut all = Matrix::zeros(1, 27);
        task.encoder.encode(known, all.row_mut(0));
        let row = task.contexts.row(context as usize);
        assert_eq!(row[16..19], all.row(0)[16..19]);
        // Without weights both means have one direction, before the features and behind them.
        let cosine = |a: &[f32], b: &[f32]| dot(a, b) / (norm(a) * norm(b));
        for row in [row, all.row(0)] {
            assert!(cosine(&row[..8], &row[19..]) > 0.9999, "{row:?}");
        }
    }
}

#[test]
fn features_do_not_move_the_first_decision() {
    let place = Place::new();
    place.prepared();
    let decisions = |run: &str, args: &[&str]| {
        stdout(&mut place.train(run, args));
        let policy = Policy::open(&place.path(run), Which::Last, None).unwrap();
        let contexts = policy.task.sessions.contexts(Split::Train);
        let slates =
            |model| policy.task.decide(model, &contexts, policy.task.exact.as_ref()).unwrap();
        let slates = [slates(&policy.initial), slates(&policy.model)];
        slates.map(|slates| (0..contexts.len()).flat_map(|i| slates.slate(i).to_vec()).collect())
    };
    let mean = "context.encoders=[\"mean\"]";
    let rate = ["--set", "optimizer.learning_rate=0.05", "--set", mean];
    let [start, end]: [Vec<u32>; 2] = decisions("without", &rate);
    let features = ["--set", "context.encoders=[\"mean\", \"features\"]"];
    let [start_with, end_with] = decisions("with", &[&rate[..], &features].concat());
    assert_eq!(start_with, start);
    assert_ne!(end_with, end);
}

#[test]
fn a_run_with_any_encoder_is_resumed_exactly() {
    let place = Place::new();
    let prepared = place.prepared();
    let every = "context.encoders=[\"weighted-mean\",\"mean\",\"fold-in\",\"features\"]";
    for args in [&BOTH[..], &["--set", every, "--set", "context.recency=0.5"]] {
        // Only such a run may be given a larger budget.
        let free = [
            "optimizer.schedule=constant",
            "optimizer.growth=1",
            "method.candidates=0",
            "evaluation.patience=0",
        ];
        let free = free.map(|set| ["--set", set]).concat();
        let constant = [args, &free].concat();
        stdout(&mut place.train("whole", &constant));
        // Both evaluate every 10 steps.
        let mut part = place.train("part", &[]);
        let budget = ["--set", "budget.amount=20", "--set", "evaluation.count=2"];
        part.args(&constant).args(budget);
        stdout(&mut part);
        let mut resume = slate();
        resume.args(["train", "--resume", "--steps", "30", "--out"]).arg(place.path("part"));
        stdout(&mut resume);
        let of = |run: &str| parameters(&prepared, &place.path(run));
        assert!(of("part") == of("whole"), "the parameters differ");
        for run in ["whole", "part"] {
            fs_err::remove_dir_all(place.path(run)).unwrap();
        }
    }
}

#[test]
fn als_brings_its_own_users() {
    let place = Place::new();
    let als = ["--embeddings", "als", "--confidence", "3", "--regularization", "0.5"];
    stdout(&mut place.prepare(&als));
    let prepared = Prepared::open(&place.path("data")).unwrap();
    let context = |preset| prepared.preset(preset).context;
    for preset in [Preset::Default, Preset::Paper] {
        let ContextSettings { confidence, regularization, .. } = context(preset);
        assert_eq!((confidence, regularization), (3.0, 0.5));
    }
    assert_eq!(context(Preset::Default).encoders, [EncoderKind::FoldIn]);
    assert_eq!(context(Preset::Paper).encoders, [EncoderKind::Mean]);

    stdout(&mut place.train("run", &[]));
    let policy = Policy::open(&place.path("run"), Which::Last, None).unwrap();
    let task = &policy.task;
    let options = FoldInOptions { confidence: 3.0, regularization: 0.5 };
    let fold_in = FoldIn::new(Arc::clone(&task.actions), options).unwrap();
    let mut user = [0.0; 8];
    fold_in.encode(task.sessions.observed.of(7), &mut user);
    assert_eq!(task.contexts.row(7), user);
    // Other embeddings can have it too.
    stdout(&mut place.prepare(&[]));
    let fold_in = ["--set", "context.encoders=[\"fold-in\"]"];
    stdout(&mut place.train("other", &fold_in));
    for setting in ["context.confidence=-1", "context.regularization=0"] {
        let error =
            refused(&mut place.train("none", &[&fold_in[..], &["--set", setting]].concat()));
        assert_says(&error, &[&format!("`{}`", setting.split_once('=').unwrap().0), "expected"]);
    }
}

#[test]
fn a_training_that_does_not_look_at_features_says_so() {
    let place = Place::new();
    place.prepared();
    let said = |run: &str, args: &[&str]| {
        let output = place.train(run, args).output().unwrap();
        assert!(output.status.success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        stderr.matches("no encoder looks at the features of users").count()
    };
    assert_eq!((said("plain", &[]), said("both", &BOTH)), (1, 0));
}

#[test]
fn what_a_folder_does_not_have_is_refused_with_the_way_to_get_it() {
    let place = Place::new();
    stdout(&mut place.prepare(&[]));
    for (settings, said) in [
        (
            &BOTH[..],
            &["`context.recency`", "times of interactions", "data", "--time-column NAME"][..],
        ),
        (
            &["--set", "context.encoders=[\"mean\", \"features\"]"],
            &["`context.encoders`", "features of users", "data", "--user-features FILE"],
        ),
        (
            &["--set", "context.encoders=[\"features\", \"mean\"]"],
            &["`context.encoders`", "before"],
        ),
        (
            &["--set", "context.recency=3", "--set", "context.encoders=[\"mean\"]"],
            &["`context.recency`", "weighted-mean"],
        ),
        (&["--set", "context.recency=-1"], &["`context.recency`", "found -1"]),
    ] {
        assert_says(&refused(&mut place.train("run", settings)), said);
        assert!(!place.path("run/run.toml").exists());
    }
    for (args, said) in [
        (&["--time-column", "then"][..], &["log.csv: no column `then`", "who, what, when"][..]),
        (&["--time-column", "what"], &["log.csv: row 1: column `what`", "a time, as a number"]),
        (&["--user-features", "none.csv"], &["none.csv"]),
        (&FEATURES[..2], &["users.csv: no column `who`; the columns are id, taste, age"]),
        (
            &["--user-features", "users.csv", "--feature-id-column", "age"],
            &["users.csv: column `age`: none of its 59 ids", "is a user of the log"],
        ),
    ] {
        assert_says(&refused(&mut place.prepare(args)), said);
    }
}

#[test]
fn another_table_of_users_is_all_that_is_read_again() {
    let place = Place::new();
    let json = |args: &[&str]| -> Value {
        let args = [args, &["--json"]].concat();
        serde_json::from_str(&stdout(&mut place.prepare(&args))).unwrap()
    };
    let digest = || Prepared::open(&place.path("data")).unwrap().digest().to_owned();
    let text = stdout(&mut place.prepare(&FEATURES));
    assert_says(
        &text,
        &[
            "3 features of users: taste (2 categories), age; zeros for 1 users",
            "slate train --data data --out RUN --set 'context.encoders=[\"weighted-mean\", \"features\"]'",
            "(without --set the features of users are not used)",
        ],
    );
    let first = digest();
    let report = json(&FEATURES);
    assert_eq!(report["reused"], serde_json::json!(["sessions", "embeddings", "features"]));
    assert_eq!(report["features"]["users_without_row"], 1);
    assert_eq!(digest(), first);

    let report = json(&[&FEATURES[..], &["--feature-columns", "age"]].concat());
    assert_eq!(report["reused"], serde_json::json!(["sessions", "embeddings"]));
    assert_eq!(report["features"]["width"], 1);
    assert_ne!(digest(), first);
    let info = stdout(slate().arg("info").arg(place.path("data")));
    assert_says(&info, &["[features]", "id_column = \"id\"", "columns = [\"age\"]"]);

    // Without them nothing is left of them.
    json(&[]);
    let left = names(&place.path("data"));
    assert!(!left.iter().any(|name| name.starts_with("features")), "{left:?}");
    assert!(Prepared::open(&place.path("data")).unwrap().features().unwrap().is_none());
    // Nor without a change of anything else.
    assert_eq!(json(&[])["reused"], serde_json::json!(["sessions", "embeddings"]));
    // Times are of the sessions.
    assert_eq!(json(&TIMES)["reused"], serde_json::json!([]));
    assert!(Prepared::open(&place.path("data")).unwrap().times().unwrap().is_some());
}

#[test]
fn damaged_features_are_found() {
    let place = Place::new();
    place.prepared();
    for name in ["features.safetensors", "features.toml"] {
        let path: &Path = &place.path("data").join(name);
        let bytes = fs_err::read(path).unwrap();
        fs_err::write(path, &bytes[..bytes.len() - 1]).unwrap();
        let error = refused(&mut place.train("run", &BOTH));
        assert_says(&error, &[name, "is not what `slate prepare` wrote"]);
        fs_err::write(path, bytes).unwrap();
    }
}
