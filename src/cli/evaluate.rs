//! `slate evaluate`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::Serialize;

use super::Report;
use super::args::EvaluateArgs;
use crate::dataset::Split;
use crate::evaluation::{Evaluation, Interval};
use crate::problem::Search;
use crate::recommend::TrainedPolicy;

#[derive(Debug, Serialize)]
struct Evaluated {
    run: PathBuf,
    step: u64,
    split: Split,
    contexts: usize,
    slate_size: usize,
    through_index: bool,
    reward: f64,
    reward_se: f64,
    /// Over the run's own step 0, paired.
    gain: Interval,
}

pub(super) fn run(args: &EvaluateArgs) -> Result<Report> {
    let trained = TrainedPolicy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let problem = &trained.problem;
    let contexts = problem.sessions.contexts(args.split);
    if contexts.is_empty() {
        bail!("{}: no user is in the {} split", trained.origin.data.display(), args.split);
    }
    let search = if args.index { Search::Training } else { Search::Exact };
    let now = Evaluation::of(problem, &trained.model, &contexts, search)?;
    let start = Evaluation::of(problem, &trained.initial, &contexts, search)?;
    let evaluated = Evaluated {
        run: args.run.clone(),
        step: trained.step,
        split: args.split,
        contexts: contexts.len(),
        slate_size: problem.slate_size(),
        through_index: args.index,
        reward: now.mean(),
        reward_se: now.standard_error(),
        gain: now.gain_over(&start),
    };
    let text = format!(
        "{} at step {}, {} {} users, K = {}, {} retrieval\nreward {:.4} ± {:.4}\ngain over step 0 \
         {:+.4}, 95 % interval [{:+.4}, {:+.4}]",
        args.run.display(),
        evaluated.step,
        evaluated.contexts,
        args.split,
        evaluated.slate_size,
        if args.index { "index" } else { "exact" },
        evaluated.reward,
        evaluated.reward_se,
        evaluated.gain.mean,
        evaluated.gain.low,
        evaluated.gain.high
    );
    Report::new(&evaluated, text)
}
