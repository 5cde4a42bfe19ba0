//! A preparation that is stopped, by whatever, leaves nothing that the next one trips over, and what
//! it has finished is not made again unless something it depends on has changed.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use fast_slate::prepared::Prepared;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{assert_says, names, process, slate, stdout};

/// A log whose SVD takes long enough to be killed in, and what an undisturbed preparation of it is.
struct Place {
    folder: TempDir,
    digest: String,
    seconds: f64,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from("who,what\n");
        for user in 0..1500_u32 {
            for at in 0..20 + user % 9 {
                let item = (user % 30 * 20 + (user / 30 + at * 7) % 45) % 600;
                text += &format!("u{user},i{item}\n");
            }
        }
        fs_err::write(folder.path().join("log.csv"), text).unwrap();
        let mut place = Self { folder, digest: String::new(), seconds: 0.0 };
        let started = Instant::now();
        stdout(&mut place.prepare("whole", &[]));
        place.seconds = started.elapsed().as_secs_f64();
        place.digest = place.digest_of("whole");
        fs_err::remove_dir_all(place.path("whole")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn args(&self, out: &str, args: &[&str]) -> Vec<String> {
        let (log, out) = (self.path("log.csv"), self.path(out));
        let own = ["prepare", log.to_str().unwrap(), "--out", out.to_str().unwrap(), "--json"];
        let columns = ["--user-column", "who", "--item-column", "what"];
        let dim = ["--latent-dim", "60"];
        let dim = if args.contains(&dim[0]) { &[][..] } else { &dim };
        let index = ["--recall", "0.5"];
        own.iter()
            .chain(&columns)
            .chain(dim)
            .chain(&index)
            .chain(args)
            .map(ToString::to_string)
            .collect()
    }

    fn prepare(&self, out: &str, args: &[&str]) -> Command {
        let mut command = slate();
        command.args(self.args(out, args));
        command
    }

    fn start(&self, args: &[&str]) -> Child {
        let mut command = process();
        command.args(self.args("data", args)).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A preparation that was killed when it had the sessions and not yet the embeddings.
    fn killed_in_the_embeddings(&self) {
        let record = self.path(".data.partial/prepare.toml");
        // A machine that stalls this process may let the preparation end: then it is begun again.
        for _ in 0..10 {
            let mut child = self.start(&["--force"]);
            wait_for(&record, &mut child);
            kill(&mut child);
            let made = fs_err::read_to_string(&record).unwrap_or_default();
            if made.contains("interactions.parquet") && !made.contains("embeddings.safetensors") {
                return;
            }
            let _ = fs_err::remove_dir_all(self.path("data"));
        }
        panic!("every preparation ended before it could be killed");
    }

    /// Folds of other sessions, as a preparation that was killed between them and the record leaves them.
    fn folds_of_before(&self) {
        fs_err::create_dir_all(self.path(".data.partial/folds/5-key")).unwrap();
    }

    /// What a preparation reports after it ended as if none had been killed before it.
    fn prepared(&self, args: &[&str]) -> Value {
        let report = serde_json::from_str(&stdout(&mut self.prepare("data", args))).unwrap();
        assert_eq!(names(self.folder.path()), ["data", "log.csv"]);
        let expected = [
            "actions.parquet",
            "choice.toml",
            "contexts.parquet",
            "embeddings.safetensors",
            "index",
            "interactions.parquet",
            "prepare.toml",
        ];
        // A training adds folds.
        let mut found = names(&self.path("data"));
        found.retain(|name| name != "folds");
        assert_eq!(found, expected);
        assert_eq!(names(&self.path("data/index")).len(), 1);
        report
    }

    fn digest_of(&self, name: &str) -> String {
        Prepared::open(&self.path(name)).unwrap().digest().to_owned()
    }

    fn assert_same(&self) {
        assert_eq!(self.digest_of("data"), self.digest);
    }
}

fn wait_for(path: &Path, child: &mut Child) {
    let started = Instant::now();
    while !path.exists() && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_mins(2), "no {}", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `kill -9`.
fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_at_any_time_it_comes_to_the_same_end() {
    let place = Place::new();
    for share in [0.1, 0.3, 0.5, 0.7, 0.8, 0.9] {
        // Each goes on from where the one before it was killed.
        let mut child = place.start(&["--force"]);
        std::thread::sleep(Duration::from_secs_f64(place.seconds * share));
        kill(&mut child);
    }
    place.prepared(&["--force"]);
    place.assert_same();
}

#[test]
fn killed_while_it_builds_the_index_it_can_be_trained_on() {
    let place = Place::new();
    let mut child = place.start(&[]);
    wait_for(&place.path("data/prepare.toml"), &mut child);
    kill(&mut child);
    let mut train = slate();
    train.args(["train", "--steps", "2", "--data"]).arg(place.path("data"));
    stdout(train.arg("--out").arg(place.path("run")));
    fs_err::remove_dir_all(place.path("run")).unwrap();
    // With the index that training built.
    let report = place.prepared(&["--force"]);
    assert_eq!(report["reused"], serde_json::json!(["sessions", "embeddings"]));
    place.assert_same();
}

#[test]
fn what_a_killed_preparation_has_finished_is_reused_and_it_says_so() {
    let place = Place::new();
    place.killed_in_the_embeddings();
    place.folds_of_before();
    let output = place.prepare("data", &[]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_says(&stderr, &["reusing the sessions of an earlier preparation"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["reused"], serde_json::json!(["sessions"]));
    for phase in ["sessions", "embeddings", "written", "index"] {
        assert!(report["phases"][phase].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(!place.path("data/folds").exists());
    place.assert_same();
}

#[test]
fn what_was_made_from_something_else_is_not_reused() {
    let place = Place::new();
    for change in [
        &["--min-user-interactions", "22"][..],
        &["--min-item-interactions", "2"],
        &["--observed-share", "0.4"],
        &["--seed", "1"],
    ] {
        place.killed_in_the_embeddings();
        let args = [&["--force"][..], change].concat();
        assert_eq!(place.prepared(&args)["reused"], serde_json::json!([]), "{change:?}");
        fs_err::remove_dir_all(place.path("data")).unwrap();
    }
    place.killed_in_the_embeddings();
    place.folds_of_before();
    let log = fs_err::read_to_string(place.path("log.csv")).unwrap();
    fs_err::write(place.path("log.csv"), log + "u0,i599\n").unwrap();
    assert_eq!(place.prepared(&[])["reused"], serde_json::json!([]));
    assert!(!place.path("data/folds").exists());
}

#[test]
fn what_was_damaged_is_made_again() {
    let place = Place::new();
    place.killed_in_the_embeddings();
    let flip = |path: &Path| {
        let mut bytes = fs_err::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs_err::write(path, bytes).unwrap();
    };
    flip(&place.path(".data.partial/interactions.parquet"));
    assert_eq!(place.prepared(&[])["reused"], serde_json::json!([]));
    place.assert_same();

    flip(&place.path("data/embeddings.safetensors"));
    assert_eq!(place.prepared(&["--force"])["reused"], serde_json::json!(["sessions"]));
    place.assert_same();
}

#[test]
fn other_embeddings_of_the_same_sessions_do_not_read_the_log_again() {
    let place = Place::new();
    place.prepared(&[]);
    let sessions = fs_err::read(place.path("data/interactions.parquet")).unwrap();
    let report = place.prepared(&["--force", "--latent-dim", "12"]);
    assert_eq!(report["reused"], serde_json::json!(["sessions"]));
    assert_eq!(fs_err::read(place.path("data/interactions.parquet")).unwrap(), sessions);
    assert_ne!(place.digest_of("data"), place.digest);
    let als = ["--force", "--embeddings", "als", "--iterations", "2"];
    for other in [&[][..], &["--confidence", "3"]] {
        let report = place.prepared(&[&als[..], other].concat());
        assert_eq!(report["reused"], serde_json::json!(["sessions"]), "{other:?}");
        let again = place.prepared(&[&als[..], other].concat());
        assert_eq!(again["reused"], serde_json::json!(["sessions", "embeddings"]), "{other:?}");
    }
    place.prepared(&["--force"]);
    place.assert_same();
}

#[test]
fn two_at_the_same_time_do_not_get_in_each_others_way() {
    let place = Place::new();
    let children = [place.start(&[]), place.start(&[])];
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    assert!(outputs.iter().any(|output| output.status.success()));
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let told = ["data: another process is at work on it", "data: is there already"];
        assert!(told.iter().any(|reason| stderr.contains(reason)), "{stderr}");
    }
    assert_eq!(names(place.folder.path()), ["data", "log.csv"]);
    place.assert_same();
}
