//! `slate bench slates`: a bundle in, the time of its slates out, one at a time and many at once, through
//! its index and exactly.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::bundle::{Answer, Options, Recommender, Request, Who};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::Report;
use crate::device;
use crate::retrieval::Search;

#[derive(Debug, Args)]
pub(crate) struct BenchSlatesArgs {
    /// The bundle, with histories.
    #[arg(value_hint = ValueHint::DirPath)]
    bundle: PathBuf,
    /// The length of the slates [default: that of the run].
    #[arg(short = 'k', long)]
    slate_size: Option<usize>,
    /// The number of users to answer, spread over those of the bundle.
    #[arg(long, default_value_t = 1000)]
    users: usize,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct Measured {
    users: usize,
    threads: usize,
    searches: Vec<Timed>,
}

/// The times of one kind of search.
#[derive(Debug, Serialize)]
struct Timed {
    search: Search,
    /// What it finds of the exact slates.
    recall: f64,
    /// The median and the 99th percentile of one slate asked for alone.
    milliseconds: [f64; 2],
    /// Slates a second where all are asked for at once.
    slates_per_second: f64,
}

pub(super) fn run(args: &BenchSlatesArgs) -> Result<Report> {
    let chosen = device::choose(args.device.name())?;
    let recommender = Recommender::open(&args.bundle, &chosen.device)?.on(&chosen)?;
    let Some(users) = recommender.bundle().users.as_ref().filter(|users| !users.ids.is_empty())
    else {
        bail!("{}: holds no users; export it with --histories", args.bundle.display());
    };
    let step = users.ids.len().div_ceil(args.users.max(1));
    let known = |id: &str| Request::from(Who::User { id: id.to_owned(), newer: Vec::new() });
    let requests: Vec<Request> = users.ids.iter().step_by(step).map(known).collect();
    let has_index = recommender.bundle().index.is_some();
    let kinds = [Some(Search::Exact), has_index.then_some(Search::Hnsw)];

    let mut exact = None;
    let mut searches = Vec::new();
    for search in kinds.into_iter().flatten() {
        let options =
            Options { search: Some(search), slate_size: args.slate_size, ..Options::default() };
        // Once for what is read for the first time.
        recommender.recommend(&requests, &options)?;
        let started = Instant::now();
        let answers = recommender.recommend(&requests, &options)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut times = Vec::with_capacity(requests.len());
        for request in &requests {
            let started = Instant::now();
            recommender.recommend(std::slice::from_ref(request), &options)?;
            times.push(1e3 * started.elapsed().as_secs_f64());
        }
        times.sort_unstable_by(f64::total_cmp);
        // The first search is the exact one.
        let exact = exact.get_or_insert_with(|| answers.clone());
        searches.push(Timed {
            search,
            recall: Answer::recall(&answers, exact),
            milliseconds: [times[times.len() / 2], times[times.len() * 99 / 100]],
            slates_per_second: requests.len() as f64 / seconds,
        });
    }
    let threads = rayon::current_num_threads();
    let measured = Measured { users: requests.len(), threads, searches };
    Report::new(&measured, measured.text())
}

impl Measured {
    fn text(&self) -> String {
        let mut text = format!("{} users, {} threads\n", self.users, self.threads);
        text += "        recall  one alone, ms       99 %  slates/s of all at once\n";
        for Timed { search, recall, milliseconds: [median, most], slates_per_second } in
            &self.searches
        {
            let name = match search {
                Search::Exact => "exact",
                Search::Hnsw => "index",
            };
            text += &format!(
                "{name:<6}  {recall:>6.4}  {median:>13.3}  {most:>9.3}  {slates_per_second:>23.0}\n"
            );
        }
        text
    }
}
