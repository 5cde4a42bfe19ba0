//! `slate recommend`: a bundle or a run in, and a person or a file of users; a slate or a file of slates
//! out.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{ArgAction, Args, ValueHint};

use super::flags::DeviceArgs;
use super::progress::bar;
use super::report::{self, Report};
use crate::bundle::{Batch, Filter, Options, Part, Recommender, Request, Summary, Who};
use crate::device;
use crate::files::read_text;
use crate::retrieval::Search;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("who").required(true)))]
pub(crate) struct RecommendArgs {
    /// The folder of a bundle or of a run.
    #[arg(value_name = "BUNDLE|RUN", value_hint = ValueHint::DirPath)]
    from: PathBuf,
    /// The id of a user in the bundle, or in the prepared data of the run.
    #[arg(long, group = "who")]
    user: Option<String>,
    /// The ids of the items that somebody new has interacted with, the latest last, separated by
    /// commas; "" if there are none.
    #[arg(long, group = "who", value_delimiter = ',')]
    items: Option<Vec<String>>,
    /// The numbers of a context of your own, separated by commas.
    #[arg(long, group = "who", value_delimiter = ',', allow_hyphen_values = true)]
    context: Option<Vec<f32>>,
    /// A Parquet file with a row for each user: `user_id` and, for users who are not in the bundle,
    /// `items` (a list of item ids; null for a user of the bundle) or `context` (a list of numbers).
    #[arg(long, group = "who", value_name = "FILE", value_hint = ValueHint::FilePath, requires = "out")]
    users: Option<PathBuf>,
    /// The Parquet file to write the slates of --users to; a file of slates of this name is replaced,
    /// any other is not.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "users")]
    out: Option<PathBuf>,
    /// Do the i-th of n parts of --users; `slate join` makes the whole of them.
    #[arg(long, value_name = "I/N", requires = "users", default_value = "1/1")]
    part: Part,
    /// The number of items on a slate [default: that of the run].
    #[arg(short = 'k', long, value_name = "K")]
    slate_size: Option<usize>,
    /// Show nobody what they have interacted with; --exclude-seen=false shows it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    exclude_seen: bool,
    /// The ids of items that stay off the slates, separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    exclude: Vec<String>,
    /// A text file with the ids of the only items that slates may show, one in each line.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "deny")]
    allow: Option<PathBuf>,
    /// A text file with the ids of items that stay off the slates, one in each line.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    deny: Option<PathBuf>,
    /// The most items of one group on a slate, from 1; items without a group are not limited [default:
    /// no limit].
    #[arg(long, value_name = "N")]
    max_per_group: Option<usize>,
    /// Search exactly, although the bundle has an index.
    #[arg(long)]
    exact: bool,
    #[cfg(feature = "train")]
    #[command(flatten)]
    run: super::workshop::OfRun,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &RecommendArgs) -> Result<Report> {
    let device = args.device.name();
    #[cfg(feature = "train")]
    if !args.from.join(crate::bundle::MANIFEST).exists() {
        if !args.from.exists() {
            bail!("{}: is not there; name a bundle or a run", args.from.display());
        }
        return args.answer(args.run.open(&args.from, device)?.recommender()?);
    } else if args.run.checkpoint.is_some() {
        bail!("--checkpoint belongs to a run; the bundle {} holds one model", args.from.display());
    }
    let chosen = device::choose(device)?;
    args.answer(&Recommender::open(&args.from, &chosen.device)?.on(&chosen)?)
}

impl RecommendArgs {
    fn answer(&self, recommender: &Recommender) -> Result<Report> {
        if self.out.is_some() && self.users.is_none() {
            bail!("--out goes with --users: the file holds the slates of many");
        }
        let options = self.options(recommender)?;
        if let (Some(users), Some(out)) = (&self.users, &self.out) {
            return batch(recommender, Batch { users, out, part: self.part }, &options);
        }
        let trimmed = |ids: &[String]| -> Vec<String> {
            let ids = ids.iter().map(|id| id.trim()).filter(|id| !id.is_empty());
            ids.map(ToOwned::to_owned).collect()
        };
        let items = trimmed(self.items.as_deref().unwrap_or_default());
        let who = match (&self.user, &self.context) {
            (Some(id), _) => Who::User { id: id.clone(), newer: Vec::new() },
            (None, Some(context)) => Who::Context(context.clone()),
            (None, None) => Who::Items(items.clone()),
        };
        let request = Request { who, exclude: trimmed(&self.exclude) };
        let answer = recommender.recommend(&[request], &options)?.swap_remove(0);
        if answer.cold && !items.is_empty() {
            bail!("--items: the catalogue has none of {}", answer.ignored.join(", "));
        }
        ignored(&answer.ignored);
        if answer.short {
            tracing::warn!("only {} items may be shown", answer.slate.len());
        }
        Report::new(&answer, report::slate(&answer.slate))
    }

    fn options(&self, recommender: &Recommender) -> Result<Options> {
        let ids = |path: &Path| -> Result<Vec<String>> {
            let text = read_text(path)?;
            let ids = text.lines().map(str::trim).filter(|id| !id.is_empty());
            Ok(ids.map(ToOwned::to_owned).collect())
        };
        let allow = self.allow.as_deref().map(ids).transpose()?;
        let mut deny = self.deny.as_deref().map(ids).transpose()?.unwrap_or_default();
        if self.users.is_some() {
            deny.extend(self.exclude.iter().map(|id| id.trim().to_owned()));
        }
        let filter = Filter::new(recommender.bundle(), allow.as_deref(), &deny);
        let filter = match &self.allow {
            Some(path) => filter.with_context(|| format!("--allow {}", path.display()))?,
            None => filter?,
        };
        ignored(&filter.ignored);
        Ok(Options {
            slate_size: self.slate_size,
            exclude_seen: self.exclude_seen,
            search: self.exact.then_some(Search::Exact),
            filter,
            max_per_group: self.max_per_group,
            ..Options::default()
        })
    }
}

/// Says which ids the catalogue does not have.
fn ignored(ids: &[String]) {
    if let Some(first) = ids.first() {
        let more =
            if ids.len() > 1 { format!(" and {} others", ids.len() - 1) } else { String::new() };
        tracing::warn!("ignored `{first}`{more}: not in the catalogue");
    }
}

fn batch(recommender: &Recommender, batch: Batch<'_>, options: &Options) -> Result<Report> {
    let (started, bar) = (Instant::now(), bar("recommending"));
    let summary = batch.write(recommender, options, |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let summary = summary?;
    let Summary { users, cold, short, ignored } = summary;
    let seconds = started.elapsed().as_secs_f64();
    let mut text = format!("{}: slates of {users} users in {seconds:.1} s\n", batch.out.display());
    for (count, what) in [
        (cold, "users of whom no item is known"),
        (short, "users for whom fewer items are left than were asked for"),
        (ignored, "items that the catalogue does not have"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    Report::new(&summary, text)
}
