//! Text files and queries through polars, whose errors name the file.

use std::path::Path;

use polars::prelude::*;

use crate::error::{Error, Result};

/// A delimited file whose columns are all text; `options` may change anything but that.
///
/// # Errors
/// What polars says of the file.
pub(super) fn scan_csv(
    path: &Path,
    options: impl FnOnce(LazyCsvReader) -> LazyCsvReader,
) -> Result<LazyFrame> {
    let name = PlRefPath::try_from_path(path).map_err(|error| reading(path, &error))?;
    let reader = LazyCsvReader::new(name).with_glob(false).with_infer_schema_length(Some(0));
    options(reader).finish().map_err(|error| reading(path, &error))
}

/// Runs a query over the file at `path`, in batches where polars can.
///
/// # Errors
/// What polars says of the file.
pub(super) fn collect(frame: LazyFrame, path: &Path) -> Result<DataFrame> {
    match frame.collect_with_engine(Engine::Streaming) {
        // Several tables come of several sinks only, of which there are none.
        Ok(result) => Ok(result.unwrap_single()),
        Err(error) => Err(reading(path, &error)),
    }
}

/// polars' message, in one line.
pub(super) fn reading(path: &Path, error: &PolarsError) -> Error {
    // Behind an empty line come hints for programmers.
    let message = error.to_string();
    let message = message.split("\n\n").next().unwrap_or_default();
    Error::library(format!("reading {}", path.display()), message)
}
