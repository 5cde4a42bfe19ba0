//! `slate recommend`: a bundle or a run in, and a person or a file of users; a slate or a file of slates
//! out.

use std::path::{Path, PathBuf};
use std::str::FromStr;
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
    #[arg(long, group = "who", allow_hyphen_values = true, value_parser = id)]
    user: Option<String>,
    /// The ids of the items that somebody new has interacted with, the latest last, separated by
    /// commas; "" if there are none. An id with a comma stands in double quotes, as in '"a, b",c'.
    #[arg(long, value_name = "IDS", group = "who", allow_hyphen_values = true)]
    items: Option<Vec<Ids>>,
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
    /// The ids of items that stay off the slates, separated by commas as in --items.
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    exclude: Vec<Ids>,
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
        let all = |ids: &[Ids]| ids.iter().flat_map(|ids| ids.0.clone()).collect::<Vec<String>>();
        let items = all(self.items.as_deref().unwrap_or_default());
        let who = match (&self.user, &self.context) {
            (Some(id), _) => Who::User { id: id.clone(), newer: Vec::new() },
            (None, Some(context)) => Who::Context(context.clone()),
            (None, None) => Who::Items(items.clone()),
        };
        let request = Request { who, exclude: all(&self.exclude) };
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
            deny.extend(self.exclude.iter().flat_map(|ids| ids.0.clone()));
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

/// Ids of items.
#[derive(Clone, Debug)]
struct Ids(Vec<String>);

impl FromStr for Ids {
    type Err = String;

    /// Reads ids between commas; one in double quotes may hold commas, and double quotes twice.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut ids, mut rest) = (Vec::new(), Some(id(text)?));
        while let Some(text) = rest.take() {
            let text = text.trim_start();
            let (found, after) = match text.strip_prefix('"') {
                Some(text) => quoted(text).ok_or_else(|| {
                    format!("expected a quote and a comma at the end of `\"{text}`")
                })?,
                None => match text.split_once(',') {
                    Some((found, after)) => (found.trim().to_owned(), Some(after)),
                    None => (text.trim().to_owned(), None),
                },
            };
            ids.extend(Some(found).filter(|id| !id.is_empty()));
            rest = after.map(ToOwned::to_owned);
        }
        Ok(Self(ids))
    }
}

/// An id up to its closing quote, and what comes behind the comma after it.
fn quoted(text: &str) -> Option<(String, Option<&str>)> {
    let (mut found, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('"')?;
        found += part;
        if let Some(after) = after.strip_prefix('"') {
            (found, rest) = (found + "\"", after);
            continue;
        }
        let after = after.trim_start();
        return match after.strip_prefix(',') {
            None if after.is_empty() => Some((found, None)),
            after => Some((found, Some(after?))),
        };
    }
}

/// Ids may begin with a hyphen, flags begin with two.
fn id(text: &str) -> Result<String, String> {
    if text.starts_with("--") {
        return Err(format!("expected an id, found `{text}`, which looks like a flag"));
    }
    Ok(text.to_owned())
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

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn ids_stand_between_commas_and_in_quotes_hold_them() {
        let ids = |text: &str| text.parse::<Ids>().map(|ids| ids.0);
        let read = |text: &str| ids(text).unwrap();
        assert_eq!(read(""), [""; 0]);
        assert_eq!(read("i1, i2,,i3 "), ["i1", "i2", "i3"]);
        assert_eq!(read("-3,-Ab4"), ["-3", "-Ab4"]);
        assert_eq!(read(r#""a, b 😀 3",c, "say ""x""" "#), ["a, b 😀 3", "c", r#"say "x""#]);
        assert_eq!(read(r#"12" disc,c"#), [r#"12" disc"#, "c"]);
        for wrong in [r#""a, b"#, r#""a" b,c"#, "--json"] {
            assert!(ids(wrong).is_err(), "{wrong}");
        }
    }
}
