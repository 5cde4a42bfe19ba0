//! The messages of a run to its observer.

use super::metrics::MetricsRow;

/// The state of the loop after a step, for progress.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps taken.
    pub step: u64,
    /// The last step, unless the budget is in seconds.
    pub steps: Option<u64>,
    /// Share of the budget that is spent.
    pub spent: f64,
    /// Training clock.
    pub seconds: f64,
    /// Mean reward of the last step's sampled slates.
    pub sampled_reward: f32,
}

/// Receives the messages of a run. `()` ignores them.
pub trait Observer {
    /// Called after every step.
    fn stepped(&mut self, _progress: Progress) {}
    /// Called after every evaluation, with the rows that were recorded.
    fn recorded(&mut self, _rows: &[MetricsRow]) {}
    /// Called with a warning for the user.
    fn warned(&mut self, _message: &str) {}
}

impl Observer for () {}
