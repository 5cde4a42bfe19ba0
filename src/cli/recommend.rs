//! `slate recommend`: a run and a person in, a slate out.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use super::flags::DeviceArgs;
use super::report::Report;
use crate::facade::{Policy, Recommendation};
use crate::run::Which;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("who").required(true)))]
pub(crate) struct RecommendArgs {
    /// The folder of the run.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// The id of a user in the prepared data. The slate shows nothing the user has interacted with.
    #[arg(long, group = "who")]
    user: Option<String>,
    /// The ids of the items that somebody new has interacted with, the latest last, separated by
    /// commas; "" if there are none.
    #[arg(long, group = "who", value_delimiter = ',')]
    items: Option<Vec<String>>,
    /// The checkpoint to use: best (by validation reward), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &RecommendArgs) -> Result<Report> {
    let policy = Policy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let slate = match (&args.user, &args.items) {
        (Some(user), _) => policy.recommend(user)?,
        (None, items) => {
            let ids = items.iter().flatten().filter(|id| !id.trim().is_empty());
            policy.recommend_after(&ids.collect::<Vec<_>>())?
        }
    };
    Report::new(&slate, table(&slate))
}

/// Writes a line with rank, id, score and title for each item.
pub(super) fn table(slate: &[Recommendation]) -> String {
    let width = slate.iter().map(|item| item.item_id.chars().count()).max().unwrap_or(0);
    let line = |(rank, item): (usize, &Recommendation)| {
        let title = item.title.as_deref().unwrap_or("");
        format!("{:>3}  {:<width$}  {:>9.4}  {title}\n", rank + 1, item.item_id, item.score)
    };
    slate.iter().enumerate().map(line).collect()
}
