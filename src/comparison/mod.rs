//! Methods compared under equal time or equal iterations: a grid's cells, each trained in turn, what
//! came of them, and the report.
//!
//! A comparison's folder has a run for every cell, below `cells/`, and for every learning rate and
//! every speed that was tried out before, below `searches/` and `speeds/`. What has ended has an
//! `outcome.json`, and is not done again: a comparison that was interrupted goes on where it was, and
//! one whose grid has grown trains what is new.

mod amounts;
mod cell;
mod executor;
mod grid;
mod process;
mod record;
pub mod report;
mod results;

pub use amounts::{Amount, Bytes};
pub use cell::{Cell, Round, file_name};
pub use executor::{Comparison, DataSet, Watcher};
pub use grid::{
    Data, Equal, FigureKind, Grid, Only, Published, PublishedNumber, Row, SCALE, Search,
};
pub use results::{
    CellOutcome, CellResult, DataDescription, Machine, Measurement, Results, Searched, SplitReward,
};
