//! MovieLens, from ratings to slates with titles.
//!
//! `cargo run --release --example movielens -- --data ml-latest-small`. Without `--data` it looks
//! in `data/` and in `$FAST_SLATE_DATA`; with no data at all it runs on synthetic sessions.

#![allow(clippy::print_stdout, reason = "an example prints")]

mod download;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::Parser;
use fast_slate::dataset::{Filters, Source, SyntheticSettings};
use fast_slate::device;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::problem::Problem;
use fast_slate::recommend::{Recommender, TrainedPolicy};
use fast_slate::run::{RunFolder, RunOrigin, Which};
use fast_slate::settings::Preset;
use fast_slate::training::{Console, Trainer};

#[derive(Parser)]
struct Args {
    /// A MovieLens folder, archive or ratings file.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Fetch `latest-small` or `25m` from GroupLens into `data/` first.
    #[arg(long, conflicts_with = "data")]
    download: Option<download::Release>,
    /// ndarray, flex, wgpu or cuda [default: a GPU if there is one, otherwise the CPU].
    #[arg(long)]
    device: Option<String>,
    #[arg(long, default_value_t = 2000)]
    steps: u64,
    #[arg(long, default_value = "artifacts/movielens")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let data = match args.download {
        Some(release) => Some(download::fetch(release, Path::new("data"))?),
        None => args.data.or_else(download::find),
    };
    let input = if let Some(path) = data {
        println!("MovieLens in {}", path.display());
        Input::File(Source { path, ..Source::default() }, Filters::default())
    } else {
        println!("no MovieLens here (see --data and --download): synthetic sessions instead");
        Input::Synthetic(SyntheticSettings::default())
    };
    let folder = args.out.join("data");
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &folder, true)?;
    println!("{}", prepared.manifest.statistics);

    let mut settings = Preset::Default.settings();
    settings.budget.amount = args.steps;
    let problem = Problem::load(&prepared, &settings)?;
    let chosen = device::choose(args.device.as_deref())?;
    println!("{}", chosen.note);
    let run = RunFolder::new(args.out.join("run"));
    if run.exists() {
        fs_err::remove_dir_all(run.path())?;
    }
    run.begin(&settings, &RunOrigin::new(&prepared, chosen.name))?;
    let stop = &AtomicBool::new(false);
    let (problem, settings, device) = (&problem, &settings, &chosen.device);
    Trainer { problem, settings, run: &run, device, stop }.train(&mut Console::new())?;

    let policy = TrainedPolicy::open(run.path(), Which::Best, Some(chosen.name))?;
    let recommender = Recommender::new(&policy)?;
    for user in recommender.user_ids().take(3) {
        println!("\nslate for user {user}");
        for item in recommender.for_user(user)? {
            println!("  {:8.4}  {}", item.score, item.title.as_deref().unwrap_or(&item.item_id));
        }
    }
    Ok(())
}
