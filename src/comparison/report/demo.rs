//! A report of made-up results, to be looked at.

use super::super::{CellOutcome, CellResult, Searched};
use super::tests::{not_available, results, trained};
use super::*;
use crate::comparison::Bytes;
use crate::dataset::Split;
use crate::training::GradientStatistics;

const GRID: &str = r#"
    title = "Performance by time budget"
    about = """
    Four methods on three data sets, each trained for the same time. All numbers are made up: they \
    show what a report looks like.

    Plackett–Luce draws from all P actions at every step; the latent perturbation draws from L \
    dimensions and searches."""
    methods = ["lgp-mips", "lgp", "pl-rank", "pl-pg"]
    samples = [1, 10, 100]
    slate_sizes = [5, 100]
    seeds = [0, 1, 2]
    budget = "600 s"
    memory_ceiling = "16 GiB"
    figures = [
        "reward-over-time", "reward-over-steps-by-row", "variance", "variance-by-row",
        "final-reward", "step-time", "memory",
    ]
    data = [
        { name = "MovieLens", log = "ml-25m/ratings.csv" },
        { name = "Gowalla", log = "gowalla.txt", published_as = "Twitch" },
        { name = "Made up", synth = "--items 2230000", published_as = "GoodReads" },
    ]
    search = { learning_rates = [0.0001, 0.001, 0.01], budget = "60 s", samples = 10, slate_size = 5 }
    [published]
    source = "Table 3 of Sakhi, Rohde, Chopin (TMLR 2023): validation users, 6 seeds"
    numbers = [
        { row = "LGP-MIPS", samples = 1, data = "MovieLens", slate_size = 5, reward = [0.834, 0.003] },
        { row = "LGP-MIPS", samples = 10, data = "MovieLens", slate_size = 5, reward = [0.866, 0.003] },
        { row = "LGP-MIPS", samples = 100, data = "MovieLens", slate_size = 5, reward = [0.865, 0.002] },
        { row = "LGP", samples = 1, data = "Twitch", slate_size = 5, reward = [0.171, 0.004] },
        { row = "LGP", samples = 1, data = "GoodReads", slate_size = 100, reward = [0.278, 0.013] },
        { row = "PL-PG", samples = 100, data = "GoodReads", slate_size = 5 },
        { row = "PL-PG", samples = 100, data = "GoodReads", slate_size = 100 },
    ]
"#;

#[test]
#[ignore = "writes a page to look at into the folder `report-demo` among temporary files"]
fn a_page_to_look_at() {
    let mut results = results(GRID);
    let cells = results.grid.rounds().concat();
    for cell in cells.into_iter().take(results.of - 12) {
        let method = cell.row.as_str();
        let actions = results.data.iter().find(|data| data.name == cell.data);
        let p = actions.unwrap().statistics.actions as f64;
        let (s, k) = (cell.samples as f64, cell.slate_size as f64);
        let (milliseconds, top, noise) = match method {
            "LGP-MIPS" => (0.5 + 0.2 * s * p.ln() / 10.0, 0.87, 1.0),
            "LGP" => (1.0 + 2e-5 * s * p, 0.85, 1.0),
            "PL-Rank" => (2.0 + 4e-5 * s * p, 0.86, 0.5),
            _ => (2.0 + 4e-5 * s * p, 0.8, 8.0 * k.ln()),
        };
        if method.starts_with("PL") && s * p > 1e8 {
            let reason = format!("needs {:.1} GiB, and may have 16.00 GiB", s * p * 1.2e-7);
            results.cells.push(not_available(cell, &reason));
            continue;
        }
        let wobble = |at: f64| 0.012 * (at * 1.7 + cell.seed as f64 * 2.3 + s + k).sin();
        let rate = (1e3 / milliseconds / noise * s.sqrt() / p.sqrt()).min(0.3);
        let reward = |at: u64| {
            let learned = 1.0 - (-rate * at as f64).exp();
            (0.1 + (top - 0.1) * learned) * (1e5 / p).powf(0.2).min(1.0) + wobble(at as f64)
        };
        let rewards: Vec<f64> = (0..=10).map(reward).collect();
        results.cells.push(timed(trained(cell, &rewards), milliseconds, noise, s * p));
    }
    for row in results.grid.rows() {
        let (best, high) = if row.name == "PL-PG" { (0.01, 0.744) } else { (0.001, 0.694) };
        results.searches.push(Searched {
            data: "MovieLens".into(),
            best,
            row: row.name,
            samples: 10,
            slate_size: 5,
            tried: vec![(0.0001, 0.412), (0.001, 0.703), (0.01, high)],
        });
    }
    let folder = std::env::temp_dir().join("report-demo");
    fs::create_dir_all(&folder).unwrap();
    write(&results, &folder).unwrap();
    println!("{}", folder.join("report.html").display());
}

/// `cell`, trained for ten minutes.
fn timed(
    mut cell: CellResult,
    milliseconds: f64,
    noise: f64,
    samples_by_actions: f64,
) -> CellResult {
    let samples = cell.cell.samples as f64;
    let loaded = 2e9;
    let own =
        if cell.cell.row.starts_with("PL") { 40.0 * samples_by_actions } else { 2e6 * samples };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made up")]
    let whole = |number: f64| number as u64;
    for at in &mut cell.measurements {
        at.seconds = 60.0 * at.step as f64;
        at.step = whole(at.seconds * 1e3 / milliseconds);
        at.rewards[0].reward_se = 0.004;
        let train = at.rewards[0];
        at.rewards.push(crate::comparison::SplitReward { split: Split::Train, ..train });
        at.gradient = Some(GradientStatistics {
            variance: noise / samples * (1.0 + 9.0 / (1.0 + at.seconds / 60.0)),
            signal: 0.1,
            signal_to_noise: 0.1,
            draws: 8,
            batch_size: 32,
            batches: 4,
        });
    }
    cell.outcome = CellOutcome::Trained {
        steps: cell.measurements.last().map_or(0, |at| at.step),
        seconds: 600.0,
        learning_rate: 0.001,
        peak_memory: Some(Bytes(whole(loaded + own))),
        training_memory: Some(Bytes(whole(own))),
        recall: None,
    };
    cell
}
