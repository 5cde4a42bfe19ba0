//! `slate export`: a run in, a bundle out.

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgAction, Args, ValueHint};
use serde::Serialize;

use crate::bundle::{Manifest, VectorScalar};
use crate::cli::flags::DeviceArgs;
use crate::cli::report::Report;
use crate::facade::Policy;
use crate::run::Which;

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
    /// The type of the vectors' numbers: f32, whose scores are those of the run, or f16, which takes
    /// half of the disk.
    #[arg(long, default_value = "f32", value_parser = scalar)]
    scalar: VectorScalar,
    /// Add the tower as an ONNX model, for other programs.
    #[arg(long)]
    onnx: bool,
    /// The checkpoint to export: best (by validation reward), last, or a step.
    #[arg(long, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    device: DeviceArgs,
}

/// The most items for which reading all vectors is fast enough: a graph would save little.
const FEW: usize = 50_000;

#[derive(Debug, Serialize)]
struct Exported {
    bundle: PathBuf,
    bytes: u64,
    #[serde(flatten)]
    manifest: Manifest,
}

pub(super) fn run(args: &ExportArgs) -> Result<Report> {
    let policy = Policy::open(&args.run, args.checkpoint, args.device.device.as_deref())?;
    let large = policy.task.actions.num_actions() > FEW && policy.model.actions.is_none();
    let mut bundle = policy.bundle(args.histories, args.index.unwrap_or(large))?;
    bundle.onnx = args.onnx;
    let manifest = bundle.write(&args.out, args.scalar, args.force)?;
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
    Report::new(&Exported { bundle: args.out.clone(), bytes, manifest }, text)
}

/// Reads the value of `--scalar`.
fn scalar(text: &str) -> Result<VectorScalar, String> {
    match text {
        "f32" => Ok(VectorScalar::F32),
        "f16" => Ok(VectorScalar::F16),
        _ => Err("expected f32 or f16".into()),
    }
}
