//! Reports of results made by hand: means over seeds, bold entries, pages, pictures and tables.

use std::path::{Path, PathBuf};

use fast_slate::chart::Point;
use fast_slate::dataset::{Count, Split, Statistics};
use fast_slate::experiment::report::{Across, Place, Summary, Up, write};
use fast_slate::experiment::{
    Bytes, Cell, CellOutcome, CellResult, Data, DataDescription, FigureKind, Grid, Machine,
    Measurement, Results, Searched, SplitReward,
};
use fast_slate::training::GradientStatistics;
use polars::prelude::*;

use crate::common::assert_says;

/// Results of a grid without cells.
fn results(grid: &str) -> Results {
    let grid: Grid = toml::from_str(grid).unwrap();
    let sizes = [55_000_usize, 750_000, 2_230_000];
    let description = |(data, actions): (&Data, &usize)| DataDescription {
        set: data.name.clone(),
        name: format!("{} with --latent-dim 10", data.name),
        commands: vec![format!("slate prepare {} --out prepared", data.log)],
        statistics: Statistics {
            actions: *actions,
            users: 162_000,
            interactions: 25_000_000,
            density: 0.0024,
            train: Count { users: 130_000, interactions: 20_000_000 },
            validation: Count { users: 16_000, interactions: 2_500_000 },
            test: Count { users: 16_000, interactions: 2_500_000 },
        },
        latent_dim: 100,
    };
    let data = grid.data.iter().zip(&sizes).map(description).collect();
    let machine = Machine {
        processor: "Example 9000".into(),
        cores: 8,
        memory: 16 << 30,
        system: "Linux".into(),
        device: "ndarray".into(),
        version: "0.1.0".into(),
    };
    let of = grid.rounds().iter().map(Vec::len).sum();
    Results { grid, data, machine, cells: Vec::new(), of, searches: Vec::new() }
}

/// A cell that was evaluated at steps 0, 1, …, once a second, with these rewards.
fn trained(cell: Cell, rewards: &[f64]) -> CellResult {
    let measurement = |(step, reward): (u64, &f64)| Measurement {
        step,
        seconds: step as f64,
        rewards: vec![SplitReward {
            split: Split::Validation,
            reward: *reward,
            reward_se: 0.25,
            contexts: 100,
        }],
        gradient: None,
    };
    let steps = rewards.len() as u64 - 1;
    CellResult {
        run: PathBuf::from("cells").join(cell.name()),
        command: format!("slate train --seed {}", cell.seed),
        cell,
        outcome: CellOutcome::Trained {
            steps,
            seconds: steps as f64,
            learning_rate: 0.001,
            peak_memory: Some(Bytes(300 << 20)),
            training_memory: Some(Bytes(100 << 20)),
            recall: Some(0.9),
        },
        measurements: (0..).zip(rewards).map(measurement).collect(),
    }
}

fn not_available(cell: Cell, reason: &str) -> CellResult {
    CellResult {
        outcome: CellOutcome::NotAvailable { reason: reason.into(), ceiling: None },
        measurements: Vec::new(),
        ..trained(cell, &[0.0])
    }
}

/// Three rows, one data set, S, K; two seeds, of which PL-PG has none.
fn small() -> Results {
    let mut results = results(
        r#"
        title = "Small & <quick>"
        methods = ["lgp-mips", "lgp", "pl-pg"]
        samples = [10]
        slate_sizes = [5]
        seeds = [0, 1]
        budget = "10 s"
        figures = ["reward-over-time", "final-reward", "step-time"]
        data = [{ name = "Movies", log = "ratings.csv", published_as = "MovieLens" }]
        [published]
        source = "the paper's Table 3"
        numbers = [
            { row = "LGP", samples = 10, data = "MovieLens", slate_size = 5, reward = [0.716, 0.004] },
            { row = "PL-PG", samples = 10, data = "MovieLens", slate_size = 5 },
        ]
        "#,
    );
    for round in results.grid.rounds() {
        for cell in round {
            let seed = cell.seed as f64;
            results.cells.push(match cell.row.as_str() {
                "LGP-MIPS" => trained(cell, &[0.1, 0.3 + 0.2 * seed, 0.5 + 0.1 * seed]),
                "LGP" => trained(cell, &[0.1, 0.2, 0.3 + 0.1 * seed]),
                _ => not_available(cell, "needs 20 GiB, and may have 16 GiB"),
            });
        }
    }
    results
}

fn place(row: &str) -> Place<'_> {
    Place { data: "Movies", row, samples: 10, slate_size: 5 }
}

fn lgp() -> Cell {
    let (data, row) = ("Movies".to_owned(), "LGP".to_owned());
    Cell { data, row, samples: 10, slate_size: 5, seed: 0 }
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "expected {expected}, found {found}");
}

/// The pages in HTML and in Markdown.
fn pages(results: &Results) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    write(results, folder.path()).unwrap();
    let read = |name: &str| fs_err::read_to_string(folder.path().join(name)).unwrap();
    (read("report.html"), read("report.md"))
}

/// The entries of the rows of Markdown that begin with `first`.
fn rows(results: &Results, first: &str) -> Vec<Vec<String>> {
    let (_, page) = pages(results);
    let begins = page.lines().filter(|line| line.starts_with(&format!("| {first} |")));
    let entries = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|entry| entry.trim().to_owned()).collect()
    };
    begins.map(entries).collect()
}

#[test]
fn means_and_errors_are_over_seeds() {
    let mut results = small();
    let summary = Summary::new(&results);
    let reward = summary.reward(place("LGP-MIPS")).unwrap();
    // The deviation of 0.5 and 0.6 is 0.1 / √2; that of their mean √2 times less.
    assert_near(reward.mean, 0.55);
    assert_near(reward.error.unwrap(), 0.05);
    let curve = summary.curve(place("LGP-MIPS"), Across::Seconds, Up::Reward);
    assert_eq!(curve.len(), 3);
    assert_near(curve[1].y, 0.4);
    assert_near(curve[1].error, 0.1);
    assert_eq!(summary.reward(place("PL-PG")), None);
    assert_eq!(summary.seeds(), (2, 2));

    // One seed: the table has no error, the curve and the bar have the error over users.
    results.cells.retain(|cell| cell.cell.seed == 0);
    let summary = Summary::new(&results);
    let reward = summary.reward(place("LGP")).unwrap();
    assert_eq!((reward.mean, reward.error), (0.3, None));
    assert_near(summary.curve(place("LGP"), Across::Seconds, Up::Reward)[1].error, 0.25);
    assert_eq!(summary.bar(place("LGP")), Some((0.3, 0.25)));
    assert_eq!(summary.bar(place("PL-PG")), None);
}

#[test]
fn a_curve_goes_as_far_as_all_seeds_have_come_and_skips_nan() {
    let mut results = small();
    let cell = |seed| Cell { seed, ..lgp() };
    let rewards = [&[0.1, f64::NAN, 0.3, 0.9][..], &[0.3, 0.4, 0.5]];
    results.cells = vec![trained(cell(0), rewards[0]), trained(cell(1), rewards[1])];
    for (at, variance) in results.cells[1].measurements.iter_mut().zip([1000.0, 0.0]) {
        at.gradient = Some(GradientStatistics {
            variance,
            signal: 1.0,
            signal_to_noise: 0.1,
            draws: 4,
            batch_size: 32,
            batches: 4,
        });
    }
    let summary = Summary::new(&results);
    let curve = summary.curve(place("LGP"), Across::Steps, Up::Reward);
    assert_eq!(curve.len(), 2);
    assert_near(curve[0].y, 0.2);
    // The mean of one step, not of the next ones that each seed has.
    assert_near(curve[1].y, 0.4);
    assert_near(curve[1].x, results.cells[1].measurements[2].step as f64);
    let variance = summary.curve(place("LGP"), Across::Steps, Up::Variance);
    assert_eq!(variance, [Point { x: 0.0, y: 3.0, error: 0.0 }]);
}

#[test]
fn the_table_of_rewards_is_the_papers_and_bold_is_what_the_seeds_do_not_tell_apart() {
    let rewards = |results: &Results| {
        ["LGP-MIPS", "LGP", "PL-PG"].map(|row| rows(results, row).swap_remove(0).swap_remove(2))
    };
    let bold = |results: &Results| rewards(results).map(|reward| reward.starts_with("**"));
    let mut results = small();
    assert_eq!(
        rewards(&results),
        [
            "**0.550 ± 0.050**",
            "0.350 ± 0.050<br><sub>paper 0.716 ± 0.004</sub>",
            "N/A<sup>1</sup><br><sub>paper N/A</sub>"
        ]
    );
    assert_says(&pages(&results).1, &["1. needs 20 GiB, and may have 16 GiB"]);

    // LGP-MIPS 0.45 ± 0.15, LGP 0.35 ± 0.05: the same with one seed, 0.2 apart with the other.
    results.cells[0].measurements[2].rewards[0].reward = 0.3;
    assert_eq!(bold(&results), [true, true, false]);
    // A training that went astray is not the best.
    results.cells[0].measurements[2].rewards[0].reward = f64::NAN;
    assert_eq!(bold(&results), [false, true, false]);
    // One seed tells nothing apart.
    let mut one = small();
    one.cells.retain(|cell| cell.cell.seed == 0);
    assert_eq!(bold(&one), [false; 3]);
    assert_says(&pages(&one).1, &["Nothing is bold"]);
}

#[test]
fn the_pages_say_the_same_and_escape_what_they_are_given() {
    let mut results = small();
    results.cells.truncate(5);
    results.grid.about = "First <b>.\n\nSecond |.".into();
    let (html, markdown) = pages(&results);
    for expected in [
        "<h1>Small &amp; &lt;quick&gt;</h1>",
        "5 of 6 cells so far",
        "<p>First &lt;b&gt;.</p><p>Second |.</p>",
        "<strong>0.550 ± 0.050</strong>",
        "<span class=\"paper\">paper 0.716 ± 0.004</span>",
        "N/A<sup>1</sup>",
        "<li>needs 20 GiB, and may have 16 GiB</li>",
        "stand beside other data here, Movies",
        "href=\"#machine-and-settings\"",
        "id=\"machine-and-settings\"",
        "slate train --seed 1",
    ] {
        assert!(html.contains(expected), "{expected}: {html}");
    }
    for fetched in ["<script", "<link", "<img", "src=", "href=\"http", "url("] {
        assert!(!html.contains(fetched), "{fetched}: {html}");
    }
    for expected in [
        "# Small &amp; &lt;quick&gt;\n",
        "> **5 of 6 cells so far.**",
        "Second \\|.",
        "**0.550 ± 0.050**",
        "<br><sub>paper 0.716 ± 0.004</sub>",
        "1. needs 20 GiB, and may have 16 GiB",
        "[Machine and settings](#machine-and-settings)",
        "\n## Machine and settings\n",
        "](figures/reward-over-time-movies-",
    ] {
        assert!(markdown.contains(expected), "{expected}: {markdown}");
    }
}

#[test]
fn a_grid_in_which_nothing_varies_has_no_slopes_and_no_empty_panels() {
    let titles = |results: &Results| {
        let (_, page) = pages(results);
        assert!(!page.contains("Slopes of these lines"), "{page}");
        let titles = page.lines().filter_map(|line| line.strip_prefix("## "));
        titles.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let all = ["Rewards", "Reward over time", "Reward at the end", "Data sets", "Cells"];
    assert_eq!(titles(&small())[..5], all);
    let mut empty = small();
    empty.cells.clear();
    assert_eq!(titles(&empty)[..3], ["Rewards", "Data sets", "Cells"]);
}

#[test]
fn steps_and_memory_that_double_with_samples_have_slope_one() {
    let mut results = small();
    results.grid.samples = vec![1, 2, 8];
    results.grid.figures = vec![FigureKind::StepTime, FigureKind::Memory];
    let cell = |samples: usize| {
        let mut cell = trained(Cell { samples, ..lgp() }, &[0.0]);
        cell.outcome = CellOutcome::Trained {
            steps: 10,
            seconds: samples as f64,
            learning_rate: 0.1,
            peak_memory: Some(Bytes((100 + samples as u64) << 20)),
            training_memory: Some(Bytes((samples as u64) << 20)),
            recall: None,
        };
        cell
    };
    results.cells = [1, 2, 8].map(cell).to_vec();
    let slopes = rows(&results, "samples S");
    assert_eq!(slopes, vec![vec!["samples S", "Movies, K = 5", "–", "1.00 ± 0.00", "–"]; 2]);
    let claims: Vec<_> =
        rows(&results, "the paper").into_iter().map(|row| row[3].clone()).collect();
    assert_eq!(claims, ["O(S P)", "O(S L)"]);
}

#[test]
fn a_rate_chosen_at_an_end_of_those_tried_is_marked() {
    let mut results = small();
    results.grid.search = Some(toml::from_str("learning_rates = [0.1]\nbudget = \"1 s\"").unwrap());
    let searched = |row: &str, best| Searched {
        data: "Movies".into(),
        row: row.into(),
        samples: 10,
        slate_size: 5,
        tried: vec![(0.1, 0.5), (0.01, 0.4), (0.001, 0.3)],
        best,
    };
    results.searches = vec![searched("LGP", 0.1), searched("PL-PG", 0.01)];
    let (_, page) = pages(&results);
    let rates = ["0.001", "0.01", "0.1"].map(|rate| format!("learning rate, {rate}")).join(" | ");
    assert_says(&page, &[&rates, "1. At an end of the rates tried"]);
    let marked = rows(&results, "Movies").into_iter().filter(|row| row.len() == 7);
    let marked: Vec<_> = marked.map(|row| row[4..].join(" ")).collect();
    assert_eq!(marked, ["0.300 0.400 **0.500**<sup>1</sup>", "0.300 **0.400** 0.500"]);
}

#[test]
fn the_same_results_give_the_same_files() {
    let results = small();
    let files = || {
        let folder = tempfile::tempdir().unwrap();
        write(&results, folder.path()).unwrap();
        let pictures = fs_err::read_dir(folder.path().join("figures")).unwrap();
        let mut paths: Vec<_> = pictures.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let pages = ["report.html", "report.md", "results.parquet"];
        paths.extend(pages.map(|name| folder.path().join(name)));
        let named =
            |path: &PathBuf| (path.file_name().unwrap().to_owned(), fs_err::read(path).unwrap());
        paths.iter().map(named).collect::<Vec<_>>()
    };
    let once = files();
    assert_eq!(once.len(), 5);
    assert_eq!(once, files());
}

#[test]
fn the_parquet_file_is_read_back() {
    let mut results = small();
    let cell = |seed| Cell { seed, ..lgp() };
    results.cells = vec![trained(cell(0), &[0.5, 0.75]), not_available(cell(1), "too large")];
    let folder = tempfile::tempdir().unwrap();
    write(&results, folder.path()).unwrap();
    let read = |path: &Path| std::io::Cursor::new(fs_err::read(path).unwrap());
    let file = read(&folder.path().join("results.parquet"));
    let table = ParquetReader::new(file).finish().unwrap();
    assert_eq!(table.shape(), (3, 19));
    let numbers = |name: &str| table.column(name).unwrap().f64().unwrap().to_vec();
    assert_eq!(numbers("reward"), [Some(0.5), Some(0.75), None]);
    assert_eq!(numbers("gradient_variance"), [None; 3]);
    let texts = |name: &str| {
        let column = table.column(name).unwrap().str().unwrap();
        column.iter().map(|text| text.unwrap_or("null").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts("split"), ["validation", "validation", "null"]);
    assert_eq!(texts("outcome"), ["trained", "trained", "N/A"]);
    assert_eq!(texts("reason"), ["null", "null", "too large"]);
    let memory = table.column("peak_memory").unwrap().u64().unwrap().to_vec();
    assert_eq!(memory, [Some(300 << 20), Some(300 << 20), None]);
}
