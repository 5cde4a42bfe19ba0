//! `slate export`: a run in, a bundle out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{ArgAction, Args, ValueHint};
use serde::Serialize;

use crate::bundle::{Manifest, VectorScalar, shard_folders};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::Report;
use crate::cli::workshop::prologue::{named, share};
use crate::dataset::{ITEM_ID, ItemSource, ItemTable};
use crate::facade::Policy;
use crate::run::Which;
use crate::task::TriedWidth;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The folder of the run.
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,
    /// The folder to write.
    #[arg(long, value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Replace a bundle that is there already.
    #[arg(long)]
    force: bool,
    /// Add the users' histories, so that users are known by id.
    #[arg(long)]
    histories: bool,
    /// Add an index [default: for more than 50 000 items whose vectors were not learned].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    index: Option<bool>,
    /// The share of the true best items that a search of the index must find on average; it is as wide
    /// as that takes [default: 0.98].
    #[arg(long, value_parser = share)]
    recall: Option<f64>,
    /// The length of the slates for which it must [default: that of the run].
    #[arg(short = 'k', long, value_name = "K")]
    slate_size: Option<usize>,
    /// The type of the vectors' numbers: f32, whose scores are those of the run, or f16, which takes
    /// half of the disk.
    #[arg(long, default_value = "f32", value_parser = named::<VectorScalar>)]
    scalar: VectorScalar,
    /// Write the catalogue in so many parts besides, BUNDLE-1-of-N and so on, each for a process of
    /// its own.
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Add the tower as an ONNX model, for other programs.
    #[arg(long)]
    onnx: bool,
    /// A CSV, TSV (gzipped or not) or Parquet file with the titles and groups of items, for those of the
    /// prepared data. Of a group such as `Action|Adventure`, `Action` is taken.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    titles: Option<PathBuf>,
    /// The column of item ids in --titles.
    #[arg(long, value_name = "COLUMN", requires = "titles", default_value = ITEM_ID)]
    item_column: String,
    /// The column of titles in --titles [default: title, if there is one].
    #[arg(long, value_name = "COLUMN", requires = "titles")]
    title_column: Option<String>,
    /// The column of groups in --titles [default: group, if there is one].
    #[arg(long, value_name = "COLUMN", requires = "titles")]
    group_column: Option<String>,
    /// The checkpoint to export: best (by validation reward; step 0 unless one beats it by more than chance), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The most items for which reading all vectors is fast enough: a graph would save little.
const FEW: usize = 50_000;
/// What an index has to find unless `--recall` says otherwise.
const RECALL: f64 = 0.98;

#[derive(Debug, Serialize)]
struct Exported {
    bundle: PathBuf,
    bytes: u64,
    /// How wide the index is searched, and what that finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<TriedWidth>,
    /// Item ids in the file of titles that the catalogue does not have.
    ignored: usize,
    /// The folders of the shards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shards: Vec<PathBuf>,
    #[serde(flatten)]
    manifest: Manifest,
}

pub(super) fn run(args: &ExportArgs) -> Result<Report> {
    let titles = args.titles.as_ref().map(|path| {
        ItemTable::read(ItemSource {
            path: path.clone(),
            item_column: args.item_column.clone(),
            title_column: args.title_column.clone(),
            group_column: args.group_column.clone(),
        })
    });
    let titles = titles.transpose()?;
    let policy = Policy::open(&args.run, args.checkpoint, args.device.name())?;
    if policy.can_be_refitted() {
        tracing::info!(
            "users or items were held out of this run: `slate refit` fits it again on everybody"
        );
    }
    let large = policy.task.actions.num_actions() > FEW && policy.model.actions.is_none();
    let mut bundle = policy.bundle(args.histories)?;
    bundle.onnx = args.onnx;
    let ignored = titles.map_or(Ok(0), |titles| titles.label(&mut bundle.items))?;
    // An index may take hours.
    bundle.check_out(&args.out, args.shards, args.force)?;
    let slate_size = args.slate_size.unwrap_or(policy.settings.slate_size);
    let wanted = args.recall.unwrap_or(RECALL);
    let search = if args.index.unwrap_or(large) {
        let (index, found) = policy.index(slate_size, wanted)?;
        let width = index.0.ef_search;
        bundle.index = Some(index);
        found.tried.into_iter().find(|tried| tried.ef_search == width)
    } else if args.recall.is_some() || args.slate_size.is_some() {
        bail!(
            "--recall and -k are about an index, and none is made: add --index, or leave them out"
        );
    } else {
        None
    };
    let manifest = match args.shards {
        None => bundle.write(&args.out, args.scalar, args.force)?,
        Some(count) => bundle.write_sharded(&args.out, count, args.scalar, args.force)?,
    };
    let bytes = manifest.files.values().map(|file| file.bytes).sum();
    let mut text = format!(
        "{}: step {}, {} items, {:.1} MB\n",
        args.out.display(),
        manifest.trained.step,
        manifest.shapes.num_actions,
        bytes as f64 / 1e6
    );
    for (name, file) in &manifest.files {
        text += &format!("{name:<22}{:>12}\n", file.bytes);
    }
    let shards = args.shards.map_or(Vec::new(), |count| shard_folders(&args.out, count));
    for folder in &shards {
        text += &format!("{}\n", folder.display());
    }
    if let Some(TriedWidth { ef_search, recall }) = search {
        text += &format!(
            "searched with ef_search = {ef_search}, the index finds {recall:.3} of the true top \
             {slate_size} of training users\n"
        );
        if recall < wanted {
            tracing::warn!(
                "no index finds {} of the true top {slate_size}: answers with `exact` find all",
                wanted
            );
        }
    }
    if ignored > 0 {
        text += &format!("{ignored} items of --titles are not in the catalogue\n");
    }
    let bundle = args.out.clone();
    Report::new(&Exported { bundle, bytes, search, ignored, shards, manifest }, text)
}
