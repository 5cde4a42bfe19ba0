//! Results go in; `results.parquet`, a table for other programs, comes out.

use std::path::Path;

use polars::prelude::*;

use crate::error::{Error, Result};
use crate::experiment::results::{CellOutcome, CellResult, Measurement, Results, SplitReward};
use crate::files::write_atomic;

/// Writes a row for each cell, evaluation and split. A cell without evaluations has one row with
/// nulls.
///
/// # Errors
/// Fails with an error that names the file.
pub(super) fn write(results: &Results, path: &Path) -> Result<()> {
    let failed = |error| Error::writing(path, error);
    let mut table = table(results).map_err(failed)?;
    write_atomic(path, |file| ParquetWriter::new(file).finish(&mut table).map(drop).map_err(failed))
}

type Row<'a> = (&'a CellResult, Option<&'a Measurement>, Option<SplitReward>);

fn rows(results: &Results) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for cell in &results.cells {
        if cell.measurements.is_empty() {
            rows.push((cell, None, None));
        }
        for at in &cell.measurements {
            if at.rewards.is_empty() {
                rows.push((cell, Some(at), None));
            }
            rows.extend(at.rewards.iter().map(|reward| (cell, Some(at), Some(*reward))));
        }
    }
    rows
}

fn table(results: &Results) -> PolarsResult<DataFrame> {
    let rows = &rows(results);
    let trained = |row: &Row| match row.0.outcome {
        CellOutcome::Trained { steps, seconds, learning_rate, peak_memory, .. } => {
            Some((steps, seconds, learning_rate, peak_memory))
        }
        CellOutcome::NotAvailable { .. } => None,
    };
    let gradient = |row: &Row| row.1?.gradient;
    DataFrame::new_infer_height(vec![
        column("data", rows, |row| row.0.cell.data.as_str()),
        column("row", rows, |row| row.0.cell.row.as_str()),
        column("samples", rows, |row| row.0.cell.samples as u64),
        column("slate_size", rows, |row| row.0.cell.slate_size as u64),
        column("seed", rows, |row| row.0.cell.seed),
        column("step", rows, |row| Some(row.1?.step)),
        column("seconds", rows, |row| Some(row.1?.seconds)),
        column("split", rows, |row| Some(row.2?.split.to_string())),
        column("reward", rows, |row| Some(row.2?.reward)),
        column("reward_se", rows, |row| Some(row.2?.reward_se)),
        column("contexts", rows, |row| Some(row.2?.contexts as u64)),
        column("learning_rate", rows, |row| Some(trained(row)?.2)),
        column("gradient_variance", rows, |row| Some(gradient(row)?.variance)),
        column("gradient_signal", rows, |row| Some(gradient(row)?.signal)),
        column("outcome", rows, |row| if trained(row).is_some() { "trained" } else { "N/A" }),
        column("reason", rows, |row| match &row.0.outcome {
            CellOutcome::NotAvailable { reason, .. } => Some(reason.as_str()),
            CellOutcome::Trained { .. } => None,
        }),
        column("steps_total", rows, |row| Some(trained(row)?.0)),
        column("seconds_total", rows, |row| Some(trained(row)?.1)),
        column("peak_memory", rows, |row| Some(trained(row)?.3?.0)),
    ])
}

fn column<'a, T, Kind: ?Sized>(name: &str, rows: &[Row<'a>], of: impl Fn(&Row<'a>) -> T) -> Column
where
    Series: NamedFrom<Vec<T>, Kind>,
{
    Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
}
