//! A grid goes in; its cells come out: one training each, with their settings and the order of training.

use serde::{Deserialize, Serialize};

use super::grid::{Grid, Row};
use crate::error::Result;
use crate::settings::{BudgetSettings, EvaluationSearch, Settings, SettingsBuilder};

/// A cell: a row of the grid on a data set, with one S, K and seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The data set's name.
    pub data: String,
    /// The row's name.
    pub row: String,
    /// S.
    pub samples: usize,
    /// K.
    pub slate_size: usize,
    /// The seed.
    pub seed: u64,
}

/// The cells that share a data set, S, K and seed: one for each row, trained one after the other.
pub type Round = Vec<Cell>;

impl Cell {
    /// Its place below a comparison's folder: unique, and a valid name on any file system.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { data, row, samples, slate_size, seed } = self;
        format!("{}/{}-s{samples}-k{slate_size}-seed{seed}", file_name(data), file_name(row))
    }

    /// The cell's settings: the preset's, then the grid's, the method's, the row's and its own.
    /// Evaluations search exactly unless the grid sets `evaluation.search`: rows that are judged
    /// through different searches cannot be compared. Nor can rows that a lack of patience ends early: all have
    /// the whole budget unless the grid sets `evaluation.patience`.
    ///
    /// # Errors
    /// Fails if the settings do not go together; then the cell is "N/A".
    pub fn settings(
        &self,
        preset: &Settings,
        grid: &Grid,
        row: &Row,
        budget: &BudgetSettings,
        learning_rate: Option<f64>,
    ) -> Result<Settings> {
        let mut preset = preset.clone();
        preset.evaluation.search = EvaluationSearch::Exact;
        preset.evaluation.patience = 0;
        let mut builder = SettingsBuilder::new(&preset)?.overlay(&grid.set)?;
        if let Some(method) = row.method {
            builder = builder.set("method.kind", method.key())?;
        }
        if let Some(rate) = learning_rate {
            builder = builder.set("optimizer.learning_rate", rate)?;
        }
        let mut settings = builder
            .count("method.samples", self.samples)?
            .count("slate_size", self.slate_size)?
            .overlay(&row.set)?
            .build()?;
        settings.seed.0 = self.seed;
        settings.budget = budget.clone();
        settings.evaluation.count = grid.evaluations;
        Ok(settings)
    }
}

impl Grid {
    /// All cells in the order of training. Seeds are outermost: other work of the machine then
    /// disturbs all rows alike, and a comparison that is cut short has whole seeds.
    #[must_use]
    pub fn rounds(&self) -> Vec<Round> {
        let rows = self.rows();
        let mut rounds = Vec::new();
        for &seed in &self.seeds {
            for data in &self.data {
                for &slate_size in &self.slate_sizes {
                    let trained = |samples: &&usize| {
                        let only = self.only.iter().find(|only| only.slate_size == slate_size);
                        only.is_none_or(|o| o.samples.contains(samples) && o.seeds.contains(&seed))
                    };
                    for &samples in self.samples.iter().filter(trained) {
                        let cell = |row: &Row| Cell {
                            data: data.name.clone(),
                            row: row.name.clone(),
                            samples,
                            slate_size,
                            seed,
                        };
                        rounds.push(rows.iter().map(cell).collect());
                    }
                }
            }
        }
        rounds
    }
}

/// `name` with only letters, digits and dashes; a digest keeps different names apart.
#[must_use]
pub fn file_name(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let plain: String = name.chars().map(kept).collect();
    if plain == name {
        return plain;
    }
    let digest = crate::files::digest_bytes(name.as_bytes());
    format!("{plain}-{}", &digest[..4])
}
