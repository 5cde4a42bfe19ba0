//! Rows of the log in, the word that they are on disk out.

use tokio::sync::oneshot;

use super::problem::Problem;
use crate::log::{Record, Writer};

/// The log, as requests use it.
#[derive(Debug)]
pub(super) struct Journal(Writer);

impl Journal {
    pub(super) fn new(writer: Writer) -> Self {
        Self(writer)
    }

    /// Waits until all of `records` would survive a loss of power.
    pub(super) async fn store(&self, records: &[Record]) -> Result<(), Problem> {
        let (stored, waiting) = oneshot::channel();
        self.0.append_then(records, move |result| drop(stored.send(result)))?;
        match waiting.await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Problem::unavailable("log", "the log has ended")),
        }
    }

    /// False while the log cannot be written.
    pub(super) fn is_healthy(&self) -> bool {
        self.0.healthy()
    }
}
