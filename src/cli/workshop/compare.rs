//! `slate compare`: prepares a grid's data, trains its cells and writes the report.

use clap::{Args, Parser, ValueHint};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;

use super::train::stop_on_interrupt;
use super::{prepare, synth};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::Report;
use crate::dataset::{self, Source, Split};
use crate::experiment::{
    CellOutcome, CellResult, Comparison, Data, DataSet, Grid, Machine, Results, Row, Searched,
    SplitReward, Watcher, file_name, flags, report, shell,
};
use crate::files::digest_bytes;
use crate::prepared::Prepared;
use crate::run::RunFolder;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The file of a grid, such as those in examples/paper.
    #[arg(value_hint = ValueHint::FilePath)]
    grid: PathBuf,
    /// The folder to write to. Cells that have ended there are not trained again.
    #[arg(long, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// The name of the scale of the grid to run.
    #[arg(long, value_name = "NAME", default_value = crate::experiment::SCALE)]
    scale: String,
    /// The folder that holds the logs of the grid [default: $FAST_SLATE_DATA, or the current folder].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    files: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Serialize)]
struct CompareReport {
    folder: PathBuf,
    #[serde(flatten)]
    results: Results,
}

pub(super) fn run(args: &CompareArgs, program: &Path) -> Result<Report> {
    let grid = Grid::read(&args.grid, &args.scale)?;
    let _lock = RunFolder::new(&args.out).lock()?;
    let chosen = args.device.choose(None)?;
    let mut data = HashMap::new();
    for set in &grid.data {
        for row in grid.rows() {
            let added = row.added();
            let Entry::Vacant(entry) = data.entry((set.name.clone(), added.clone())) else {
                continue;
            };
            let (prepared, commands) = prepared(set, &row, args)
                .and_then(|made| require_users(&grid, &made.0).map(|()| made))
                .with_context(|| format!("{}: data `{}`", args.grid.display(), set.name))?;
            let with = if added.is_empty() { String::new() } else { format!(" with {added}") };
            let name = format!("{}{with}", set.name);
            entry.insert(DataSet::new(
                (&set.name, &name),
                &prepared,
                commands,
                grid.preset,
                chosen.name,
            ));
        }
    }
    let comparison = Comparison {
        grid: &grid,
        data: &data,
        folder: &args.out,
        program,
        machine: Machine::here(chosen.name),
        stop: stop_on_interrupt()?,
    };
    let finished = comparison.run(&mut Lines)?;
    let results = comparison.results()?;
    report::write(&results, &args.out)?;
    let text = text(&results, args, finished);
    let report = Report::new(&CompareReport { folder: args.out.clone(), results }, text)?;
    Ok(report.interrupted_if(!finished))
}

fn text(results: &Results, args: &CompareArgs, finished: bool) -> String {
    let out = args.out.display();
    if !finished {
        let (done, of) = (results.cells.len(), results.of);
        return format!("interrupted with {done} of {of} cells; the same command goes on: {out}");
    }
    format!("{} cells: {out}/report.html, report.md, results.parquet", results.of)
}

/// Fails without the users that the report is about, or that a search chooses learning rates by.
fn require_users(grid: &Grid, prepared: &Prepared) -> Result<()> {
    let search = grid.search.as_ref().map(|_| Split::Validation);
    for split in [grid.split].into_iter().chain(search) {
        if prepared.sessions.contexts(split).is_empty() {
            let folder = prepared.folder().display();
            bail!(
                "{folder}: no user is in the {split} split; prepare it with another validation-share"
            );
        }
    }
    Ok(())
}

/// The prepared folder of a data set for a row, and the commands that made it.
fn prepared(data: &Data, row: &Row, args: &CompareArgs) -> Result<(Prepared, Vec<String>)> {
    if !data.prepared.is_empty() {
        return Ok((Prepared::open(Path::new(&data.prepared))?, Vec::new()));
    }
    let mut commands = Vec::new();
    // A name that depends on the flags, not on where the log lies: the comparison's folder may move.
    let name = |made_of: &str| {
        let digest = digest_bytes(made_of.as_bytes());
        args.out.join("data").join(format!("{}-{}", file_name(&data.name), &digest[..8]))
    };
    let mut set = data.prepare.clone();
    set.extend(row.prepare.clone());
    let (drawn, mut set) = (flags(&data.synth), flags(&set));
    let made_of = format!("{} {} {}", data.log, shell(&drawn), shell(&set));
    let log = if drawn.is_empty() {
        find(Path::new(&data.log), args.files.as_deref())?
    } else {
        let log = name(&shell(&drawn)).with_extension("parquet");
        commands.push(made("synth", drawn, &log, synth::run)?);
        set.extend(["--user-column=user_id", "--item-column=item_id"].map(ToOwned::to_owned));
        log
    };
    set.insert(0, log.display().to_string());
    let folder = name(&made_of);
    let was_there = folder.exists();
    commands.push(made("prepare", set, &folder, prepare::run)?);
    let prepared = Prepared::open(&folder)?;
    // The folder's name says how a log was prepared, and not which one lay there.
    if was_there && data.synth.is_empty() {
        require_same(&log, &prepared)?;
    }
    Ok((prepared, commands))
}

/// Fails if `prepared` was made from another log than `log` is now.
fn require_same(log: &Path, prepared: &Prepared) -> Result<()> {
    let now = dataset::digest(&Source { path: log.to_owned(), ..Source::default() })?;
    if now != prepared.manifest.input_digest {
        let (log, folder) = (log.display(), prepared.folder().display());
        bail!(
            "{folder} was prepared from another log than {log}, or a log of several files has moved; \
             give --files as before, or another --out"
        );
    }
    Ok(())
}

/// The path of a grid's log.
fn find(log: &Path, files: Option<&Path>) -> Result<PathBuf> {
    let root =
        files.map(PathBuf::from).or_else(|| env::var_os("FAST_SLATE_DATA").map(PathBuf::from));
    let path = root.unwrap_or_default().join(log);
    if !path.exists() {
        bail!(
            "{}: no such file or folder; say with --files where the logs are (`slate datasets` says \
             where they are published), or choose another --scale",
            path.display()
        );
    }
    Ok(path)
}

/// The flags of a verb alone.
#[derive(Parser)]
struct Flags<T: Args> {
    #[command(flatten)]
    flags: T,
}

/// Makes `out` by `run`, the verb of this name, unless it is there; returns the command.
fn made<T: Args>(
    verb: &str,
    arguments: Vec<String>,
    out: &Path,
    run: impl Fn(&T) -> Result<Report>,
) -> Result<String> {
    let out_flag = ["--out".to_owned(), out.display().to_string()];
    let typed = [vec![verb.to_owned()], arguments, out_flag.to_vec()].concat();
    let command = format!("slate {}", shell(&typed));
    if out.exists() {
        return Ok(command);
    }
    let parsed = Flags::<T>::try_parse_from(typed).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        anyhow!("`{command}`: {}", first.trim_start_matches("error: "))
    })?;
    tracing::info!("{command}");
    if let Some(folder) = out.parent() {
        fs_err::create_dir_all(folder)?;
    }
    run(&parsed.flags)?;
    Ok(command)
}

/// Prints a line per cell on stderr.
struct Lines;

fn line(text: &str) {
    // The comparison goes on even if nobody reads.
    drop(writeln!(std::io::stderr(), "{text}"));
}

impl Watcher for Lines {
    fn ended(&mut self, result: &CellResult, done: usize, of: usize) {
        let cell = &result.cell;
        let came_to = match &result.outcome {
            CellOutcome::Trained { steps, seconds, .. } => {
                let rewards = result.measurements.last().map(|last| {
                    let reward =
                        |reward: &SplitReward| format!("{} {:.4}  ", reward.split, reward.reward);
                    last.rewards.iter().map(reward).collect::<String>()
                });
                format!("{}{steps} steps in {seconds:.1} s", rewards.unwrap_or_default())
            }
            CellOutcome::NotAvailable { reason, .. } => format!("N/A: {reason}"),
        };
        line(&format!(
            "{done:>3} of {of}  {}  {}  S {}  K {}  seed {}  {came_to}",
            cell.data, cell.row, cell.samples, cell.slate_size, cell.seed
        ));
    }

    fn searched(&mut self, searched: &Searched) {
        let Searched { data, row, samples, slate_size, tried, best } = searched;
        let tried: Vec<_> =
            tried.iter().map(|(rate, reward)| format!("{rate:e} {reward:.4}")).collect();
        line(&format!(
            "learning rate {best:e}  {data}  {row}  S {samples}  K {slate_size}  ({})",
            tried.join(", ")
        ));
    }

    fn waiting(&mut self, run: &Path) {
        line(&format!("another process trains {}; waiting for it", run.display()));
    }
}
