//! A summary goes in; the tables of cells, learning rates and data sets come out.

use super::document::{Block, Column, Entry, Kind, Table};
use super::numbers::{count, mean_and_error, mebibytes, significant};
use super::summary::{Summary, step_seconds, training_bytes};
use super::words::users;
use crate::dataset::percent;
use crate::experiment::results::{CellOutcome, CellResult};

/// Every cell, and the command that trains it again.
pub(super) fn cells(summary: &Summary) -> Vec<Block> {
    let results = summary.results;
    let split = results.grid.split;
    let mut table = Table {
        caption: format!(
            "Every cell in the order of training. Rewards on {}, ± standard error over these \
             users. A step's time is the mean over the training, without evaluations. Peak: \
             the most memory of the process at any time; beyond loading: the most after the \
             data was loaded. Recall: the share of the exact top that the search returned on \
             training queries at the end.",
            users(split)
        ),
        columns: [
            ("data", Kind::Head),
            ("method", Kind::Head),
            ("S", Kind::Number),
            ("K", Kind::Number),
            ("seed", Kind::Number),
            ("reward", Kind::Number),
            ("steps", Kind::Number),
            ("step, ms", Kind::Number),
            ("learning rate", Kind::Number),
            ("recall", Kind::Number),
            ("peak, MiB", Kind::Number),
            ("beyond loading, MiB", Kind::Number),
        ]
        .map(|(name, kind)| Column::new(name, kind))
        .to_vec(),
        ..Table::default()
    };
    let last = |cell: &CellResult| cell.measurements.last()?.reward(split);
    let rewards = || results.cells.iter().filter_map(last);
    let largest = rewards().map(|on| on.reward.abs()).fold(0.0, f64::max);
    for result in &results.cells {
        let cell = &result.cell;
        let mut entries: Vec<Entry> = vec![
            cell.data.as_str().into(),
            cell.row.as_str().into(),
            cell.samples.into(),
            cell.slate_size.into(),
            cell.seed.into(),
        ];
        match &result.outcome {
            CellOutcome::NotAvailable { reason, .. } => {
                entries.push(table.noted("N/A", reason));
            }
            CellOutcome::Trained { steps, learning_rate, recall, peak_memory, .. } => {
                let reward = last(result)
                    .map(|on| mean_and_error(on.reward, Some(on.reward_se), largest).into());
                entries.push(reward.unwrap_or_default());
                entries.push(count(*steps).into());
                let time = step_seconds(result).map(|seconds| significant(1e3 * seconds));
                entries.push(time.map(Entry::from).unwrap_or_default());
                entries.push(learning_rate.into());
                let recall = recall.map(|recall| format!("{recall:.3}").into());
                entries.push(recall.unwrap_or_else(|| "exact".into()));
                for bytes in [peak_memory.map(|peak| peak.0), training_bytes(result)] {
                    entries.push(bytes.map(|bytes| mebibytes(bytes).into()).unwrap_or_default());
                }
            }
        }
        entries.resize(table.columns.len(), Entry::default());
        table.rows.push(entries);
    }
    let command = |cell: &CellResult| format!("# {}\n{}\n", cell.cell.name(), cell.command);
    let commands: Vec<_> = results.cells.iter().map(command).collect();
    vec![
        Block::Folded {
            summary: format!("{} cells", results.cells.len()),
            blocks: vec![Block::Table(table)],
        },
        Block::Folded {
            summary: "The commands that train them again".into(),
            blocks: vec![Block::Code { language: "sh", text: commands.join("\n") }],
        },
    ]
}

/// The learning rates that were tried, and their rewards.
pub(super) fn searches(summary: &Summary) -> Vec<Block> {
    let results = summary.results;
    let Some(search) = results.grid.search.as_ref().filter(|_| !results.searches.is_empty()) else {
        return Vec::new();
    };
    let same = |a: f64, b: f64| a.total_cmp(&b).is_eq();
    let all = || results.searches.iter().flat_map(|searched| &searched.tried);
    let mut rates: Vec<f64> = all().map(|(rate, _)| *rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup_by(|a, b| same(*a, *b));
    let mut table = Table {
        caption: format!(
            "Reward on validation users after {} at each learning rate, with seed {}. Bold: the \
             rate that the cells train with.",
            search.budget, search.seed
        ),
        columns: [
            ("data", Kind::Group),
            ("method", Kind::Head),
            ("S", Kind::Number),
            ("K", Kind::Number),
        ]
        .map(|(name, kind)| Column::new(name, kind))
        .to_vec(),
        ..Table::default()
    };
    let of_rate = |rate: &f64| Column::new(rate.to_string(), Kind::Number).of("learning rate");
    table.columns.extend(rates.iter().map(of_rate));
    let largest =
        all().map(|(_, reward)| reward.abs()).filter(|r| r.is_finite()).fold(0.0, f64::max);
    for searched in &results.searches {
        let mut entries: Vec<Entry> = vec![
            searched.data.as_str().into(),
            searched.row.as_str().into(),
            searched.samples.into(),
            searched.slate_size.into(),
        ];
        let at_an_end = [rates.first(), rates.last()].contains(&Some(&searched.best));
        for &rate in &rates {
            let tried = searched.tried.iter().find(|(tried, _)| same(*tried, rate));
            let Some((_, reward)) = tried else {
                entries.push("–".into());
                continue;
            };
            let best = same(rate, searched.best);
            let entry = Entry { best, ..mean_and_error(*reward, None, largest).into() };
            entries.push(if best && at_an_end && rates.len() > 1 {
                table.noted(entry, "At an end of the rates tried: another may be better still.")
            } else {
                entry
            });
        }
        table.rows.push(entries);
    }
    vec![Block::Table(table)]
}

/// The paper's table of data sets, and the commands that prepared them.
pub(super) fn data(summary: &Summary) -> Vec<Block> {
    let results = summary.results;
    let mut table = Table {
        caption: "Actions (P), users (U), pairs of a user and an action, their share of U · P, \
                  the embeddings' dimension (L), and users by split."
            .into(),
        columns: vec![
            Column::new("", Kind::Head),
            Column::new("P", Kind::Number),
            Column::new("U", Kind::Number),
            Column::new("interactions", Kind::Number),
            Column::new("density", Kind::Number),
            Column::new("L", Kind::Number),
            Column::new("train", Kind::Number).of("users"),
            Column::new("validation", Kind::Number).of("users"),
            Column::new("test", Kind::Number).of("users"),
        ],
        ..Table::default()
    };
    let mut commands = Vec::new();
    for data in &results.data {
        let numbers = &data.statistics;
        table.rows.push(vec![
            data.name.as_str().into(),
            count(numbers.actions as u64).into(),
            count(numbers.users as u64).into(),
            count(numbers.interactions as u64).into(),
            percent(numbers.density).into(),
            data.latent_dim.into(),
            count(numbers.train.users as u64).into(),
            count(numbers.validation.users as u64).into(),
            count(numbers.test.users as u64).into(),
        ]);
        commands.push(format!("# {}\n{}\n", data.name, data.commands.join("\n")));
    }
    vec![
        Block::Table(table),
        Block::Folded {
            summary: "How they were prepared".into(),
            blocks: vec![Block::Code { language: "sh", text: commands.join("\n") }],
        },
    ]
}
