//! Settings, hyperparameters and methods go in; what earns most, and a report about it, come out.
//!
//! [`search`] is the one search: for the embeddings ([`league()`]), for a run's settings ([`tune`]), for a baseline's hyperparameters
//! ([`TunedBaseline`]) and for the learning rates of a [`Grid`]. A grid compares methods under equal
//! time or equal iterations: a [`Comparison`] trains its cells one after the other, and [`report`]
//! writes the pages.
//!
//! A comparison's folder has a run for every cell, below `cells/`, and for every learning rate and
//! every speed that was tried before, below `searches/` and `speeds/`. A training that has ended has
//! an `outcome.json` and is not done again: an interrupted comparison goes on where it was, and one
//! whose grid has grown trains only the new cells.

mod baselines;
mod league;
pub mod search;
pub mod tune;

mod amounts;
mod arguments;
mod cell;
mod executor;
mod grid;
mod process;
mod record;
pub mod report;
mod results;

pub use baselines::{BaselineTrial, TunedBaseline};
pub use league::{Candidate, Kind, Lack, League, LeftOut, Settled, Standing, league};
pub use {
    amounts::{Amount, Bytes},
    arguments::{flags, shell},
    cell::{Cell, Round, file_name},
    executor::{Comparison, DataSet, Watcher},
    grid::{
        Data, Equal, FigureKind, Grid, Only, Published, PublishedNumber, RateSearch, Row, SCALE,
    },
    results::{
        CellOutcome, CellResult, DataDescription, Machine, Measurement, Results, Searched,
        SplitReward,
    },
};
