//! Methods compared under equal time or equal iterations: a grid's cells, each trained in turn, what
//! came of them, and the report.

mod cell;
mod grid;
pub mod report;
mod results;

pub use cell::{Cell, Round, file_name};
pub use grid::{
    Amount, Bytes, Data, Equal, FigureKind, Grid, Published, PublishedNumber, Row, SCALE, Search,
};
pub use results::{
    CellOutcome, CellResult, DataDescription, Machine, Measurement, Results, Searched, SplitReward,
};
