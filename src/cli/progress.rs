//! The progress of building an index or of a batch in, a bar on a terminal out. Elsewhere nothing is
//! drawn.

#[cfg(feature = "train")]
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::retrieval::BuildObserver;

#[derive(Debug)]
pub(super) struct IndexBar(ProgressBar);

impl Default for IndexBar {
    fn default() -> Self {
        Self(bar("indexing"))
    }
}

/// A bar that says `what` is going on.
pub(super) fn bar(what: &str) -> ProgressBar {
    let template = format!("{what}  {{bar:24}} {{percent:>3}} %  ETA {{eta}}");
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

/// Says `what` is going on, and for how long it has.
#[cfg(feature = "train")]
pub(super) fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{spinner}} {what}  {{elapsed}}"));
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = ProgressBar::no_length().with_style(style);
    spinner.enable_steady_tick(Duration::from_millis(250));
    spinner
}

impl BuildObserver for IndexBar {
    fn added(&self, actions: usize, of: usize) {
        if actions == 0 {
            self.0.reset();
            self.0.set_length(of as u64);
        }
        self.0.set_position(actions as u64);
        if actions == of {
            self.0.finish_and_clear();
        }
    }
}
