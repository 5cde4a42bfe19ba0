//! A summary goes in; the paper's table of rewards comes out, with the paper's numbers beside ours.

use super::document::{Block, Column, Entry, Kind, Table};
use super::numbers::mean_and_error;
use super::summary::{Place, Summary};
use super::words::{budget, chosen_here, over_seeds, searched, users};
use crate::experiment::grid::Published;

/// The table: methods and S down, data sets and K across.
pub(super) fn table(summary: &Summary) -> Vec<Block> {
    let grid = &summary.results.grid;
    let bold = match summary.seeds() {
        (_, 0 | 1) => "Nothing is bold: one seed tells no method from another",
        _ => {
            "Bold: the best of each column, and every other whose paired difference from it over the \
             same seeds has a 95 % interval that includes 0"
        }
    };
    let mut table = Table {
        caption: format!(
            "Mean reward of the decision, found {}, on {} after {}; {}{}. {bold}.",
            searched(grid),
            users(grid.split),
            budget(grid),
            over_seeds(summary, "mean ± standard error"),
            chosen_here(grid),
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
    let places = summary.places();
    let reward = |place: &Place| summary.reward(*place).map_or(f64::NAN, |reward| reward.mean);
    let best = |&(data, slate_size): &(&str, usize)| {
        let column = places.iter().filter(|p| (p.data, p.slate_size) == (data, slate_size));
        let finite = column.filter(|place| reward(place).is_finite());
        finite.max_by(|a, b| reward(a).total_cmp(&reward(b)))
    };
    let best: Vec<Option<&Place>> = across.iter().map(best).collect();
    let largest = best.iter().flatten().map(|best| reward(best).abs()).fold(0.0, f64::max);
    for row in &summary.rows {
        for &samples in &grid.samples {
            let mut entries = vec![Entry::from(&row.name), samples.into()];
            for (&(data, slate_size), best) in across.iter().zip(&best) {
                let place = Place { data, row: &row.name, samples, slate_size };
                let mut entry = match (summary.reward(place), summary.reason(place)) {
                    (Some(reward), reason) => {
                        let best = best.is_some_and(|best| summary.ties(*best, place));
                        let text = mean_and_error(reward.mean, reward.error, largest);
                        let entry = Entry { best, ..text.into() };
                        let note = reason.map(|reason| format!("N/A with another seed: {reason}"));
                        note.map_or(entry.clone(), |note| table.noted(entry, &note))
                    }
                    (None, Some(reason)) => table.noted("N/A", reason),
                    (None, None) => "–".into(),
                };
                let published = grid.published.as_ref();
                entry.paper = published.and_then(|published| paper(summary, published, place));
                entries.push(entry);
            }
            table.rows.push(entries);
        }
    }
    let mut blocks = vec![Block::Table(table)];
    blocks.extend(source(summary).map(Block::Text));
    blocks
}

/// The paper's number at `place`.
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

/// The source of the paper's numbers, and how its data differs from ours.
fn source(summary: &Summary) -> Option<String> {
    let grid = &summary.results.grid;
    let source = grid.published.as_ref()?.source.trim_end_matches('.');
    let mut text = format!("Numbers after “paper” are from {source}, measured on another machine.");
    for data in &grid.data {
        let here = &data.name;
        let other = data.published_as.as_ref().filter(|other| *other != here);
        text += &match (other, data.synth.is_empty()) {
            (Some(other), true) => {
                format!(" Those on {other} stand beside other data here, {here}.")
            }
            (Some(other), false) => {
                format!(" Those on {other} stand beside synthetic data, {here}.")
            }
            (None, false) => format!(" Here the data of {here} is synthetic."),
            (None, true) => String::new(),
        };
    }
    Some(text)
}
