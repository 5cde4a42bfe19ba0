//! Rows of the log in, the word that they are on disk out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::problem::Problem;
use crate::log::{Record, Writer};

/// The log, as requests use it.
#[derive(Debug)]
pub(super) struct Journal {
    writer: Writer,
    /// So long a disk may take.
    wait: Duration,
    /// True while the disk hangs: some rows were not stored in time, and none have been since.
    hangs: Arc<AtomicBool>,
}

impl Journal {
    pub(super) fn new(writer: Writer, wait: Duration) -> Self {
        Self { writer, wait, hangs: Arc::default() }
    }

    /// Waits until all of `records` would survive a loss of power, but no longer than a disk may take: then
    /// they are stored later or never. Until the disk has answered, all others are refused at once.
    pub(super) async fn store(&self, records: &[Record]) -> Result<(), Problem> {
        let late = || Problem::unavailable("log", "the disk of the log hangs");
        if self.hangs.load(Ordering::SeqCst) {
            return Err(late());
        }
        let (stored, mut waiting) = oneshot::channel();
        let hangs = Arc::clone(&self.hangs);
        self.writer.append_then(records, move |result| {
            drop(stored.send(result));
            hangs.store(false, Ordering::SeqCst);
        })?;
        let answer = if let Ok(answer) = timeout(self.wait, &mut waiting).await {
            answer.ok()
        } else {
            self.hangs.store(true, Ordering::SeqCst);
            // It may have answered since, and says so once.
            let Ok(answer) = waiting.try_recv() else { return Err(late()) };
            self.hangs.store(false, Ordering::SeqCst);
            Some(answer)
        };
        match answer {
            Some(result) => Ok(result?),
            None => Err(Problem::unavailable("log", "the log has ended")),
        }
    }

    /// False while the log cannot be written.
    pub(super) fn is_healthy(&self) -> bool {
        !self.hangs.load(Ordering::SeqCst) && self.writer.healthy()
    }
}
