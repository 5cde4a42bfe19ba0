//! `slate recommend`.

use std::fmt::Write as _;

use anyhow::Result;

use super::Report;
use super::args::RecommendArgs;
use crate::recommend::{Recommender, TrainedPolicy};

pub(super) fn run(args: &RecommendArgs) -> Result<Report> {
    let trained = TrainedPolicy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let recommender = Recommender::new(&trained)?;
    let slate = match (&args.user, &args.items) {
        (Some(user), _) => recommender.for_user(user)?,
        (None, items) => recommender.for_items(items.as_deref().unwrap_or_default())?,
    };
    let mut text = String::new();
    let width = slate.iter().map(|item| item.item_id.chars().count()).max().unwrap_or(0);
    for (rank, item) in slate.iter().enumerate() {
        let title = item.title.as_deref().unwrap_or("");
        writeln!(text, "{:>3}  {:<width$}  {:>9.4}  {title}", rank + 1, item.item_id, item.score)?;
    }
    Report::new(&slate, text)
}
