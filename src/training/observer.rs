//! What a run tells whoever watches it.

use super::metrics::Row;

/// A moment of the loop, for progress.
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

/// Who watches a run. `()` does not look.
pub trait Observer {
    /// After every step.
    fn stepped(&mut self, _progress: Progress) {}
    /// After every evaluation, with the rows that were recorded.
    fn recorded(&mut self, _rows: &[Row]) {}
    /// Something the user should know.
    fn warned(&mut self, _message: &str) {}
}

impl Observer for () {}
