//! `slate recommend`.

use anyhow::Result;

use super::Report;
use super::args::RecommendArgs;
use crate::recommend::{Recommendation, Recommender, TrainedPolicy};

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
