//! `slate compare`: what it trains, that it goes on as if never stopped, and what it refuses.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fast_slate::experiment::Grid;
use fast_slate::settings::EvaluationSearch;
use serde_json::Value;

use crate::common::{assert_says, devices, log_csv, process, refused, slate, stdout};

const DATA: &str = r#"
[[data]]
name = "small"
synth = { users = 400, actions = 300, density = 0.1, topics = 12, ceiling-users = 50 }
prepare = { preset = "paper", no-index = true, latent-dim = 16 }
"#;

/// A grid of two methods and two seeds that trains for 20 steps a cell.
const GRID: &str = r#"
title = "Two methods"
preset = "paper"
methods = ["lgp", "pl-rank"]
samples = [4]
slate_sizes = [3]
seeds = [0, 1]
equal = "iterations"
budget = "20 steps"
evaluations = 2
figures = ["reward-over-steps", "final-reward"]
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn grid(&self, text: &str) -> PathBuf {
        let path = self.at("grid.toml");
        fs_err::write(&path, format!("{text}{DATA}")).unwrap();
        path
    }
}

fn compare(grid: &Path, out: &Path) -> assert_cmd::Command {
    let mut command = slate();
    command.arg("compare").arg(grid).arg("--out").arg(out);
    command
}

fn json(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&stdout(command.arg("--json"))).unwrap()
}

/// What every cell came to, without what a clock or a folder's name has a part in.
fn came_to(report: &Value) -> Vec<String> {
    let cells = report["cells"].as_array().unwrap().iter();
    cells
        .map(|cell| {
            let measured = cell["measurements"].as_array().unwrap().iter();
            let measured: Vec<_> = measured.map(|m| (&m["step"], &m["rewards"])).collect();
            let steps = &cell["outcome"]["steps"];
            format!("{} {} {steps} {measured:?}", cell["row"], cell["seed"])
        })
        .collect()
}

#[test]
fn a_comparison_that_was_killed_or_interrupted_goes_on_to_the_same_end() {
    let folder = Folder::new();
    let search = "[search]\nlearning_rates = [1e-3, 1e-2]\nbudget = \"10 steps\"\n";
    let grid = folder.grid(&format!("{GRID}{search}"));
    let whole = json(&mut compare(&grid, &folder.at("whole")));
    assert_eq!(whole["cells"].as_array().unwrap().len(), 4);
    let page = fs_err::read_to_string(folder.at("whole/report.md")).unwrap();
    assert_says(&page, &["learning rates were chosen on these users"]);
    // The rate that ended best is the one that its row was trained with.
    for searched in whole["searches"].as_array().unwrap() {
        let tried = searched["tried"].as_array().unwrap().iter();
        let best = tried.max_by(|a, b| a[1].as_f64().unwrap().total_cmp(&b[1].as_f64().unwrap()));
        assert_eq!(searched["best"], best.unwrap()[0]);
        let cells = whole["cells"].as_array().unwrap().iter();
        for cell in cells.filter(|cell| cell["row"] == searched["row"]) {
            assert_eq!(cell["outcome"]["learning_rate"], searched["best"]);
        }
    }

    let broken = folder.at("broken");
    // In the middle of the search, by kill -9; its child goes on alone and is waited for.
    let mut child = start(&grid, &broken);
    wait_for(&mut child, &broken, "searches", 2);
    child.kill().unwrap();
    child.wait().unwrap();
    // In the middle of the cells, by Ctrl-C.
    let mut child = start(&grid, &broken);
    wait_for(&mut child, &broken, "cells", 2);
    let id = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let resumed = json(&mut compare(&grid, &broken));
    assert_eq!(came_to(&resumed), came_to(&whole));
    assert_eq!(resumed["searches"], whole["searches"]);
    let rewards = |out: &Path| {
        let report = fs_err::read_to_string(out.join("report.md")).unwrap();
        let table = report.lines().filter(|line| line.starts_with("| LGP") || line.contains("svg"));
        table.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rewards(&broken).len(), 3, "{:?}", rewards(&broken));
    assert_eq!(rewards(&broken), rewards(&folder.at("whole")));
    for picture in crate::common::names(&broken.join("figures")) {
        let read = |out: &Path| fs_err::read(out.join("figures").join(&picture)).unwrap();
        assert_eq!(read(&broken), read(&folder.at("whole")), "{picture}");
    }
    for file in ["report.html", "results.parquet"] {
        assert!(broken.join(file).metadata().unwrap().len() > 0, "{file}");
    }
}

fn start(grid: &Path, out: &Path) -> Child {
    let mut command = process();
    command.arg("compare").arg(grid).arg("--out").arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until so many trainings have begun below `part` of a comparison.
fn wait_for(child: &mut Child, out: &Path, part: &str, count: usize) {
    let began = Instant::now();
    loop {
        let sets = fs_err::read_dir(out.join(part)).into_iter().flatten();
        let runs = sets.flat_map(|set| fs_err::read_dir(set.unwrap().path()).unwrap());
        if runs.count() >= count {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended before");
        assert!(began.elapsed() < Duration::from_mins(2), "no {count} trainings in {part}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn equal_iterations_are_those_of_the_slowest() {
    let folder = Folder::new();
    let text = GRID.replace("20 steps", "1 s").replace("[0, 1]", "[0]");
    let slow = "[[row]]\nname = \"many samples\"\nmethod = \"lgp\"\nset.method.samples = 400\n";
    let report = json(&mut compare(&folder.grid(&format!("{text}{slow}")), &folder.at("out")));
    let cells = report["cells"].as_array().unwrap();
    let steps: Vec<&Value> = cells.iter().map(|cell| &cell["outcome"]["steps"]).collect();
    assert!(steps[0].as_u64().unwrap() > 0 && steps.iter().all(|other| *other == steps[0]));
    // It is the slowest that the others' steps are of: they would take more in the same time.
    let seconds = |at: usize| cells[at]["outcome"]["seconds"].as_f64().unwrap();
    assert!(seconds(0) < seconds(2));
}

#[test]
fn what_does_not_fit_or_cannot_be_is_not_available_and_says_why() {
    let folder = Folder::new();
    let one = GRID.replace("[0, 1]", "[0]");
    let small = folder.grid(&format!("memory_ceiling = \"0.001 GiB\"\n{one}"));
    let report = json(&mut compare(&small, &folder.at("ceiling")));
    let reason = report["cells"][0]["outcome"]["reason"].as_str().unwrap();
    assert_says(reason, &["of memory or more", "above the 0.00 GiB"]);
    // Under a higher ceiling it is tried again.
    let higher = folder.grid(&format!("memory_ceiling = \"8 GiB\"\n{one}"));
    let report = json(&mut compare(&higher, &folder.at("ceiling")));
    assert_eq!(report["cells"][0]["outcome"]["outcome"], "trained");

    let rewarded = folder.grid(&format!("set = {{ \"reward.kind\" = \"any-hit\" }}\n{one}"));
    let report = json(&mut compare(&rewarded, &folder.at("reward")));
    assert_eq!(report["cells"][0]["outcome"]["outcome"], "trained");
    assert_says(report["cells"][1]["outcome"]["reason"].as_str().unwrap(), &["not linear"]);
    // What was refused is trained once the grid asks for what can be.
    let linear = folder.grid(&one.replace("\"lgp\", ", ""));
    let report = json(&mut compare(&linear, &folder.at("reward")));
    assert_eq!(report["cells"][0]["outcome"]["outcome"], "trained");
}

/// The settings that a grid's cells were trained with, by file below `cells`.
fn settings_of_cells(out: &Path) -> Vec<toml::Table> {
    let sets = fs_err::read_dir(out.join("cells")).unwrap();
    let runs = sets.flat_map(|set| fs_err::read_dir(set.unwrap().path()).unwrap());
    let read = |run: std::io::Result<fs_err::DirEntry>| {
        fs_err::read_to_string(run.unwrap().path().join("run.toml")).unwrap().parse().unwrap()
    };
    runs.map(read).collect()
}

#[test]
fn every_row_is_judged_by_the_same_search() {
    let folder = Folder::new();
    let one = GRID.replace("[0, 1]", "[0]").replace("20 steps", "2 steps");
    let methods = one.replace("\"pl-rank\"", "\"lgp-mips\", \"pl-rank\"");
    for (text, search, users) in [
        (methods.clone(), "exact", 10_000),
        (format!("set.evaluation.validation_contexts = 7\n{methods}"), "exact", 7),
        (format!("set.evaluation.search = \"index\"\n{methods}"), "index", 10_000),
    ] {
        let out = folder.at(&format!("{search}-{users}"));
        let report = json(&mut compare(&folder.grid(&text), &out));
        let settings = settings_of_cells(&out);
        assert_eq!(settings.len(), 3);
        for settings in settings {
            let evaluation = settings["evaluation"].as_table().unwrap();
            assert_eq!(evaluation["search"].as_str(), Some(search));
            assert_eq!(evaluation["validation_contexts"].as_integer(), Some(users));
        }
        let page = fs_err::read_to_string(out.join("report.md")).unwrap();
        let says = if search == "exact" { "by exact search" } else { "its own search" };
        assert_says(&page, &[says]);
        assert_eq!(report["cells"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn the_limit_of_a_gpus_memory_holds_for_every_cell() {
    if !devices().any(|name| name == "wgpu") {
        return;
    }
    let folder = Folder::new();
    let mut command = compare(&folder.grid(GRID), &folder.at("out"));
    let error = refused(command.args(["--device", "wgpu", "--device-memory", "100B"]));
    assert_says(&error, &["wgpu", "(--device-memory)"]);
}

#[test]
fn a_path_with_a_blank_stays_one_path() {
    let folder = Folder::new();
    let log = folder.at("a log.csv");
    let mut synth = slate();
    synth.args(["synth", "--users", "300", "--actions", "200", "--density", "0.1"]);
    stdout(synth.args(["--topics", "8", "--ceiling-users", "50", "--out"]).arg(&log));
    let ids = folder.at("the ids.txt");
    fs_err::write(&ids, "").unwrap();
    let one = GRID.replace("[0, 1]", "[0]").replace("20 steps", "2 steps");
    let data = |prepare: &str| {
        let log = log.display();
        format!("[[data]]\nname = \"a log\"\nlog = \"{log}\"\nprepare = {{ {prepare} }}\n")
    };
    let columns = "user-column = \"user_id\", item-column = \"item_id\", latent-dim = 8";
    let grid = folder.at("the grid.toml");
    fs_err::write(&grid, format!("{one}{}", data(&format!("{columns}, no-index = true")))).unwrap();
    let report = json(&mut compare(&grid, &folder.at("an out")));
    assert_eq!(report["cells"][0]["outcome"]["outcome"], "trained");
    // The command can be typed again.
    let command = report["data"][0]["commands"][0].as_str().unwrap();
    assert_says(command, &[&format!("slate prepare '{}'", log.display()), "--latent-dim=8"]);
    // A value of a flag is one argument, too: the file that is refused is named whole.
    let features = format!("{columns}, user-features = \"{}\"", ids.display());
    fs_err::write(&grid, format!("{one}{}", data(&features))).unwrap();
    let message = refused(&mut compare(&grid, &folder.at("another out")));
    assert_says(&message, &["the ids.txt"]);
}

#[test]
fn a_log_that_has_changed_is_not_trained_on_under_its_old_name() {
    let folder = Folder::new();
    let (log, grid) = (folder.at("log.csv"), folder.at("grid.toml"));
    log_csv(&log);
    let columns = "user-column = \"who\", item-column = \"what\", latent-dim = 8";
    let data = format!(
        "[[data]]\nname = \"log\"\nlog = \"{}\"\nprepare = {{ {columns}, no-index = true }}\n",
        log.display()
    );
    let one = GRID.replace("[0, 1]", "[0]").replace("20 steps", "2 steps");
    fs_err::write(&grid, format!("{one}{data}")).unwrap();
    let first = json(&mut compare(&grid, &folder.at("out")));
    assert_eq!(came_to(&json(&mut compare(&grid, &folder.at("out")))), came_to(&first));
    let grown = fs_err::read_to_string(&log).unwrap() + "u0,i39,5\n";
    fs_err::write(&log, grown).unwrap();
    let message = refused(&mut compare(&grid, &folder.at("out")));
    assert_says(&message, &["data `log`", "prepared from another log than", "log.csv", "--out"]);
}

#[test]
fn data_without_the_users_of_the_report_is_refused() {
    let folder = Folder::new();
    let grid = folder.grid(GRID);
    let text = fs_err::read_to_string(&grid).unwrap();
    let none = text.replace("no-index = true", "no-index = true, validation-share = 0");
    fs_err::write(&grid, none).unwrap();
    let message = refused(&mut compare(&grid, &folder.at("out")));
    assert_says(&message, &["data `small`", "no user is in the validation split"]);
}

#[test]
fn no_row_ends_before_its_time_unless_the_grid_says_so() {
    let folder = Folder::new();
    let text = GRID.replace("\"paper\"", "\"default\"");
    for (set, patience) in [("", 0), ("set.evaluation.patience = 3\n", 3)] {
        let grid = Grid::read(&folder.grid(&format!("{set}{text}")), "quick").unwrap();
        let (cell, preset) = (&grid.rounds()[0][0], grid.preset.settings());
        let settings = cell.settings(&preset, &grid, &grid.rows()[0], &preset.budget, None);
        assert_eq!(settings.unwrap().evaluation.patience, patience);
    }
}

#[test]
fn a_grid_may_grow_but_not_change() {
    let folder = Folder::new();
    let one = GRID.replace("[0, 1]", "[0]");
    let first = json(&mut compare(&folder.grid(&one), &folder.at("out")));
    let grown = json(&mut compare(&folder.grid(GRID), &folder.at("out")));
    assert_eq!(came_to(&first), came_to(&grown)[..2]);
    let changed = refused(&mut compare(
        &folder.grid(&GRID.replace("20 steps", "30 steps")),
        &folder.at("out"),
    ));
    assert_says(&changed, &["budget.amount: 20 → 30", "delete that folder"]);
}

#[test]
fn a_grid_that_cannot_be_says_why() {
    let folder = Folder::new();
    for (text, says) in [
        (GRID.replace("methods", "method"), &["grid.toml", "unknown field `method`"][..]),
        (GRID.replace("20 steps", "a while"), &["such as `30 s`", "a while"]),
        (GRID.replace("\"lgp\"", "\"lpg\""), &["grid.toml", "lpg"]),
        (GRID.replace("[3]", "[]"), &["slate_sizes", "at least one"]),
        (format!("{GRID}[[data]]\nname = \"two\"\n"), &["`two`", "one of log, synth and prepared"]),
        (
            format!("{GRID}[[data]]\nname = \"log\"\nlog = \"nowhere.csv\"\n"),
            &["data `log`", "nowhere.csv: no such file", "--files"],
        ),
        (
            format!("{GRID}[[data]]\nname = \"odd\"\nsynth = {{ userz = 3 }}\n"),
            &["data `odd`", "slate synth --userz=3", "--userz"],
        ),
        (format!("{GRID}[scale.small]\nseeds = [1]\n"), &["no scale `quick`", "small"]),
        (format!("{GRID}set = [\"method.samples=3\"]\n"), &["grid.toml", "expected a map"]),
        (
            format!("{GRID}[[row]]\nname = \"own\"\nset.evaluation.search = \"index\"\n"),
            &["evaluation.search", "row `own`", "judged alike"],
        ),
        (
            format!("{GRID}[[row]]\nname = \"own\"\nset.reward.kind = \"hits\"\n"),
            &["reward.kind", "row `own`", "judged alike"],
        ),
        (
            format!("{GRID}[[row]]\nname = \"own\"\nset.slate_size = 2\n"),
            &["slate_size", "row `own`", "use `slate_sizes`"],
        ),
        (
            format!(
                "{GRID}[search]\nlearning_rates = [1e-3]\nbudget = \"2 steps\"\n\
                 [[row]]\nname = \"own\"\nset.optimizer.learning_rate = 1e-2\n"
            ),
            &["optimizer.learning_rate", "row `own`", "[search] chooses it"],
        ),
        (format!("set.method.samples = 2\n{GRID}"), &["set by the grid; use `samples`"]),
        (format!("set.budget.amount = 2\n{GRID}"), &["set by the grid; use `budget`"]),
        (format!("set.evaluation.count = 2\n{GRID}"), &["use `evaluations`"]),
        (format!("set.checkpoint.keep = 2\n{GRID}"), &["keeps one checkpoint"]),
        (format!("set.seed = 2\n{GRID}"), &["set by the grid; use `seeds`"]),
        (format!("split = \"test\"\n{GRID}"), &["`split`", "not judged on test users"]),
    ] {
        let message = refused(&mut compare(&folder.grid(&text), &folder.at("out")));
        assert_says(&message, says);
    }
    let mut scaled = compare(&folder.grid(GRID), &folder.at("out"));
    assert_says(&refused(scaled.args(["--scale", "large"])), &["no scales", "`large`"]);
    assert!(!folder.at("out").exists());
}

#[test]
fn every_grid_of_the_paper_can_be_read_at_all_its_scales() {
    let grids = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/paper");
    let mut read = 0;
    for entry in fs_err::read_dir(grids).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = fs_err::read_to_string(&path).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let scales = table.get("scale").map_or_else(
            || vec!["quick".to_owned()],
            |scales| scales.as_table().unwrap().keys().cloned().collect(),
        );
        for scale in scales {
            let grid = Grid::read(&path, &scale).unwrap();
            assert!(!grid.rounds().is_empty(), "{} at {scale}", path.display());
            // Every key and value is known.
            for cell in grid.rounds().iter().flatten() {
                let row = grid.rows().into_iter().find(|row| row.name == cell.row).unwrap();
                let preset = grid.preset.settings();
                let settings = cell.settings(&preset, &grid, &row, &preset.budget, None);
                let settings = settings.unwrap_or_else(|error| panic!("{}: {error}", cell.name()));
                assert_eq!(settings.evaluation.search, EvaluationSearch::Exact);
            }
            read += 1;
        }
    }
    assert!(read >= 20, "{read}");
}
