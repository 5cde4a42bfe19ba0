//! A log of another system, whose rows are positions → its rows in numbers, what it holds, and what
//! another policy would have earned.
//!
//! A row is one item that was shown at one position, with its outcome, such as 1 for a click, and
//! perhaps its propensity: the probability with which the logging policy shows this item at this
//! position. The Open Bandit data is such a log (Saito, Aihara, Matsutani, Narita, "Open Bandit Dataset
//! and Pipeline", NeurIPS 2021).
//!
//! Rows are positions, not slates: nothing says which rows were shown together. So what is estimated is
//! the mean outcome of a shown position, under a policy that fills each position by itself
//! ([`Stationary`]).
//!
//! # What has to hold
//! - The outcome of a position depends on its own item, not on the rest of the slate (the item-position
//!   model of Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking
//!   Policies with Click Models", KDD 2018).
//! - The propensities are those of the policy that logged.
//! - Rows are independent. Rows of one slate or one person are not, quite, and nothing tells them: the
//!   intervals are then too narrow.

mod cells;
mod columns;
mod direct;
mod estimators;
mod held;
mod policy;
mod read;
mod value;

pub use columns::Columns;
pub use direct::DirectOptions;
pub use estimators::Measured;
pub use held::{Held, HeldAt, Known};
pub use policy::Stationary;
pub use read::{BadRows, PositionLog};
pub use value::{LogMeans, PolicyValue, ValueAt};

#[cfg(test)]
pub(super) mod samples {
    use std::path::PathBuf;

    use super::PositionLog;

    /// Rows of (item, position, outcome, propensity); items and positions are numbered from 0.
    pub(crate) fn log(num_items: u32, rows: &[(u32, u32, f64, f64)]) -> PositionLog {
        let last = rows.iter().map(|row| row.1).max().unwrap_or(0);
        PositionLog {
            path: PathBuf::from("log.csv"),
            items: (0..num_items).map(|item| item.to_string()).collect(),
            positions: (1..=i64::from(last) + 1).collect(),
            item: rows.iter().map(|row| row.0).collect(),
            position: rows.iter().map(|row| row.1).collect(),
            outcomes: rows.iter().map(|row| row.2).collect(),
            propensities: Some(rows.iter().map(|row| row.3).collect()),
            ..PositionLog::default()
        }
    }
}
