//! Folders of earlier versions (tests/data) are read by this one, or one line says what to do.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

use crate::common::{assert_says, refused, slate, stdout};

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs_err::copy(&path, &target).unwrap();
        }
    }
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

fn near(ours: &Value, theirs: &Value) -> bool {
    (ours.as_f64().unwrap() - theirs.as_f64().unwrap()).abs() < 1e-6
}

/// The items and scores of a slate.
fn assert_same_slate(ours: &Value, theirs: &Value) {
    let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours["item_id"], theirs["item_id"]);
        assert!(near(&ours["score"], &theirs["score"]), "{ours} {theirs}");
    }
}

/// The folder `name` is a prepared folder, a run, and what that version said of both.
fn assert_opens(name: &str, slate_of: impl Fn(&Value) -> &Value) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    copy(&kept(name), place.path());
    let at = || {
        let mut command = slate();
        command.current_dir(place.path());
        command
    };
    let said = |file: &str| -> Value {
        serde_json::from_str(&fs_err::read_to_string(place.path().join(file)).unwrap()).unwrap()
    };
    let theirs = said("evaluated.json");
    // The first version evaluated on validation users alone.
    let split = theirs["split"].as_str().unwrap_or("validation");
    let ours = json(at().args(["evaluate", "run", "--split", split]));
    for metric in ["reward", "reward_se", "ndcg", "recall", "hit_rate"] {
        assert!(near(&ours[metric], &theirs[metric]), "{metric}: {ours} {theirs}");
    }
    let ours = json(at().args(["recommend", "run", "--user", "u3"]));
    assert_same_slate(&ours["slate"], slate_of(&said("u3.json")));

    let error = refused(at().args(["train", "--resume", "--out", "run", "--steps", "60"]));
    assert_says(&error, &["run", "of an earlier version", "train again with another --out"]);
    place
}

#[test]
fn folders_of_the_first_version_open() {
    assert_opens("first-version", |said| said);
}

#[test]
fn folders_of_the_first_bundles_open_and_the_bundle_is_exported_again() {
    let place = assert_opens("first-bundle", |said| &said["slate"]);
    let at = || {
        let mut command = slate();
        command.current_dir(place.path());
        command
    };
    let error = refused(at().args(["recommend", "bundle", "--user", "u3"]));
    assert_says(&error, &["bundle.toml", "of format 1", "export the bundle again"]);
    let again = ["export", "run", "--out", "bundle", "--histories", "--index", "--force"];
    at().args(again).args(["--checkpoint", "0"]).assert().success();
    let ours = json(at().args(["recommend", "bundle", "--user", "u3"]));
    let theirs = fs_err::read_to_string(place.path().join("u3b.json")).unwrap();
    let theirs: Value = serde_json::from_str(&theirs).unwrap();
    assert_same_slate(&ours["slate"], &theirs["slate"]);
}
