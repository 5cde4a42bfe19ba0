//! How a verb on a prepared folder begins: the folder is opened, the device chosen, the settings
//! resolved from presets, files and flags.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};

use super::flags::DeviceArgs;
use super::progress::IndexBar;
use crate::device::{self, Chosen};
use crate::prepared::Prepared;
use crate::settings::{Preset, Settings, SettingsBuilder};

/// Where a run's settings come from, each overlaying those before it.
#[derive(Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Named defaults: `paper` or `default`.
    #[arg(long, value_parser = preset)]
    pub(crate) preset: Option<Preset>,
    /// A TOML file: any part of what a run.toml holds.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// A single setting, as in `policy.samples=32`; may be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Budget in optimiser steps.
    #[arg(long, group = "budget")]
    pub(crate) steps: Option<u64>,
    /// Budget in passes over the training users.
    #[arg(long, group = "budget")]
    pub(crate) epochs: Option<u64>,
    /// Budget in seconds of training; evaluations do not count.
    #[arg(long, group = "budget")]
    pub(crate) seconds: Option<u64>,
    /// lgp, lrp or plackett-luce.
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// score-function, pl-rank, covariance, covariance-as-printed, fopo or likelihood.
    #[arg(long)]
    pub(crate) estimator: Option<String>,
    /// S, the number of sampled slates per user and step.
    #[arg(long)]
    pub(crate) samples: Option<usize>,
    /// K, the number of items on a slate.
    #[arg(long)]
    pub(crate) slate_size: Option<usize>,
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// A verb's prepared folder, device and settings.
pub(super) struct Opened {
    pub(super) prepared: Prepared,
    pub(super) device: Chosen,
    pub(super) settings: Settings,
}

impl DeviceArgs {
    /// The device that the flag names; otherwise the `recorded` one; otherwise the best one here.
    pub(super) fn choose(&self, recorded: Option<&str>) -> Result<Chosen> {
        Ok(device::choose(self.device.as_deref().or(recorded))?)
    }
}

impl SettingsArgs {
    /// Opens the prepared folder `data`, chooses the device and resolves the settings.
    pub(super) fn open(&self, data: &Path) -> Result<Opened> {
        let device = self.device.choose(None)?;
        let prepared = open(data)?;
        let settings = self.resolve(&prepared.preset(self.preset.unwrap_or_default()))?;
        Ok(Opened { prepared, device, settings })
    }

    /// What these flags make of `base`.
    pub(super) fn resolve(&self, base: &Settings) -> Result<Settings> {
        let mut builder = SettingsBuilder::new(base)?;
        if let Some(path) = &self.config {
            builder = builder.file(path)?;
        }
        let kinds = [("policy.kind", &self.policy), ("estimator.kind", &self.estimator)];
        for (key, kind) in kinds {
            if let Some(kind) = kind {
                builder = builder.set(key, kind.as_str())?;
            }
        }
        for assignment in &self.set {
            builder = builder.assignment(assignment)?;
        }
        let budgets = [("steps", self.steps), ("epochs", self.epochs), ("seconds", self.seconds)];
        for (unit, amount) in budgets {
            if let Some(amount) = amount {
                builder = builder
                    .set("budget.unit", unit)?
                    .set("budget.amount", toml_integer(amount)?)?;
            }
        }
        let seed = self.seed.map(toml_integer).transpose()?;
        let samples = self.samples.map(|n| toml_integer(n as u64)).transpose()?;
        let slate_size = self.slate_size.map(|n| toml_integer(n as u64)).transpose()?;
        let numbers =
            [("seed", seed), ("policy.samples", samples), ("policy.slate_size", slate_size)];
        for (key, value) in numbers {
            if let Some(value) = value {
                builder = builder.set(key, value)?;
            }
        }
        Ok(builder.build()?)
    }
}

/// Opens a prepared folder that draws a bar while it builds an index.
pub(super) fn open(folder: &Path) -> Result<Prepared> {
    Ok(watched(Prepared::open(folder)?))
}

/// The same folder, drawing a bar while it builds an index.
pub(super) fn watched(prepared: Prepared) -> Prepared {
    prepared.with_observer(Arc::new(IndexBar::default()))
}

/// TOML's integers are signed.
fn toml_integer(number: u64) -> Result<i64> {
    i64::try_from(number).with_context(|| format!("{number} is too large"))
}

/// Reads the value of `--preset`.
pub(super) fn preset(text: &str) -> Result<Preset, String> {
    match text {
        "paper" => Ok(Preset::Paper),
        "default" => Ok(Preset::Default),
        _ => Err("expected paper or default".into()),
    }
}

/// Reads a share such as `--recall`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".into()),
    }
}
