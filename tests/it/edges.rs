//! Numbers at their edges, and the smallest and strangest data: each has a behaviour that is meant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fast_slate::device;
use fast_slate::error::Result;
use fast_slate::facade::{Policy, Which};
use fast_slate::retrieval::Slates;
use fast_slate::reward::SlateReward;
use fast_slate::run::{RunFolder, RunOrigin};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::Trainer;
use tempfile::TempDir;

use crate::common::{assert_says, refused, slate, small, stdout, table};

/// A prepared folder and what `slate train` makes of it.
struct Place(TempDir);

impl Place {
    /// Pairs of a user and an item, prepared with vectors of `latent_dim` numbers.
    fn new(pairs: &[(String, String)], latent_dim: usize) -> Self {
        let place = Self::unprepared(pairs);
        stdout(&mut place.prepare(&[
            "--embeddings",
            "svd",
            "--latent-dim",
            &latent_dim.to_string(),
        ]));
        place
    }

    fn unprepared(pairs: &[(String, String)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let quoted = |id: &str| format!("\"{}\"", id.replace('"', "\"\""));
        let rows = pairs.iter().map(|(user, item)| format!("{},{}\n", quoted(user), quoted(item)));
        let text: String = std::iter::once("user,item\n".to_owned()).chain(rows).collect();
        fs_err::write(place.at("log.csv"), text).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn prepare(&self, args: &[&str]) -> assert_cmd::Command {
        let mut command = slate();
        command.arg("prepare").arg(self.at("log.csv")).arg("--out").arg(self.at("data"));
        command.args(["--user-column", "user", "--item-column", "item"]);
        command.args(["--min-user-interactions", "1"]).args(args);
        command
    }

    /// Trains for five steps into `run`.
    fn train(&self, args: &[&str]) -> assert_cmd::Command {
        let mut command = slate();
        command.args(["train", "--steps", "5", "--data"]).arg(self.at("data"));
        command.arg("--out").arg(self.at("run")).args(args);
        command
    }

    fn policy(&self) -> Policy {
        Policy::open(&self.at("run"), Which::Last, None).unwrap()
    }
}

/// Each of so many users with `own` of so many items, by turns.
fn pairs(users: usize, items: usize, own: usize) -> Vec<(String, String)> {
    let of = |user: usize| (0..own).map(move |at| (user * 7 + at * (1 + user % 3)) % items);
    let pairs = (0..users).flat_map(|user| of(user).map(move |item| (user, item)));
    pairs.map(|(user, item)| (format!("u{user}"), format!("i{item}"))).collect()
}

const ALL: [&str; 2] = ["--set", "retrieval.exclude_observed=false"];

/// Any hit counts 1, until a call after which the reward is NaN.
#[derive(Debug)]
struct NotForLong {
    calls: AtomicU64,
    until: u64,
}

impl SlateReward for NotForLong {
    fn reward(&self, _: u32, _: &[u32]) -> f32 {
        1.0
    }

    fn rewards(&self, _: &[u32], slates: &Slates) -> Result<Vec<f32>> {
        let is_over = self.calls.fetch_add(1, Ordering::Relaxed) >= self.until;
        let mut rewards = vec![1.0; slates.len()];
        rewards[slates.len() / 2] = if is_over { f32::NAN } else { 1.0 };
        Ok(rewards)
    }
}

fn stopped(folder: &Path, until: u64) -> String {
    let data = small(&folder.join("data"));
    let mut settings = data.preset(Preset::Default);
    (settings.budget.amount, settings.evaluation.count) = (20, 1);
    settings.context.folds = 0;
    let reward = NotForLong { calls: AtomicU64::new(0), until };
    let task = Task::load(&data, &settings).unwrap().with_reward(Arc::new(reward));
    let chosen = device::choose(None).unwrap();
    let run = RunFolder::new(folder.join("run"));
    run.begin(&settings, &RunOrigin::new(&data, chosen.name)).unwrap();
    let trained = Trainer::new(&task, &settings, &run, &chosen.device).train(&mut ());
    trained.unwrap_err().to_string()
}

#[test]
fn a_reward_that_is_no_number_ends_the_run_in_its_step() {
    let folder = tempfile::tempdir().unwrap();
    assert_says(&stopped(folder.path(), 0), &["step 0: rewards of slates: row", "is NaN"]);
    // What came before it is on disk.
    let folder = tempfile::tempdir().unwrap();
    let told = stopped(folder.path(), 7);
    assert_says(&told, &["step ", ": rewards of slates: row", "is NaN, expected a finite number"]);
    assert!(!told.starts_with("step 0"), "{told}");
    let run = RunFolder::new(folder.path().join("run"));
    assert_eq!(run.checkpoint(Which::Last).unwrap().state.step, 0);
}

#[test]
fn parameters_that_overflow_end_the_run_in_the_next_step() {
    let place = Place::new(&pairs(60, 30, 8), 4);
    let huge = ["optimizer.learning_rate=1e30", "optimizer.weight_decay=0"];
    let told = refused(&mut place.train(&huge.map(|set| ["--set", set]).concat()));
    assert_says(&told, &["step 1: query: row 1, column ", "inf, expected a finite number"]);
    assert_eq!(place.policy().recommend("u3").unwrap().slate.len(), 5);
}

#[test]
fn one_user_or_one_item_is_no_matrix() {
    for (log, told) in [(pairs(1, 20, 20), "are 1 and 20"), (pairs(40, 1, 1), "are 32 and 1")] {
        let place = Place::unprepared(&log);
        let said = refused(&mut place.prepare(&["--embeddings", "svd", "--latent-dim", "1"]));
        assert_says(&said, &["an SVD needs two training users and two items", told]);
        let said = refused(&mut place.prepare(&[]));
        assert_says(&said, &["needs training users with observed and hidden items"]);
        assert!(!place.at("data").exists());
    }
}

#[test]
fn a_slate_may_be_the_whole_catalogue_but_not_more() {
    for (slate_size, told) in [("11", None), ("12", None), ("13", Some("only 12 can be chosen"))] {
        let place = Place::new(&pairs(60, 12, 5), 4);
        let mut train = place.train(&[&ALL[..], &["--slate-size", slate_size]].concat());
        if let Some(told) = told {
            assert_says(&refused(&mut train), &[told, "lower `slate_size`"]);
            continue;
        }
        stdout(&mut train);
        let slate = place.policy().recommend_after(&["i1"]).unwrap().slate;
        let different: BTreeSet<_> = slate.iter().map(|item| &item.item_id).collect();
        // K = P + 1 − 1: all but the item that is known, or all but one.
        assert_eq!(different.len(), 11);
    }
}

#[test]
fn who_has_everything_is_shown_nothing_and_counts_nothing() {
    let mut log = pairs(60, 12, 5);
    log.extend((0..12).map(|item| ("all".to_owned(), format!("i{item}"))));
    let place = Place::new(&log, 4);
    stdout(&mut place.train(&["--slate-size", "2"]));
    let policy = place.policy();
    let all: Vec<String> = (0..12).map(|item| format!("i{item}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(policy.recommend_after(&all).unwrap().slate, []);
    assert_eq!(policy.recommend_after(&all[..11]).unwrap().slate.len(), 1);
    stdout(slate().arg("evaluate").arg(place.at("run")).args(["--against", "popularity,item-knn"]));
}

#[test]
fn noise_that_is_hardly_any_draws_the_decision_and_learns_nothing() {
    let place = Place::new(&pairs(60, 30, 8), 4);
    stdout(&mut place.train(&["--set", "method.sigma=\"relative(1e-30)\""]));
    let (start, last) = ("u3", place.policy());
    let begun = Policy::open(&place.at("run"), Which::Step(0), None).unwrap();
    assert_eq!(begun.recommend(start).unwrap().slate, last.recommend(start).unwrap().slate);
    for sigma in ["relative(0)", "relative(-1)", "relative(inf)", "relative(NaN)"] {
        let fresh = Place::new(&pairs(60, 30, 8), 4);
        let told = refused(&mut fresh.train(&["--set", &format!("method.sigma=\"{sigma}\"")]));
        assert_says(&told, &["setting `method.sigma`", "with a positive c"]);
    }
}

#[test]
fn who_is_new_is_shown_what_most_have() {
    let place = Place::new(&pairs(60, 30, 8), 4);
    stdout(&mut place.train(&[]));
    let slate = place.policy().recommend_after(&[] as &[&str]).unwrap().slate;
    let actions = table(&place.at("data").join("actions.parquet"));
    let ids = actions.column("item_id").unwrap().str().unwrap();
    // A context of zeros scores all alike, and equal scores go by number: by popularity.
    let first: Vec<_> = ids.iter().take(5).flatten().collect();
    assert_eq!(slate.iter().map(|item| item.item_id.as_str()).collect::<Vec<_>>(), first);
}

#[test]
fn a_pair_counts_once_however_often_it_is_there() {
    let once = Place::new(&pairs(60, 30, 8), 4);
    let thrice: Vec<_> = pairs(60, 30, 8).iter().flat_map(|pair| vec![pair.clone(); 3]).collect();
    let thrice = Place::new(&thrice, 4);
    for name in ["interactions.parquet", "actions.parquet", "embeddings.safetensors"] {
        let [single, triple] =
            [&once, &thrice].map(|at| fs_err::read(at.at("data").join(name)).unwrap());
        assert_eq!(single, triple, "{name}");
    }
}

#[test]
fn ids_are_kept_letter_by_letter() {
    // Composed and not, right to left, zero-width, no-break, ligature, dotless, escapes, not a number.
    let strange = [
        "é",
        "e\u{301}",
        "日本語",
        "😀",
        "مرحبا",
        "a b",
        "\u{200b}",
        "\u{a0}",
        "#",
        "ß",
        "I",
        "ı",
        "İ",
        "Ω",
        "\u{2126}",
        "ﬁ",
        "-0",
        "007",
        "null",
        "NaN",
        "'",
        "\"",
        ",",
        "\t",
        "\u{feff}x",
        "\u{0}x",
        "\\n",
        "..",
        "/",
    ];
    let log = pairs(60, strange.len(), 8);
    let place = {
        let strange = |id: &str| strange[id[1..].parse::<usize>().unwrap() % strange.len()];
        let user = |id: &str| format!("{}{}", strange(id), &id[1..]);
        let log: Vec<_> = log.iter().map(|(u, i)| (user(u), strange(i).to_owned())).collect();
        Place::new(&log, 4)
    };
    let actions = table(&place.at("data").join("actions.parquet"));
    let ids = actions.column("item_id").unwrap().str().unwrap();
    let kept: BTreeSet<&str> = ids.iter().flatten().collect();
    assert_eq!(kept, strange.into_iter().collect());
    stdout(&mut place.train(&[]));
    let slate = place.policy().recommend_after(&["e\u{301}"]).unwrap().slate;
    assert!(
        slate.iter().all(|item| kept.contains(item.item_id.as_str()) && item.item_id != "e\u{301}")
    );
}
