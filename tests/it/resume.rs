//! A run that is stopped, by whatever, goes on as if it had not been; and never with settings under
//! which it would not have come to where it stands.

use std::path::{Path, PathBuf};

use fast_slate::dataset::Split;
use fast_slate::device;
use fast_slate::prepared::Prepared;
use fast_slate::run::{RunFolder, WarmStart, Which};
use fast_slate::training::MetricsRow;
use tempfile::TempDir;

use crate::common::{
    Training, assert_says, names, parameters, record, refused, slate, small, stdout,
};

/// Long enough to be hit in the middle.
const STEPS: [&str; 2] = ["--steps", "240"];
/// As many: 320 training users in batches of 32.
const EPOCHS: [&str; 2] = ["--epochs", "24"];
/// Steps from one row of metrics to the next, in both.
const INTERVAL: u64 = 20;

/// A folder with prepared data, for runs beside it.
struct Place {
    folder: TempDir,
    prepared: Prepared,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prepared = small(&folder.path().join("data"));
        Self { folder, prepared }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a first start of `args` is given.
    fn args(&self, args: &[&str]) -> Vec<String> {
        let data = self.prepared.folder().to_str().unwrap();
        let sets = ["evaluation.count=12", "evaluation.patience=0"];
        let sets = sets.map(|set| ["--set", set]).concat();
        let own = ["--data", data].into_iter().chain(sets);
        own.chain(args.iter().copied()).map(ToString::to_string).collect()
    }

    /// A run that nothing stops.
    fn trained(&self, name: &str, args: &[&str]) -> PathBuf {
        let run = self.run(name);
        stdout(slate().arg("train").arg("--out").arg(&run).args(self.args(args)));
        run
    }

    /// A training that has passed its first interval and has more before it.
    fn underway(&self, name: &str, args: &[&str]) -> Training {
        let run = self.run(name);
        // A machine that stalls this process may let the training end: then it is begun again.
        for _ in 0..10 {
            let mut training = Training::start(&run, self.args(args));
            if training.passes(0) {
                return training;
            }
            fs_err::remove_dir_all(&run).unwrap();
        }
        panic!("every training ended before it could be stopped");
    }

    /// Two runs came to the same end on the same way.
    fn assert_same(&self, run: &Path, other: &Path) {
        let checkpoint = |run| RunFolder::new(run).checkpoint(Which::Last).unwrap().state;
        let (ours, theirs) = (checkpoint(run), checkpoint(other));
        assert_eq!((ours.step, ours.best), (theirs.step, theirs.best));
        assert_eq!(record(run), record(other));
        assert!(
            parameters(&self.prepared, run) == parameters(&self.prepared, other),
            "the parameters differ"
        );
    }
}

/// Goes on where no GPU has a driver: a run on the CPU needs none.
fn resume(run: &Path) -> assert_cmd::Command {
    let mut command = slate();
    let drivers = [
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "__EGL_VENDOR_LIBRARY_FILENAMES",
        "LIBGL_DRIVERS_PATH",
        "GBM_BACKENDS_PATH",
    ];
    command.envs(drivers.map(|variable| (variable, "/nowhere")));
    command.args(["train", "--resume", "--out"]).arg(run);
    command
}

/// Kills a training twice, and compares what comes of it with one that was left alone.
fn killed_twice(args: &[&str]) {
    killed_twice_at(&Place::new(), args);
}

fn killed_twice_at(place: &Place, args: &[&str]) {
    let whole = place.trained("whole", args);
    let steps: Vec<u64> = record(&whole)
        .iter()
        .filter(|row| matches!(row, MetricsRow::Evaluation { .. }))
        .map(MetricsRow::step)
        .collect();
    let expected = (0..=12).flat_map(|at| [INTERVAL * at; 2]); // validation and training users
    assert_eq!(steps, expected.collect::<Vec<u64>>());

    place.underway("killed", args).kill();
    let killed = place.run("killed");
    let last = *RunFolder::new(&killed).checkpoints().unwrap().last().unwrap();
    assert!(last < 12 * INTERVAL);
    let mut second = Training::start(&killed, ["--resume"]);
    second.passes(last);
    second.kill();
    stdout(&mut resume(&killed));
    place.assert_same(&killed, &whole);
    assert_eq!(names(&killed), names(&whole));
    assert_eq!(names(&killed.join("checkpoints")), names(&whole.join("checkpoints")));
}

/// On every CPU device: what a GPU adds up in which order is not promised.
fn killed_twice_on_cpus(args: &[&str]) {
    for device in device::compiled().into_iter().filter(|name| ["ndarray", "flex"].contains(name)) {
        killed_twice(&[args, &["--device", device]].concat());
    }
}

#[test]
fn a_killed_linear_run_comes_to_the_same_end_in_steps() {
    killed_twice_on_cpus(&[&STEPS[..], &["--set", "tower.kind=linear"]].concat());
}

#[test]
fn a_killed_linear_run_comes_to_the_same_end_in_epochs() {
    killed_twice_on_cpus(&[&EPOCHS[..], &["--set", "tower.kind=linear"]].concat());
}

#[test]
fn a_killed_mlp_run_comes_to_the_same_end_in_steps() {
    killed_twice_on_cpus(&[&STEPS[..], &["--set", "tower.kind=sigmoid-mlp"]].concat());
}

#[test]
fn a_killed_mlp_run_comes_to_the_same_end_in_epochs() {
    killed_twice_on_cpus(&[&EPOCHS[..], &["--set", "tower.kind=sigmoid-mlp"]].concat());
}

#[test]
fn a_killed_residual_run_with_every_extra_comes_to_the_same_end() {
    let sets = [
        "tower.kind=residual-mlp",
        "tower.hidden=[24, 8]",
        "tower.activation=gelu",
        "optimizer.weight_decay=0.1",
        "optimizer.gradient_clipping=0.01",
        "optimizer.growth=3",
    ];
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    killed_twice_on_cpus(&[&STEPS[..], &sets].concat());
}

#[test]
fn a_run_that_began_with_another_ones_model_stands_by_itself() {
    let place = Place::new();
    let first = place.trained("first", &["--steps", "24", "--method", "pl-rank"]);
    let init = ["--init", first.to_str().unwrap()];
    killed_twice_at(&place, &[&STEPS[..], &init].concat());

    let best = RunFolder::new(&first).checkpoint(Which::Last).unwrap().state.best.unwrap();
    let run = place.run("whole");
    let start = record(&run).into_iter().find_map(|row| match row {
        MetricsRow::Evaluation { step: 0, reward, split: Split::Validation, .. } => Some(reward),
        _ => None,
    });
    assert_eq!(start, Some(best.reward));
    let origin = RunFolder::new(&run).read_settings().unwrap().1;
    assert_eq!(
        origin.init,
        Some(WarmStart { run: first.clone(), step: best.step, corrections: Vec::new() })
    );
    assert_says(&stdout(slate().arg("info").arg(&run)), &["began with", "first"]);

    // Gains are over the other run's model, which is kept.
    let evaluate = || stdout(slate().args(["evaluate", "--checkpoint", "last"]).arg(&run));
    let before = evaluate();
    fs_err::remove_dir_all(&first).unwrap();
    assert_eq!(evaluate(), before);
    fs_err::write(run.join("initial/model.bpk"), "nothing").unwrap();
    let error = refused(slate().arg("evaluate").arg(&run));
    assert_says(&error, &["initial: damaged checkpoint", "model.bpk", "--init"]);
}

#[test]
fn another_model_is_no_beginning() {
    let place = Place::new();
    let first = place.trained("first", &["--steps", "12"]);
    let start = |args: &[&str]| {
        let mut command = slate();
        let own = ["--init", first.to_str().unwrap()];
        command.args(["train", "--out"]).arg(place.run("second"));
        command.args(place.args(&own)).args(args);
        command
    };
    for (set, difference) in [
        ("tower.kind=sigmoid-mlp", "tower.kind: \"residual-mlp\" → \"sigmoid-mlp\""),
        ("embedding.power=1", "embedding.power: 0.25 → 1"),
    ] {
        let error = refused(&mut start(&["--set", set]));
        assert_says(&error, &["first: its model is another one", difference]);
    }
    let other = crate::common::small_of(&place.run("other"), 12);
    let mut elsewhere = slate();
    elsewhere.args(["train", "--init"]).arg(&first).arg("--out").arg(place.run("second"));
    let error = refused(elsewhere.arg("--data").arg(other.folder()));
    assert_says(&error, &["first: was trained on", "which holds other data"]);
    let mut nobody = slate();
    nobody.args(["train", "--init", "nobody", "--out"]).arg(place.run("deep/second"));
    assert_says(&refused(nobody.args(place.args(&[]))), &["nobody: no run here"]);
    assert!(!place.run("second").exists() && !place.run("deep").exists());
    // How it is trained is free.
    stdout(&mut start(&["--samples", "3", "--seed", "5", "--steps", "12"]));
    assert_says(&refused(&mut start(&[])), &["second: there is a run here already"]);
}

#[test]
fn a_run_without_a_checkpoint_begins_anew() {
    let place = Place::new();
    let args = ["--steps", "24"];
    let whole = place.trained("whole", &args);
    let killed = place.trained("killed", &args);
    fs_err::remove_dir_all(killed.join("checkpoints")).unwrap();
    let metrics = killed.join("metrics.jsonl");
    let torn = fs_err::read_to_string(&metrics).unwrap() + "{\"kind\":\"evaluation\",\"st";
    fs_err::write(&metrics, torn).unwrap();

    let error = refused(slate().arg("evaluate").arg(&killed));
    assert_says(&error, &["killed", "no checkpoint yet", "slate train --resume"]);
    stdout(&mut resume(&killed));
    place.assert_same(&killed, &whole);
}

#[test]
fn another_checkpoint_does_not_stand_in_for_the_best_one() {
    let place = Place::new();
    // Steps of no length gain nothing, so that the start is the best.
    let still = ["--steps", "24", "--set", "optimizer.learning_rate=1e-30"];
    let run = place.trained("run", &still);
    assert_eq!(RunFolder::new(&run).checkpoint(Which::Best).unwrap().state.step, 0);
    fs_err::remove_dir_all(run.join("checkpoints/step-000000000")).unwrap();
    let error = refused(slate().arg("evaluate").arg(&run));
    assert_says(&error, &["run: its best checkpoint, of step 0, is gone", "--checkpoint"]);
    stdout(slate().arg("evaluate").arg(&run).args(["--checkpoint", "last"]));
}

#[test]
fn a_finished_run_stays_as_it_is() {
    let place = Place::new();
    let run = place.trained("run", &["--steps", "24"]);
    let before = fs_err::read_to_string(run.join("metrics.jsonl")).unwrap();
    let report: serde_json::Value =
        serde_json::from_str(&stdout(resume(&run).arg("--json"))).unwrap();
    assert_eq!((&report["ending"], &report["step"]), (&"finished".into(), &24.into()));
    assert_eq!(fs_err::read_to_string(run.join("metrics.jsonl")).unwrap(), before);
}

#[test]
fn what_was_not_yet_removed_when_a_run_was_killed_is_removed() {
    let place = Place::new();
    let run = place.trained("run", &STEPS);
    let checkpoints = run.join("checkpoints");
    let kept = names(&checkpoints);
    let older = checkpoints.join("step-000000001");
    fs_err::create_dir(&older).unwrap();
    for name in names(&checkpoints.join("step-000000240")) {
        fs_err::copy(checkpoints.join("step-000000240").join(&name), older.join(&name)).unwrap();
    }
    stdout(&mut resume(&run));
    assert_eq!(names(&checkpoints), kept);
}

#[test]
fn ctrl_c_leaves_a_checkpoint_and_says_how_to_go_on() {
    let place = Place::new();
    let whole = place.trained("whole", &STEPS);
    let run = place.run("interrupted");
    // SIGTERM is how systems for batches of jobs stop one.
    for signal in ["-INT", "-TERM"] {
        let mut interrupted = None;
        for _ in 0..10 {
            let (code, stdout) = place.underway("interrupted", &STEPS).interrupt(signal);
            if code == Some(130) {
                interrupted = Some(stdout);
                break;
            }
            assert_eq!(code, Some(0), "{stdout}");
            fs_err::remove_dir_all(&run).unwrap();
        }
        let said = interrupted.expect("every training ended before it could be interrupted");
        let last = RunFolder::new(&run).checkpoint(Which::Last).unwrap().state.step;
        assert_says(&said, &[&format!("interrupted at step {last};")]);
        let mut command = said.lines().last().unwrap().split_whitespace();
        assert_eq!(command.next(), Some("slate"));
        stdout(slate().args(command));
        // The checkpoints need not be the same: the one of the interruption counts among those kept.
        place.assert_same(&run, &whole);
        fs_err::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn other_settings_are_refused_by_name() {
    let place = Place::new();
    let run = place.trained("run", &["--steps", "12"]);
    let settings = fs_err::read_to_string(run.join("run.toml")).unwrap();
    for (args, difference) in [
        (&["--set", "method.samples=3"][..], "method.samples: 30 → 3"),
        (&["--samples", "3", "--seed", "7"], "seed: 0 → 7"),
        (&["--steps", "24"], "budget.amount: 12 → 24"),
        (&["--epochs", "12"], "budget.unit: \"steps\" → \"epochs\""),
    ] {
        let error = refused(resume(&run).args(args));
        assert_says(&error, &["run: resuming", difference, "resume with what it was started with"]);
    }
    // How much is kept is nobody's path.
    stdout(resume(&run).args(["--set", "checkpoint.keep=1"]));
    let kept = fs_err::read_to_string(run.join("run.toml")).unwrap();
    assert_eq!(kept, settings.replace("keep = 2", "keep = 1"));
}

#[test]
fn a_run_goes_on_with_as_many_folds_as_it_began_with() {
    let place = Place::new();
    let run = place.trained("run", &["--steps", "12"]);
    let state = run.join("checkpoints/step-000000012/state.toml");
    let text = fs_err::read_to_string(&state).unwrap();
    assert_says(&text, &["folds = 5"]);
    // As if it had begun where there was memory for two.
    fs_err::write(&state, text.replace("folds = 5", "folds = 2")).unwrap();
    let before = record(&run);
    let error = refused(&mut resume(&run));
    assert_says(&error, &["run: began with 2 folds", "5 are made now", "resume it where it began"]);
    assert_eq!(record(&run), before);
}

#[test]
fn a_run_of_an_earlier_version_can_be_evaluated_but_not_continued() {
    let place = Place::new();
    let run = place.trained("run", &["--steps", "12"]);
    let evaluate = || {
        let mut command = slate();
        command.arg("evaluate").arg(&run);
        command
    };
    let today = stdout(&mut evaluate());
    let path = run.join("run.toml");
    let settings = fs_err::read_to_string(&path).unwrap();
    let before = settings
        .replace("format = 4", "format = 2")
        .replace("recency = 0.0", "half_life = 0.0")
        .replace("[method]\n", "[method]\ncoupling = \"independent\"\n");
    fs_err::write(&path, &before).unwrap();
    assert_eq!(stdout(&mut evaluate()), today);
    assert_says(&refused(&mut resume(&run)), &["run: is a run of an earlier version"]);
    fs_err::write(&path, before.replace("\"independent\"", "\"antithetic\"")).unwrap();
    assert_says(&refused(&mut evaluate()), &["run.toml", "`method.coupling`", "couple noise"]);
    fs_err::write(&path, before.replace("half_life = 0.0", "half_life = 7.0")).unwrap();
    assert_says(&refused(&mut evaluate()), &["run.toml", "`context.half_life`", "age in days"]);
}

#[test]
fn a_constant_learning_rate_can_be_trained_on() {
    let place = Place::new();
    let free = ["optimizer.schedule=constant", "optimizer.growth=1", "method.candidates=0"];
    let free = free.map(|set| ["--set", set]).concat();
    // The intervals are those of the budget: 2 steps in both.
    let with = |budget: [&'static str; 2], count: &'static str| {
        [&free[..], &budget, &["--set", count]].concat()
    };
    let whole = place.trained("whole", &with(["--steps", "48"], "evaluation.count=24"));
    let run = place.trained("run", &with(["--steps", "24"], "evaluation.count=12"));
    stdout(resume(&run).args(["--steps", "48"]));
    assert!(
        parameters(&place.prepared, &run) == parameters(&place.prepared, &whole),
        "the parameters differ"
    );
    let (settings, _) = RunFolder::new(&run).read_settings().unwrap();
    assert_eq!(settings.budget.amount, 48);
}

#[test]
fn a_longer_budget_is_refused_where_evaluations_decide_something() {
    let place = Place::new();
    for (name, decides) in [
        ("shared", "method.candidates=100"),
        ("patient", "evaluation.patience=3"),
        ("growing", "optimizer.growth=3"),
    ] {
        let free = ["method.candidates=0", "optimizer.schedule=constant", "optimizer.growth=1"];
        let sets = [&free[..], &[decides]].concat();
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let run =
            place.trained(name, &["--steps", "6"].into_iter().chain(sets).collect::<Vec<_>>());
        let error = refused(resume(&run).args(["--steps", "12"]));
        assert_says(&error, &["resuming", "budget.amount: 6 → 12"]);
    }
}

#[test]
fn other_data_is_refused_and_moved_data_is_not() {
    let place = Place::new();
    let run = place.trained("run", &["--steps", "12"]);
    let other = crate::common::small_of(&place.run("other"), 12);
    let error = refused(resume(&run).arg("--data").arg(other.folder()));
    assert_says(&error, &["other holds other data"]);

    let moved = place.run("moved");
    fs_err::rename(place.prepared.folder(), &moved).unwrap();
    assert_says(&refused(&mut resume(&run)), &["data: no prepared folder"]);
    stdout(resume(&run).arg("--data").arg(&moved));
    // From then on the run knows.
    stdout(slate().arg("evaluate").arg(&run));
}

#[test]
fn no_run_is_begun_twice_or_resumed_before_it_began() {
    let place = Place::new();
    let nowhere = place.run("nowhere");
    let error = refused(&mut resume(&nowhere));
    assert_says(&error, &["nowhere: no run here", "start one with `slate train`"]);
    assert!(!nowhere.exists());

    let run = place.trained("run", &["--steps", "12"]);
    let before = fs_err::read_to_string(run.join("run.toml")).unwrap();
    let mut again = slate();
    again.arg("train").arg("--out").arg(&run).args(place.args(&["--steps", "24"]));
    assert_says(&refused(&mut again), &["run: there is a run here already", "--resume", "--out"]);
    assert_eq!(fs_err::read_to_string(run.join("run.toml")).unwrap(), before);

    // Without its settings, nobody knows what its checkpoints were trained with.
    fs_err::remove_file(run.join("run.toml")).unwrap();
    assert_says(&refused(&mut again), &["run: holds checkpoints of a run", "run.toml is gone"]);
    assert!(!run.join("run.toml").exists());
    fs_err::remove_dir_all(run.join("checkpoints")).unwrap();
    stdout(&mut again);
}

#[test]
fn a_folder_has_one_training_at_a_time() {
    let place = Place::new();
    let long = ["--steps", "1000000", "--set", "optimizer.schedule=constant"];
    let mut args = long.to_vec();
    args.extend(["--set", "evaluation.count=20000"]);
    let mut training = place.underway("run", &args);
    let run = place.run("run");
    let before = fs_err::read_to_string(run.join("run.toml")).unwrap();
    let mut again = slate();
    again.arg("train").arg("--out").arg(&run).args(place.args(&args));
    for command in [resume(&run).args(["--steps", "2000000"]), &mut again] {
        assert_says(&refused(command), &["run: another process is training here"]);
    }
    assert_eq!(fs_err::read_to_string(run.join("run.toml")).unwrap(), before);
    training.kill();
}
