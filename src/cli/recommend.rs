//! `slate recommend`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use super::flags::DeviceArgs;
use super::report::Report;
use crate::recommend::{Recommendation, Recommender, TrainedPolicy};
use crate::run::Which;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("who").required(true)))]
pub(crate) struct RecommendArgs {
    /// The run's folder.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// A user of the prepared data; everything known of them is used, nothing of it is shown.
    #[arg(long, group = "who")]
    user: Option<String>,
    /// Item ids that somebody new has interacted with, by commas; "" for none.
    #[arg(long, group = "who", value_delimiter = ',')]
    items: Option<Vec<String>>,
    /// best, last or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &RecommendArgs) -> Result<Report> {
    let policy = TrainedPolicy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let recommender = Recommender::new(&policy)?;
    let slate = match (&args.user, &args.items) {
        (Some(user), _) => recommender.for_user(user)?,
        (None, items) => {
            let ids = items.iter().flatten().filter(|id| !id.trim().is_empty());
            recommender.for_items(&ids.cloned().collect::<Vec<_>>())?
        }
    };
    Report::new(&slate, table(&slate))
}

/// Rank, id, score and title, a line each.
pub(super) fn table(slate: &[Recommendation]) -> String {
    let width = slate.iter().map(|item| item.item_id.chars().count()).max().unwrap_or(0);
    let line = |(rank, item): (usize, &Recommendation)| {
        let title = item.title.as_deref().unwrap_or("");
        format!("{:>3}  {:<width$}  {:>9.4}  {title}\n", rank + 1, item.item_id, item.score)
    };
    slate.iter().enumerate().map(line).collect()
}
