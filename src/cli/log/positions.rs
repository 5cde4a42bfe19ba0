//! What both verbs say and ask of a log whose rows are positions.

use clap::Args;

use crate::logged::positions::{BadRows, Columns, Measured};

/// The columns of a log whose rows are positions.
#[derive(Debug, Args)]
#[allow(clippy::struct_field_names, reason = "the names of flags")]
pub(super) struct ColumnArgs {
    /// The column of item ids, in a log whose rows are positions.
    #[arg(long = "item-column", value_name = "NAME", default_value = Columns::ITEM)]
    item: String,
    /// The column of positions.
    #[arg(long = "position-column", value_name = "NAME", default_value = Columns::POSITION)]
    position: String,
    /// The column of outcomes.
    #[arg(long = "outcome-column", value_name = "NAME", default_value = Columns::OUTCOME)]
    outcome: String,
    /// The column of propensities [default: propensity_score, if there is one].
    #[arg(long = "propensity-column", value_name = "NAME")]
    propensity: Option<String>,
}

impl ColumnArgs {
    pub(super) fn columns(&self) -> Columns {
        Columns {
            item: self.item.clone(),
            position: self.position.clone(),
            outcome: self.outcome.clone(),
            propensity: self.propensity.clone(),
        }
    }
}

/// The title of a column of [`measured`].
pub(super) fn line(title: &str) -> String {
    format!("{title} ± standard error [95 % interval]")
}

pub(super) fn measured(found: Measured) -> String {
    let Measured { mean, standard_error, low, high } = found;
    format!("{mean:.5} ± {standard_error:.5} [{low:.5}, {high:.5}]")
}

/// The rows that were skipped, by reason, and the first.
pub(super) fn bad(bad: &BadRows) -> String {
    let mut text = String::new();
    for (reason, count) in &bad.reasons.0 {
        text += &format!("skipped           {count} rows with {reason}\n");
    }
    if let Some(first) = &bad.first {
        text += &format!("the first         {first}\n");
    }
    text
}
