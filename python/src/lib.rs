//! `fast_slate._native`: the library as Python sees it. The package `fast_slate` wraps it in the
//! manners of scikit-learn; nothing here is meant to be called from elsewhere.
//!
//! | module | from → to |
//! |---|---|
//! | `error` | the library's errors → Python's exceptions |
//! | `work` | a long task → its result, without the GIL, ended by a signal, refused in a forked child |
//! | `array` | numbers of the library ↔ buffers, which numpy reads without a copy |
//! | `arrow` | Arrow streams of any library ↔ polars' tables, without a copy |
//! | `prepare` | interactions and settings → a prepared folder |
//! | `reward` | a Python function → a reward |
//! | `training` | a prepared folder and settings → a run |
//! | `shards` | queries ↔ what the shards of a catalogue answer |
//! | `slices` | users' rows of a matrix ↔ the decomposition of the whole |
//! | `recommender` | requests → slates |
//!
//! Unsafe code is in `array` and `arrow` alone: the two protocols are pointers. The crates `numpy` and
//! `pyo3-arrow` would hide it, at the price of a second Arrow beside polars' and of features of shared
//! crates, for which Burn and polars would be compiled a second time.

#![allow(unreachable_pub, reason = "PyO3's macros export what is private here")]

mod array;
mod arrow;
mod error;
mod prepare;
mod recommender;
mod reward;
mod shards;
mod slices;
mod training;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command line `words`, as the `slate` binary does, and returns its exit code.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>, program: PathBuf) -> PyResult<u8> {
    work::require_own_process()?;
    Ok(py.detach(|| fast_slate::cli::run(words, &program)))
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::arrow::Table;
    #[pymodule_export]
    use super::command;
    #[pymodule_export]
    use super::prepare::{Interactions, check_prepare, prepare, write_table};
    #[pymodule_export]
    use super::recommender::Recommender;
    #[pymodule_export]
    use super::reward::Visit;
    #[pymodule_export]
    use super::slices::{Slice, decompose};
    #[pymodule_export]
    use super::training::{Lock, Run, refit, resolve, train};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::work::remember_process();
        module.add("KNOWN_COLUMNS", super::prepare::known_columns())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
