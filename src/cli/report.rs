//! A verb's result in, one text for people or one JSON object for programs out.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::bundle::Recommendation;

/// Exit code of a run that was interrupted, as shells report it (128 + SIGINT).
pub(super) const INTERRUPTED: u8 = 130;

/// Exit code of a policy that is not to be shipped.
#[cfg(feature = "train")]
pub(super) const NOT_SHIPPED: u8 = 1;

/// Exit code of a device that finds other slates than the host.
#[cfg(feature = "train")]
pub(super) const OTHER_SLATES: u8 = 1;

/// Exit code of a log that cannot judge a policy.
#[cfg(feature = "train")]
pub(super) const DOUBTED: u8 = 3;

/// A verb's result.
#[derive(Debug)]
pub(crate) struct Report {
    text: String,
    json: serde_json::Value,
    /// The exit code; 0 unless the verb has another thing to say.
    pub(crate) exit: u8,
}

impl Report {
    /// Makes a report of `value`; `text` says the same in words.
    pub(crate) fn new(value: &impl Serialize, text: impl Into<String>) -> Result<Self> {
        let json = serde_json::to_value(value).context("writing the report as JSON")?;
        Ok(Self { text: text.into(), json, exit: 0 })
    }

    /// Says that the user stopped the verb before its end, if so.
    pub(crate) fn interrupted_if(mut self, interrupted: bool) -> Self {
        if interrupted {
            self.exit = INTERRUPTED;
        }
        self
    }

    /// Prints to stdout. A closed pipe is not an error.
    pub(crate) fn print(&self, as_json: bool) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        let written = if as_json {
            writeln!(stdout, "{}", self.json)
        } else {
            writeln!(stdout, "{}", self.text.trim_end())
        };
        match written.and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.context("writing to stdout"),
        }
    }
}

/// A line with rank, id, score and title for each item of a slate.
pub(super) fn slate(items: &[Recommendation]) -> String {
    let width = items.iter().map(|item| item.item_id.chars().count()).max().unwrap_or(0);
    let line = |(rank, item): (usize, &Recommendation)| {
        let title = item.title.as_deref().unwrap_or("");
        format!("{:>3}  {:<width$}  {:>9.4}  {title}\n", rank + 1, item.item_id, item.score)
    };
    items.iter().enumerate().map(line).collect()
}
