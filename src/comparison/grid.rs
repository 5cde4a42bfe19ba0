//! `GRID.toml`: what is compared with what, on what, for how long.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::amounts::{Amount, Bytes};
use crate::dataset::Split;
use crate::error::{Error, Result, toml_problem};
use crate::settings::{Method, Preset};

/// A grid: every row is trained on every data set with every S, K and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The report's title.
    pub title: String,
    /// What is shown and how to read it: paragraphs of the report.
    #[serde(default)]
    pub about: String,
    /// What the settings of every cell start from.
    #[serde(default)]
    pub preset: Preset,
    /// `key=value`, over the preset.
    #[serde(default)]
    pub set: Vec<String>,
    /// Rows that are a method of the paper and no more.
    #[serde(default)]
    pub methods: Vec<Method>,
    /// All other rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// S.
    pub samples: Vec<usize>,
    /// K.
    pub slate_sizes: Vec<usize>,
    /// Of initialisation, batches and noise; the data stays.
    pub seeds: Vec<u64>,
    /// K that fewer cells are trained with.
    #[serde(default)]
    pub only: Vec<Only>,
    /// The data sets.
    pub data: Vec<Data>,
    /// How long a cell trains.
    pub budget: Amount,
    /// In what the cells that differ in their row alone are equal.
    #[serde(default)]
    pub equal: Equal,
    /// Evaluations at equal intervals, besides the one at step 0.
    #[serde(default = "ten")]
    pub evaluations: u64,
    /// The learning rates to choose from; without it, that of the settings.
    #[serde(default)]
    pub search: Option<Search>,
    /// The most memory that a cell's training may have.
    #[serde(default)]
    pub memory_ceiling: Option<Bytes>,
    /// Whose reward the tables, the bars and the curves show.
    #[serde(default = "validation")]
    pub split: Split,
    /// What is drawn.
    #[serde(default)]
    pub figures: Vec<FigureKind>,
    /// What the paper reports in the same place.
    #[serde(default)]
    pub published: Option<Published>,
}

/// Of the cells with this K, those that are trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    /// K.
    pub slate_size: usize,
    /// With these S.
    pub samples: Vec<usize>,
    /// With these seeds.
    pub seeds: Vec<u64>,
}

/// A way to train: a method, and what else is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name in tables and legends.
    pub name: String,
    /// Its policy, estimator and retrieval; without it, those of the settings.
    #[serde(default)]
    pub method: Option<Method>,
    /// `key=value`, over the grid's and the method's.
    #[serde(default)]
    pub set: Vec<String>,
    /// Added to the `prepare` of every data set: the same sessions with other embeddings.
    #[serde(default)]
    pub prepare: String,
}

/// A data set: exactly one of `log`, `synth` and `prepared`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Its name in tables and panels.
    pub name: String,
    /// A log, as `slate prepare` takes it.
    #[serde(default)]
    pub log: String,
    /// The flags of `slate synth`, for a log that is made up.
    #[serde(default)]
    pub synth: String,
    /// The flags of `slate prepare`.
    #[serde(default)]
    pub prepare: String,
    /// A prepared folder.
    #[serde(default)]
    pub prepared: String,
    /// The data set of the paper whose numbers stand beside it.
    #[serde(default)]
    pub published_as: Option<String>,
}

/// What cells that differ in their row alone have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equal {
    /// Their budget.
    #[default]
    Time,
    /// Their steps: those that the slowest of them takes in the budget.
    Iterations,
}

/// The search for learning rates: one for every data set and row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The rates to try.
    pub learning_rates: Vec<f64>,
    /// How long each is tried.
    pub budget: Amount,
    /// With this S, or each of the grid's S for itself.
    #[serde(default)]
    pub samples: Option<usize>,
    /// With this K, or each of the grid's K for itself.
    #[serde(default)]
    pub slate_size: Option<usize>,
    /// With this seed.
    #[serde(default)]
    pub seed: u64,
}

/// Pictures of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// The reward over the training clock; a panel for each data set, S and K, a line for each row.
    RewardOverTime,
    /// The reward over steps.
    RewardOverSteps,
    /// The same, a panel for each data set, row and S, a line for each K.
    RewardOverStepsByRow,
    /// The variance of the gradient over steps; panels and lines as [`Self::RewardOverSteps`].
    Variance,
    /// The same, a panel for each data set, row and S, a line for each K.
    VarianceByRow,
    /// The reward at the end, as bars; a panel for each data set and K.
    FinalReward,
    /// Seconds a step over P and over S, with fitted slopes.
    StepTime,
    /// Memory over P and over S, with fitted slopes.
    Memory,
}

/// Numbers that somebody else has published, in their units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they stand, and of what they are.
    pub source: String,
    /// The numbers.
    pub numbers: Vec<PublishedNumber>,
}

/// One of them: method, S, data set, K, mean and standard error; without these, "N/A".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    /// The row's name.
    pub row: String,
    /// S.
    pub samples: usize,
    /// The data set of the paper.
    pub data: String,
    /// K.
    pub slate_size: usize,
    /// The mean and its standard error.
    #[serde(default)]
    pub reward: Option<(f64, f64)>,
}

fn ten() -> u64 {
    10
}

fn validation() -> Split {
    Split::Validation
}

/// The table of a grid whose tables are overlaid on it, one by `--scale`.
const SCALES: &str = "scale";

/// The scale of a grid that has several, unless told.
pub const SCALE: &str = "quick";

impl Grid {
    /// The grid of a file, at one of its scales if it has some.
    ///
    /// # Errors
    /// Naming the file: not there, no TOML, an unknown scale or key, a value that cannot be.
    pub fn read(path: &Path, scale: &str) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let parsed: Result<Table, _> = text.parse();
        let bad = |problem: String| Error::file(path, problem);
        let mut table = parsed.map_err(|error| bad(toml_problem(&error, &text)))?;
        if let Some(scales) = table.remove(SCALES) {
            let mut scales: Table =
                scales.try_into().map_err(|_| bad(format!("`{SCALES}` is no table")))?;
            let names: Vec<_> = scales.keys().cloned().collect();
            let Some(toml::Value::Table(overlay)) = scales.remove(scale) else {
                let names = names.join(", ");
                return Err(bad(format!("no scale `{scale}`; there are {names} (--scale)")));
            };
            table.extend(overlay);
        }
        let grid: Self =
            table.try_into().map_err(|error: toml::de::Error| bad(toml_problem(&error, "")))?;
        grid.validate().map_err(|error| bad(error.to_string()))?;
        Ok(grid)
    }

    /// Every row: those that are a method alone, and then the others.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let of_method = |&method: &Method| Row {
            name: method.name().to_owned(),
            method: Some(method),
            set: Vec::new(),
            prepare: String::new(),
        };
        self.methods.iter().map(of_method).chain(self.rows.iter().cloned()).collect()
    }

    fn validate(&self) -> Result<()> {
        let rows = self.rows();
        for (key, empty) in [
            ("methods", rows.is_empty()),
            ("samples", self.samples.is_empty()),
            ("slate_sizes", self.slate_sizes.is_empty()),
            ("seeds", self.seeds.is_empty()),
            ("data", self.data.is_empty()),
            ("evaluations", self.evaluations == 0),
            (
                "search.learning_rates",
                self.search.as_ref().is_some_and(|search| search.learning_rates.is_empty()),
            ),
        ] {
            if empty {
                return Err(Error::setting(key, "expected at least one"));
            }
        }
        unique("row", rows.iter().map(|row| row.name.as_str()))?;
        unique("data", self.data.iter().map(|data| data.name.as_str()))?;
        for data in &self.data {
            let sources = [&data.log, &data.synth, &data.prepared];
            if sources.iter().filter(|source| !source.is_empty()).count() != 1 {
                let problem = format!("`{}`: expected one of log, synth and prepared", data.name);
                return Err(Error::setting("data", problem));
            }
            if !data.prepared.is_empty() && rows.iter().any(|row| !row.prepare.is_empty()) {
                let problem = format!(
                    "`{}`: is prepared already, and a row wants it prepared otherwise; give its log",
                    data.name
                );
                return Err(Error::setting("data", problem));
            }
        }
        Ok(())
    }
}

fn unique<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Error::setting(key, format!("two are named `{name}`")));
        }
        seen.push(name);
    }
    Ok(())
}
