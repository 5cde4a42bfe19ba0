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
    against: Option<Against>,
}

/// Another run on the same users.
#[derive(Debug, Serialize)]
struct Against {
    run: PathBuf,
    step: u64,
    reward: f64,
    /// Of the run's reward over this one's, paired.
    difference: Interval,
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
    let against = args.against.as_deref().map(|run| {
        let other = TrainedPolicy::open(run, args.checkpoint, args.device.device.as_deref())?;
        if other.origin.data_digest != trained.origin.data_digest {
            let (ours, theirs) = (trained.origin.data.display(), other.origin.data.display());
            bail!("{}: was trained on {theirs}, which holds other data than {ours}", run.display());
        }
        let theirs = Evaluation::of(&other.problem, &other.model, &contexts, search)?;
        Ok(Against {
            run: run.to_owned(),
            step: other.step,
            reward: theirs.mean(),
            difference: now.gain_over(&theirs),
        })
    });
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
        against: against.transpose()?,
    };
    let mut text = format!(
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
    if let Some(Against { run, step, reward, difference }) = &evaluated.against {
        text += &format!(
            "\n{} at step {step}: reward {reward:.4}, difference {:+.4}, 95 % interval [{:+.4}, \
             {:+.4}]",
            run.display(),
            difference.mean,
            difference.low,
            difference.high
        );
    }
    Report::new(&evaluated, text)
}
