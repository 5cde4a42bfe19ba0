//! A grid or a summary goes in; phrases that headings and captions share come out.

use toml::Value;

use super::summary::Summary;
use crate::dataset::Split;
use crate::experiment::grid::{Equal, FigureKind, Grid};
use crate::settings::{BudgetUnit, leaves};

/// The heading above a figure.
pub(super) fn title(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::RewardOverTime => "Reward over time",
        FigureKind::RewardOverSteps => "Reward over steps",
        FigureKind::RewardOverStepsByRow => "Reward over steps by slate size",
        FigureKind::Variance => "Gradient variance",
        FigureKind::VarianceByRow => "Gradient variance by slate size",
        FigureKind::FinalReward => "Reward at the end",
        FigureKind::StepTime => "Time of a step",
        FigureKind::Memory => "Memory of training",
    }
}

/// The first part of the names of a figure's files.
pub(super) fn name(kind: FigureKind) -> String {
    title(kind).to_lowercase().replace(' ', "-")
}

/// The users of a split.
pub(super) fn users(split: Split) -> &'static str {
    match split {
        Split::Train => "training users",
        Split::Validation => "validation users",
        Split::Test => "test users",
    }
}

/// What a caption says of learning rates if the users that it is about chose them.
pub(super) fn chosen_here(grid: &Grid) -> &'static str {
    match (&grid.search, grid.split) {
        (Some(_), Split::Validation) => "; learning rates were chosen on these users",
        _ => "",
    }
}

/// How evaluations search for the decision.
pub(super) fn searched(grid: &Grid) -> &'static str {
    match leaves(&grid.set).get("evaluation.search").and_then(Value::as_str) {
        Some("index") => "by each row through its own search",
        Some("auto") => {
            "by exact search, or by each row through its own where the actions are many"
        }
        _ => "by exact search",
    }
}

/// How long a cell trained: "30 s of training".
pub(super) fn budget(grid: &Grid) -> String {
    match (grid.equal, grid.budget.0.unit) {
        (Equal::Iterations, BudgetUnit::Seconds) => format!(
            "equally many steps: those that the slowest method takes in {} at the same data set, \
             S, K and seed",
            grid.budget
        ),
        (_, BudgetUnit::Seconds) => format!("{} of training", grid.budget),
        _ => grid.budget.to_string(),
    }
}

/// "mean ± standard error over 6 seeds", with the number of seeds so far; or "one seed".
pub(super) fn over_seeds(summary: &Summary, what: &str) -> String {
    let of = summary.results.grid.seeds.len();
    match summary.seeds() {
        (_, 0 | 1) if of == 1 => "one seed".into(),
        (_, 0 | 1) => format!("one of the {of} seeds"),
        (fewest, most) if fewest == of && most == of => format!("{what} over {of} seeds"),
        (fewest, most) if fewest == most => format!("{what} over {most} of the {of} seeds"),
        (fewest, most) => format!("{what} over {fewest} to {most} of the {of} seeds"),
    }
}

/// The meaning of a figure's bands or whiskers.
pub(super) fn errors(summary: &Summary, what: &str) -> String {
    match summary.seeds() {
        (_, 0 | 1) => format!("{what}: ± standard error over users; {}", over_seeds(summary, "")),
        (1, _) => format!(
            "{what}: ± standard error over seeds, or over users where there is one seed; {}",
            over_seeds(summary, "means")
        ),
        _ => format!("{what}: ± standard error; {}", over_seeds(summary, "means")),
    }
}

/// The meaning of the lines in a figure without errors over users.
pub(super) fn lines(summary: &Summary) -> String {
    format!("Lines: {}", over_seeds(summary, "mean, with a band of ± standard error,"))
}
