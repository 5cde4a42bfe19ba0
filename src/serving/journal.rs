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
    pub(super) async fn store(&self, records: Vec<Record>) -> Result<(), Problem> {
        let (stored, waiting) = oneshot::channel();
        self.0.append(records, move |result| drop(stored.send(result)));
        let problem = match waiting.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the log has stopped".to_owned(),
        };
        tracing::warn!("the log cannot be written: {problem}");
        Err(Problem::unavailable("log", format!("the log cannot be written: {problem}")))
    }

    /// False while the log cannot be written.
    pub(super) fn is_healthy(&self) -> bool {
        self.0.healthy()
    }
}
