//! Shared flags in, an open prepared folder, a device and validated settings out: the beginning of
//! every verb that trains or measures.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde::de::{DeserializeOwned, IntoDeserializer, value};

use crate::cli::flags::DeviceArgs;
use crate::cli::progress::IndexBar;
use crate::device::{self, Chosen};
use crate::error::Error;
use crate::logged::rewards::LoggedReward;
use crate::logged::{Bounds, Cut, Outcome, Reading};
use crate::method::MethodKind;
use crate::prepared::Prepared;
use crate::settings::{Preset, Settings, SettingsBuilder};

/// The sources of a run's settings. Each one overlays those before it.
#[derive(Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// The named defaults to begin with: paper or default.
    #[arg(long, value_parser = named::<Preset>)]
    pub(crate) preset: Option<Preset>,
    /// A TOML file with any of the keys of a run.toml.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// One setting, such as method.samples=32; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Train for this many optimiser steps.
    #[arg(long, group = "budget")]
    pub(crate) steps: Option<u64>,
    /// Train for this many passes over the training users.
    #[arg(long, group = "budget")]
    pub(crate) epochs: Option<u64>,
    /// Train for this many seconds, without the time of evaluations.
    #[arg(long, group = "budget")]
    pub(crate) seconds: Option<u64>,
    /// The method of training.
    #[arg(long, value_name = "KIND", value_parser = methods())]
    pub(crate) method: Option<MethodKind>,
    /// S, the number of slates sampled for each user and step.
    #[arg(long)]
    pub(crate) samples: Option<usize>,
    /// K, the number of items on a slate.
    #[arg(long)]
    pub(crate) slate_size: Option<usize>,
    /// The seed of every random draw.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// A log of slates that were shown, and how it is read.
#[derive(Debug, Default, Args)]
pub(super) struct LoggedArgs {
    /// Folders of logs of `slate serve`, or Parquet files of them, separated by commas, in the place of
    /// hidden items; for `train --estimate`, also tables of slates that another system showed.
    #[arg(long, value_name = "LOG", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    pub(super) logged: Vec<PathBuf>,
    /// What a slate earned, out of its feedback: the sum of all values, or any, which is 1 if some value
    /// is above 0 [default: sum].
    #[arg(long, requires = "logged", value_parser = named::<Outcome>)]
    outcome: Option<Outcome>,
    /// The least and the most that a slate can earn, such as 0,5 for five items that may be clicked once;
    /// the most may be left out [default: at least 0].
    #[arg(long, value_name = "LOW[,HIGH]", requires = "logged", value_parser = bounds,
          allow_hyphen_values = true)]
    reward_bounds: Option<Bounds>,
}

impl LoggedArgs {
    /// How the log is read where persons are divided by `cut`.
    ///
    /// # Errors
    /// [`Error::Setting`] for what says nothing beside an `estimate`.
    pub(super) fn reading(&self, cut: Cut, estimate: Option<LoggedReward>) -> Result<Reading> {
        let given =
            [("outcome", self.outcome.is_some()), ("reward-bounds", self.reward_bounds.is_some())];
        if let (Some(_), Some((key, _))) = (estimate, given.iter().find(|(_, given)| *given)) {
            let problem =
                "--estimate learns from what each item earned, not from the slate; leave it out";
            return Err(Error::setting(*key, problem).into());
        }
        let (outcome, bounds) =
            (self.outcome.unwrap_or_default(), self.reward_bounds.unwrap_or_default());
        Ok(Reading { outcome, bounds, cut, estimate })
    }
}

/// Reads the value of `--reward-bounds`.
fn bounds(text: &str) -> Result<Bounds, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let wrong = || "expected a number, or two such as 0,1 with the least first".to_owned();
    let (low, high) = match text.split_once(',') {
        None => (text, None),
        Some((low, high)) => (low, Some(number(high).ok_or_else(wrong)?)),
    };
    let low = number(low).ok_or_else(wrong)?;
    if high.is_some_and(|high| high <= low) {
        return Err(wrong());
    }
    Ok(Bounds { low, high })
}

/// A verb's prepared folder, device and settings.
pub(super) struct Opened {
    pub(super) prepared: Prepared,
    pub(super) device: Chosen,
    pub(super) settings: Settings,
}

impl DeviceArgs {
    /// Chooses the device that the flag names, else the `recorded` one, else the best one here.
    pub(super) fn choose(&self, recorded: Option<&str>) -> Result<Chosen> {
        Ok(device::choose(self.name().or(recorded))?)
    }
}

impl SettingsArgs {
    /// Refuses the flags of a budget, for a verb that trains nothing.
    pub(super) fn require_no_budget(&self) -> Result<()> {
        if [self.steps, self.epochs, self.seconds].iter().any(Option::is_some) {
            bail!("nothing is trained here: leave --steps, --epochs and --seconds out");
        }
        Ok(())
    }

    /// Opens the prepared folder `data`, chooses the device and resolves the settings.
    pub(super) fn open(&self, data: &Path) -> Result<Opened> {
        let device = self.device.choose(None)?;
        let prepared = open(data)?;
        let settings = self.resolve(&prepared.preset(self.preset.unwrap_or_default()))?;
        Ok(Opened { prepared, device, settings })
    }

    /// Overlays `base` with these flags.
    pub(super) fn resolve(&self, base: &Settings) -> Result<Settings> {
        let mut builder = SettingsBuilder::new(base)?;
        if let Some(path) = &self.config {
            builder = builder.file(path)?;
        }
        if let Some(kind) = self.method {
            builder = builder.set("method.kind", kind.key())?;
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
        let numbers = [("seed", seed), ("method.samples", samples), ("slate_size", slate_size)];
        for (key, value) in numbers {
            if let Some(value) = value {
                builder = builder.set(key, value)?;
            }
        }
        Ok(builder.build()?)
    }
}

/// Opens a prepared folder that draws a progress bar while it builds an index.
pub(super) fn open(folder: &Path) -> Result<Prepared> {
    Ok(watched(Prepared::open(folder)?))
}

/// Makes a prepared folder draw a progress bar while it builds an index.
pub(super) fn watched(prepared: Prepared) -> Prepared {
    prepared.with_observer(Arc::new(IndexBar::default()))
}

/// Converts to the signed integers of TOML.
fn toml_integer(number: u64) -> Result<i64> {
    i64::try_from(number).with_context(|| format!("{number} is too large"))
}

/// Reads the name of a method; the help lists all names.
fn methods() -> impl TypedValueParser<Value = MethodKind> {
    let names = MethodKind::ALL.iter().map(|kind| kind.key());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<MethodKind>())
}

/// Reads a value by the name that it has in files.
pub(super) fn named<T: DeserializeOwned>(name: &str) -> Result<T, String> {
    T::deserialize(name.into_deserializer()).map_err(|error: value::Error| error.to_string())
}

/// Reads a share such as `--recall`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".into()),
    }
}
