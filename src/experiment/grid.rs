//! A file, `GRID.toml`, goes in; a [`Grid`] comes out: which methods are compared, on which data, for
//! how long.

use std::fmt::Display;
use std::iter;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::amounts::{Amount, Bytes};
use super::arguments::{flags, shell};
use crate::dataset::Split;
use crate::error::{Error, Result, toml_problem};
use crate::method::MethodKind;
use crate::settings::{Preset, leaves};

/// A grid: every row is trained on every data set with every S, K and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The report's title.
    pub title: String,
    /// The report's first paragraphs: what it shows and how to read it.
    #[serde(default)]
    pub about: String,
    /// The settings that every cell starts from.
    #[serde(default)]
    pub preset: Preset,
    /// Settings over the preset, by key: `{ "method.sigma" = "inverse-dim" }`; none that a key of the grid
    /// sets, such as `samples`.
    #[serde(default)]
    pub set: Table,
    /// Rows that are a method of the paper and no more.
    #[serde(default)]
    pub methods: Vec<MethodKind>,
    /// All other rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// S.
    pub samples: Vec<usize>,
    /// K.
    pub slate_sizes: Vec<usize>,
    /// Seeds of initialisation, batches and noise; the data stays the same.
    pub seeds: Vec<u64>,
    /// Slate sizes with fewer cells.
    #[serde(default)]
    pub only: Vec<Only>,
    /// The data sets.
    pub data: Vec<Data>,
    /// How long a cell trains.
    pub budget: Amount,
    /// The amount that all cells of a round share: their time or their steps.
    #[serde(default)]
    pub equal: Equal,
    /// Evaluations at equal intervals, besides the one at step 0.
    #[serde(default = "ten")]
    pub evaluations: u64,
    /// The learning rates to choose from; without it, the settings' learning rate is used.
    #[serde(default)]
    pub search: Option<RateSearch>,
    /// The most memory that the training of a cell may use.
    #[serde(default)]
    pub memory_ceiling: Option<Bytes>,
    /// The users whose reward the tables, the bars and the curves show; a training is never judged on test
    /// users.
    #[serde(default = "validation")]
    pub split: Split,
    /// The pictures of the report.
    #[serde(default)]
    pub figures: Vec<FigureKind>,
    /// The paper's numbers, which stand beside the measured ones.
    #[serde(default)]
    pub published: Option<Published>,
}

/// Limits the cells with one slate size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    /// K.
    pub slate_size: usize,
    /// The S to train with.
    pub samples: Vec<usize>,
    /// The seeds to train with.
    pub seeds: Vec<u64>,
}

/// A way to train: a method and other settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name in tables and legends.
    pub name: String,
    /// Its policy, estimator and retrieval; without it, those of the settings.
    #[serde(default)]
    pub method: Option<MethodKind>,
    /// Settings over the grid's and the method's, by key; none of `evaluation` and `reward`, by which all
    /// rows are judged alike. Tables show the grid's S beside a row that has its own `method.samples`.
    #[serde(default)]
    pub set: Table,
    /// Flags over the `prepare` of every data set: the same sessions with other embeddings.
    #[serde(default)]
    pub prepare: Table,
}

/// A data set: exactly one of `log`, `synth` and `prepared`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Its name in tables and panels.
    pub name: String,
    /// A log, as `slate prepare` reads it.
    #[serde(default)]
    pub log: String,
    /// The flags of `slate synth`, for a synthetic log: `{ users = 6000, actions = 400 }`.
    #[serde(default)]
    pub synth: Table,
    /// The flags of `slate prepare`: `{ preset = "paper", no-index = true }`.
    #[serde(default)]
    pub prepare: Table,
    /// A prepared folder.
    #[serde(default)]
    pub prepared: String,
    /// The paper's data set whose numbers stand beside this one's.
    #[serde(default)]
    pub published_as: Option<String>,
}

/// The amount that all cells of a round share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Equal {
    /// Their budget.
    #[default]
    Time,
    /// Their number of steps: as many as the slowest of them takes in the budget.
    Iterations,
}

/// The search for a learning rate, one for every data set and row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSearch {
    /// The rates to try.
    pub learning_rates: Vec<f64>,
    /// How long each of them trains.
    pub budget: Amount,
    /// The S to search with; without it, each S of the grid has its own search.
    #[serde(default)]
    pub samples: Option<usize>,
    /// The K to search with; without it, each K of the grid has its own search.
    #[serde(default)]
    pub slate_size: Option<usize>,
    /// The seed to search with.
    #[serde(default)]
    pub seed: u64,
}

/// Pictures of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// The reward over training time: a panel for each data set, S and K, a line for each row.
    RewardOverTime,
    /// The reward over steps, with the same panels.
    RewardOverSteps,
    /// The reward over steps: a panel for each data set, row and S, a line for each K.
    RewardOverStepsByRow,
    /// The variance of the gradient over steps: a panel for each data set, S and K.
    Variance,
    /// The variance of the gradient over steps: a panel for each data set, row and S.
    VarianceByRow,
    /// The reward at the end, as bars; a panel for each data set and K.
    FinalReward,
    /// Seconds per step over P and over S, with fitted slopes.
    StepTime,
    /// Memory over P and over S, with fitted slopes.
    Memory,
}

/// Published numbers, in their own units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they were published, and how they were measured.
    pub source: String,
    /// The numbers.
    pub numbers: Vec<PublishedNumber>,
}

/// A published number; "N/A" without a reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    /// The row's name.
    pub row: String,
    /// S.
    pub samples: usize,
    /// The paper's data set.
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

/// A grid's table of scales: each is laid over the rest of the grid, chosen by `--scale`.
const SCALES: &str = "scale";

/// The scale that is used unless `--scale` names another.
pub const SCALE: &str = "quick";

impl Row {
    /// The flags that the row adds to `slate prepare`, as a shell takes them.
    #[must_use]
    pub fn added(&self) -> String {
        shell(&flags(&self.prepare))
    }
}

impl Grid {
    /// Reads a grid's file, at one of its scales if it has some; at [`SCALE`] if it has none.
    ///
    /// # Errors
    /// Names the file: it is missing or no TOML, or it has an unknown scale or key, or an impossible
    /// value.
    pub fn read(path: &Path, scale: &str) -> Result<Self> {
        let text = fs::read_to_string(path)?;
        let parsed: Result<Table, _> = text.parse();
        let bad = |problem: String| Error::file(path, problem);
        let mut table = parsed.map_err(|error| bad(toml_problem(&error, &text)))?;
        if let Some(scales) = table.remove(SCALES) {
            let mut scales: Table =
                scales.try_into().map_err(|_| bad(format!("`{SCALES}` is no table")))?;
            let names: Vec<_> = scales.keys().cloned().collect();
            let Some(Value::Table(overlay)) = scales.remove(scale) else {
                let names = names.join(", ");
                return Err(bad(format!("no scale `{scale}`; there are {names} (--scale)")));
            };
            overlay_with(&mut table, overlay);
        } else if scale != SCALE {
            return Err(bad(format!("has no scales, so none named `{scale}`; leave --scale out")));
        }
        let grid: Self =
            table.try_into().map_err(|error: toml::de::Error| bad(toml_problem(&error, "")))?;
        grid.validate().map_err(|error| bad(error.to_string()))?;
        Ok(grid)
    }

    /// Every row: first the rows that are a method alone, then the others.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let of_method = |&method: &MethodKind| Row {
            name: method.name().to_owned(),
            method: Some(method),
            set: Table::new(),
            prepare: Table::new(),
        };
        self.methods.iter().map(of_method).chain(self.rows.iter().cloned()).collect()
    }

    fn validate(&self) -> Result<()> {
        let rows = self.rows();
        let rates = self.search.as_ref().map(|search| &search.learning_rates);
        for (key, empty) in [
            ("methods", rows.is_empty()),
            ("samples", self.samples.is_empty()),
            ("slate_sizes", self.slate_sizes.is_empty()),
            ("seeds", self.seeds.is_empty()),
            ("data", self.data.is_empty()),
            ("evaluations", self.evaluations == 0),
            ("search.learning_rates", rates.is_some_and(Vec::is_empty)),
        ] {
            if empty {
                return Err(Error::setting(key, "expected at least one"));
            }
        }
        unique("row", rows.iter().map(|row| &row.name))?;
        unique("data", self.data.iter().map(|data| &data.name))?;
        // A seed twice is no second run: the error bars would take it for one.
        unique("seeds", self.seeds.iter())?;
        unique("samples", self.samples.iter())?;
        unique("slate_sizes", self.slate_sizes.iter())?;
        unique("only", self.only.iter().map(|only| only.slate_size))?;
        if self.split == Split::Test {
            let problem = "expected validation or train: trainings are not judged on test users";
            return Err(Error::setting("split", problem));
        }
        let of_rows = rows.iter().map(|row| (Some(row.name.as_str()), &row.set));
        for (row, set) in iter::once((None, &self.set)).chain(of_rows) {
            let refused = |key: String| self.why_not(&key, row.is_some()).map(|why| (key, why));
            if let Some((key, why)) = leaves(set).into_keys().find_map(refused) {
                let by = row.map_or("the grid".to_owned(), |row| format!("row `{row}`"));
                return Err(Error::setting(key, format!("is set by {by}; {why}")));
            }
        }
        for data in &self.data {
            let sources = [!data.log.is_empty(), !data.synth.is_empty(), !data.prepared.is_empty()];
            let refuse =
                |problem| Err(Error::setting("data", format!("`{}`: {problem}", data.name)));
            if sources.iter().filter(|given| **given).count() != 1 {
                return refuse("expected one of log, synth and prepared");
            }
            if !data.prepared.is_empty() && rows.iter().any(|row| !row.prepare.is_empty()) {
                return refuse(
                    "is prepared already, and a row wants it prepared otherwise; give its log",
                );
            }
        }
        Ok(())
    }

    /// Why neither the grid's settings nor, for `of_row`, a row's may have a key: cells do not have its value,
    /// or have it under the name of another, or are judged by it.
    fn why_not(&self, key: &str, of_row: bool) -> Option<&'static str> {
        match key {
            "seed" => Some("use `seeds`"),
            "slate_size" => Some("use `slate_sizes`"),
            "evaluation.count" => Some("use `evaluations`"),
            "checkpoint.keep" => Some("a cell keeps one checkpoint; leave it out"),
            "method.samples" if !of_row => Some("use `samples`"),
            "optimizer.learning_rate" if self.search.is_some() => {
                Some("[search] chooses it; leave one of the two out")
            }
            _ if key.starts_with("budget.") => Some("use `budget`"),
            _ if of_row && ["evaluation.", "reward."].iter().any(|of| key.starts_with(of)) => {
                Some("all rows are judged alike: set it for the grid")
            }
            _ => None,
        }
    }
}

fn unique<T: PartialEq + Display>(key: &str, names: impl Iterator<Item = T>) -> Result<()> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Error::setting(key, format!("has `{name}` twice")));
        }
        seen.push(name);
    }
    Ok(())
}

/// Lays `overlay` over `table`, key by key within tables.
fn overlay_with(table: &mut Table, overlay: Table) {
    for (key, value) in overlay {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay_with(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_laid_over_the_grid_key_by_key() {
        let mut table: Table = "a = 1\n[set]\n\"x.y\" = 1\n\"x.z\" = 2".parse().unwrap();
        overlay_with(&mut table, "a = 2\n[set]\n\"x.y\" = 3".parse().unwrap());
        assert_eq!(table, "a = 2\n[set]\n\"x.y\" = 3\n\"x.z\" = 2".parse().unwrap());
    }
}
