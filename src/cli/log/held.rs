//! `slate log check` of a log whose rows are positions.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::super::report::Report;
use super::conclusions;
use super::positions::{ColumnArgs, bad, line, measured};
use crate::error::listed;
use crate::logged::positions::{Held, Known, PositionLog};

/// What the only one of `paths` holds, if it is such a log.
pub(super) fn run(paths: &[PathBuf], columns: &ColumnArgs) -> Result<Option<Report>> {
    let [path] = paths else { return Ok(None) };
    let columns = columns.columns();
    if !columns.are_in(path) {
        return Ok(None);
    }
    // Every bad row is counted. Where rows may be skipped a line is a row, so a sound file is read first
    // as one that may have lines within its quotes.
    let read = |skip| PositionLog::read(path, &columns, skip);
    let held = Held::of(&read(0).or_else(|_| read(u64::MAX))?);
    Ok(Some(Report::new(&held, text(path, &held))?))
}

fn text(path: &Path, held: &Held) -> String {
    let mut text = format!(
        "{}\nrows              {}, each one item at one position, not a slate\n\
         items             {}\n\
         outcomes above 0  {}\n",
        path.display(),
        held.rows,
        held.items,
        held.above_zero
    );
    text += &match held.propensities {
        Some(Known { least, greatest }) => {
            format!("propensities      {least:.5} … {greatest:.5}\n")
        }
        None => "propensities      none\n".into(),
    };
    if !held.other_columns.is_empty() {
        text += &format!("not read          {}\n", listed(&held.other_columns));
    }
    text += &bad(&held.bad);
    text += &format!("\nposition      rows  items  above 0  {}\n", line("mean outcome"));
    for at in &held.positions {
        text += &format!(
            "{:<8}{:>10}{:>7}{:>9}  {}\n",
            at.position,
            at.rows,
            at.items,
            at.above_zero,
            measured(at.mean)
        );
    }
    text + &conclusions(&held.missing, &held.learnable)
}
