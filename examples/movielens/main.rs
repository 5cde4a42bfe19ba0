//! MovieLens, from ratings to slates with titles.
//!
//! `cargo run --release --example movielens -- --data ml-latest-small`. Without `--data` it looks
//! in `data/` and in `$FAST_SLATE_DATA`; with no data at all it runs on synthetic sessions.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

mod data;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::Parser;
use fast_slate::device;
use fast_slate::facade::Policy;
use fast_slate::prepared::{PrepareSettings, Prepared};
use fast_slate::run::{RunFolder, RunOrigin, Which};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use fast_slate::training::{Console, Trainer};

#[derive(Parser)]
struct Args {
    /// A MovieLens folder, archive or ratings file.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Fetch `latest-small` or `25m` from GroupLens into `data/` first.
    #[arg(long, conflicts_with = "data")]
    download: Option<data::Release>,
    /// ndarray, flex, wgpu or cuda [default: a GPU if there is one, otherwise the CPU].
    #[arg(long)]
    device: Option<String>,
    #[arg(long, default_value_t = 2000)]
    steps: u64,
    #[arg(long, default_value = "artifacts/movielens")]
    out: PathBuf,
}

fn main() -> ExitCode {
    run(Args::parse()).map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(args: Args) -> Result<()> {
    let input = data::input(args.data, args.download)?;
    let folder = args.out.join("data");
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &folder, true)?;
    println!("{}", prepared.manifest.statistics);

    let mut settings = prepared.preset(Preset::Default);
    settings.budget.amount = args.steps;
    let task = Task::load(&prepared, &settings)?;
    let chosen = device::choose(args.device.as_deref())?;
    println!("device {}", chosen.name);
    let run = RunFolder::new(args.out.join("run"));
    if run.exists() {
        fs_err::remove_dir_all(run.path())?;
    }
    run.begin(&settings, &RunOrigin::new(&prepared, chosen.name))?;
    let (task, settings, device) = (&task, &settings, &chosen.device);
    let stop = &AtomicBool::new(false);
    Trainer { task, settings, run: &run, device, stop }.train(&mut Console::new())?;
    let policy = Policy::open(run.path(), Which::Best, Some(chosen.name))?;
    for user in policy.user_ids()?.take(3) {
        println!("\nslate for user {user}");
        for item in policy.recommend(user)?.slate {
            println!("  {:8.4}  {}", item.score, item.title.as_deref().unwrap_or(&item.item_id));
        }
    }
    Ok(())
}
