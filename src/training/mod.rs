//! Training: the learner step, the loop around it, checkpoints from which it goes on as if never
//! stopped, and the record it leaves.

mod adamw;
mod batches;
mod budget;
mod console;
mod diagnostics;
mod learner;
mod metrics;
mod observer;
mod optimizer;
mod record;
mod refit;
mod trainer;

pub use batches::Batches;
pub use console::Console;
pub use diagnostics::{GradientStatistics, batches as diagnostic_batches, gradient_statistics};
pub use learner::{Batch, Learner, StepOutput};
pub use metrics::{MetricsRow, read as read_metrics};
pub use observer::{Observer, Progress};
pub use optimizer::adam;
pub use trainer::{Ending, Outcome, Trainer};
