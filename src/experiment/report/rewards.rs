//! The table of rewards, as the paper has it, with the paper's numbers beside it.

use super::document::{Block, Column, Entry, Kind, Table};
use super::numbers::mean_and_error;
use super::summary::{Estimate, Place, Summary};
use super::words::{budget, over_seeds, users};
use crate::experiment::Published;

/// The paper's tables of rewards: methods and S down, data sets and K across.
pub(super) fn table(summary: &Summary) -> Vec<Block> {
    let grid = &summary.results.grid;
    let mut table = Table {
        caption: format!(
            "Mean reward of the decision on {} after {}; {}. Bold: the best of each column, and all \
             whose interval overlaps its.",
            users(grid.split),
            budget(grid),
            over_seeds(summary, "mean ± standard error"),
        ),
        columns: vec![Column::new("method", Kind::Group), Column::new("S", Kind::Head)],
        ..Table::default()
    };
    let mut across = Vec::new();
    for data in &grid.data {
        for &slate_size in &grid.slate_sizes {
            let column = Column::new(format!("K = {slate_size}"), Kind::Number);
            table.columns.push(column.of(&data.name));
            across.push((data.name.as_str(), slate_size));
        }
    }
    let place = |row, samples, (data, slate_size)| Place { data, row, samples, slate_size };
    let down: Vec<_> = summary
        .rows
        .iter()
        .flat_map(|row| grid.samples.iter().map(|&samples| (row.name.as_str(), samples)))
        .collect();
    let best: Vec<Option<Estimate>> = across
        .iter()
        .map(|&column| {
            let rewards = down.iter().filter_map(|&(row, s)| summary.reward(place(row, s, column)));
            let finite = rewards.filter(|reward| reward.mean.is_finite());
            finite.max_by(|a, b| a.mean.total_cmp(&b.mean))
        })
        .collect();
    let largest = best.iter().flatten().map(|best| best.mean.abs()).fold(0.0, f64::max);
    for (row, samples) in down {
        let mut entries = vec![Entry::from(row), samples.into()];
        for (&column, best) in across.iter().zip(&best) {
            let place = place(row, samples, column);
            let published = grid.published.as_ref();
            let mut entry = match (summary.reward(place), summary.reason(place)) {
                (Some(reward), reason) => {
                    let best = best.is_some_and(|best| best.overlaps(reward));
                    let text = mean_and_error(reward.mean, reward.error, largest);
                    let entry = Entry { best, ..text.into() };
                    match reason {
                        Some(reason) => {
                            table.noted(entry, &format!("N/A with another seed: {reason}"))
                        }
                        None => entry,
                    }
                }
                (None, Some(reason)) => table.noted("N/A", reason),
                (None, None) => "–".into(),
            };
            entry.paper = published.and_then(|published| paper(summary, published, place));
            entries.push(entry);
        }
        table.rows.push(entries);
    }
    let mut blocks = vec![Block::Table(table)];
    blocks.extend(source(summary).map(Block::Text));
    blocks
}

/// What the paper has at `place`.
fn paper(summary: &Summary, published: &Published, place: Place) -> Option<String> {
    let data = summary.results.grid.data.iter().find(|data| data.name == place.data)?;
    let name = data.published_as.as_ref().unwrap_or(&data.name);
    let number = published.numbers.iter().find(|number| {
        (number.row.as_str(), number.samples) == (place.row, place.samples)
            && (&number.data, number.slate_size) == (name, place.slate_size)
    })?;
    let written = |(mean, error)| mean_and_error(mean, Some(error), mean);
    Some(number.reward.map_or_else(|| "N/A".to_owned(), written))
}

/// Where the paper's numbers are from, and in what they differ from those beside them.
fn source(summary: &Summary) -> Option<String> {
    let grid = &summary.results.grid;
    let published = grid.published.as_ref()?;
    let source = published.source.trim_end_matches('.');
    let mut text = format!("Numbers after “paper” are from {source}, measured on another machine.");
    for data in &grid.data {
        let other = data.published_as.as_ref().filter(|other| **other != data.name);
        match (other, data.synth.is_empty()) {
            (Some(other), true) => {
                text += &format!(" Those on {other} stand beside other data here, {}.", data.name);
            }
            (Some(other), false) => {
                let here = &data.name;
                text += &format!(" Those on {other} stand beside data that is made up, {here}.");
            }
            (None, false) => text += &format!(" Here the data of {} is made up.", data.name),
            (None, true) => {}
        }
    }
    Some(text)
}
