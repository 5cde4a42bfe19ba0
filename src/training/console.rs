//! Progress for a person: a bar on a terminal, plain lines elsewhere, always on stderr.

use std::io::{IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressStyle};

use super::metrics::MetricsRow;
use super::observer::{Observer, Progress};

/// Prints a run's progress to stderr.
#[derive(Debug)]
pub struct Console {
    bar: Option<ProgressBar>,
    sampled_reward: Option<f64>,
    first: Option<Progress>,
}

/// Ticks of the bar over a whole budget, whatever its unit.
const TICKS: u64 = 1000;

/// Weight of the past in the moving average of the sampled reward.
const MEMORY: f64 = 0.98;

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// A bar if stderr is a terminal, lines if not.
    #[must_use]
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}  ETA {eta}");
            ProgressBar::new(TICKS)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, sampled_reward: None, first: None }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // Nobody may be reading; the training goes on.
            None => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Console {
    fn stepped(&mut self, progress: Progress) {
        let now = f64::from(progress.sampled_reward);
        let mean = self.sampled_reward.map_or(now, |past| MEMORY * past + (1.0 - MEMORY) * now);
        self.sampled_reward = Some(mean);
        let first = *self.first.get_or_insert(progress);
        if let Some(bar) = &self.bar {
            let seconds = progress.seconds - first.seconds;
            let rate = (progress.step - first.step) as f64 / seconds.max(1e-9);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=1000")]
            bar.set_position((progress.spent * TICKS as f64) as u64);
            bar.set_message(format!(
                "step {}  sampled reward {mean:.4}  {rate:.0} steps/s",
                progress.step
            ));
        }
    }

    fn recorded(&mut self, rows: &[MetricsRow]) {
        for row in rows {
            match row {
                MetricsRow::Evaluation {
                    step, seconds, split, reward, reward_se, gain, ..
                } => {
                    self.line(&format!(
                        "step {step:>6}  {seconds:>7.1} s  {:<10}  reward {reward:.4} ± \
                         {reward_se:.4}  gain {:+.4} [{:+.4}, {:+.4}]",
                        split.to_string(),
                        gain.mean,
                        gain.low,
                        gain.high
                    ));
                }
                MetricsRow::Coverage { step, coverage, shared, queries, .. } => {
                    self.line(&format!(
                        "step {step:>6}  shared candidates hold {coverage:.4} of the true top on \
                         {queries} training queries{}",
                        if *shared { "" } else { ": every sample is searched for" }
                    ));
                }
                MetricsRow::Recall { step, recall, top, queries, .. } => self.line(&format!(
                    "step {step:>6}  index recall@{top} {recall:.4} on {queries} training queries"
                )),
                MetricsRow::Rejection { step, acceptance_rate, rejections, .. } => {
                    self.line(&format!(
                        "step {step:>6}  rejection sampler accepts {acceptance_rate:.4}, {} draws \
                         above the head",
                        rejections.above_head
                    ));
                }
                MetricsRow::Gradient { step, gradient, .. } => self.line(&format!(
                    "step {step:>6}  gradient variance {:.3e}, signal to noise {:.3e}",
                    gradient.variance, gradient.signal_to_noise
                )),
            }
        }
    }

    fn warned(&mut self, message: &str) {
        self.line(&format!("warning: {message}"));
    }
}
