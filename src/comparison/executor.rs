//! Trains a grid's cells one after the other, after what they depend on: the searches for learning
//! rates, and how fast each row is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::cell::{Cell, Round};
use super::grid::{Equal, Grid, Row};
use super::process::{self, Ended, Footprint};
use super::record::{OUTCOME, end, ended, measurements, recall, require_same};
use super::results::{CellOutcome, CellResult, DataDescription, Machine, Results, Searched};
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::prepared::Prepared;
use crate::run::{RunFolder, RunOrigin};
use crate::settings::{BudgetSettings, BudgetUnit, Preset, Settings};

/// A prepared folder, as far as a comparison needs to know it.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// What its runs are of.
    pub origin: RunOrigin,
    /// The preset's settings for it.
    pub preset: Settings,
    /// What the report says of it.
    pub description: DataDescription,
}

impl DataSet {
    /// Looks at a prepared folder, for runs on the device of that name.
    #[must_use]
    pub fn new(
        name: &str,
        prepared: &Prepared,
        commands: Vec<String>,
        preset: Preset,
        device: &str,
    ) -> Self {
        Self {
            origin: RunOrigin::new(prepared, device),
            preset: prepared.preset(preset),
            description: DataDescription {
                name: name.to_owned(),
                commands,
                statistics: prepared.manifest.statistics.clone(),
                latent_dim: prepared.embeddings.latent_dim(),
            },
        }
    }
}

/// A comparison at work.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// What is compared.
    pub grid: &'a Grid,
    /// On what: every data set of the grid, by its name and by what a row adds to its preparation.
    pub data: &'a HashMap<(String, String), DataSet>,
    /// Where it all goes.
    pub folder: &'a Path,
    /// The `slate` that trains.
    pub program: &'a Path,
    /// Where it trains.
    pub machine: Machine,
    /// Set by whoever wants the comparison to stop where it can go on.
    pub stop: &'a AtomicBool,
}

/// Who watches a comparison. `()` does not look.
pub trait Watcher {
    /// After every cell, with how many have ended and how many there are.
    fn ended(&mut self, _cell: &CellResult, _done: usize, _of: usize) {}
    /// After every search for a learning rate.
    fn searched(&mut self, _searched: &Searched) {}
    /// When another process, left by a comparison that was killed, trains the next cell.
    fn waiting(&mut self, _run: &Path) {}
}

impl Watcher for () {}

/// How much shorter than a cell a trial of its speed is.
const SPEED_SHARE: u64 = 10;

/// Nothing where it was asked to stop before.
type UnlessStopped<T> = Option<T>;

impl Comparison<'_> {
    /// Trains every cell that has not ended, searches included; whether it came to the end.
    ///
    /// # Errors
    /// Those of loading and training, naming the cell's run.
    pub fn run(&self, watcher: &mut dyn Watcher) -> Result<bool> {
        let rounds = self.grid.rounds();
        let of = rounds.iter().map(Vec::len).sum();
        let (mut found, mut done) = (HashMap::new(), 0);
        for round in &rounds {
            let mut rates = Vec::new();
            for cell in round {
                let at = self.search_at(cell);
                if !found.contains_key(&at) {
                    let Some(rate) = self.search(&at, watcher)? else { return Ok(false) };
                    found.insert(at.clone(), rate);
                }
                rates.push(found[&at]);
            }
            let Some(budget) = self.budget(round, watcher)? else { return Ok(false) };
            for (cell, rate) in round.iter().zip(rates) {
                let settings = self.settings(cell, &budget, rate);
                let folder = self.cell_folder(cell);
                if self.train(&folder, cell, settings, watcher)?.is_none() {
                    return Ok(false);
                }
                done += 1;
                if let Some(result) = self.result(cell)? {
                    watcher.ended(&result, done, of);
                }
            }
        }
        Ok(true)
    }

    /// What the comparison has come to so far.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn results(&self) -> Result<Results> {
        let (mut cells, mut of) = (Vec::new(), 0);
        let mut searches: Vec<Searched> = Vec::new();
        for cell in self.grid.rounds().iter().flatten() {
            of += 1;
            cells.extend(self.result(cell)?);
            let found = self.searched(&self.search_at(cell))?;
            searches.extend(found.filter(|found| !searches.contains(found)));
        }
        let mut data: Vec<DataDescription> = Vec::new();
        for set in &self.grid.data {
            for row in self.grid.rows() {
                let description = &self.set(&set.name, &row.prepare)?.description;
                if !data.contains(description) {
                    data.push(description.clone());
                }
            }
        }
        let (grid, machine) = (self.grid.clone(), self.machine.clone());
        Ok(Results { grid, data, machine, cells, of, searches })
    }

    fn set(&self, data: &str, prepare: &str) -> Result<&DataSet> {
        let key = (data.to_owned(), prepare.to_owned());
        self.data.get(&key).ok_or_else(|| Error::setting("data", format!("`{data}` is missing")))
    }

    fn row(&self, cell: &Cell) -> Row {
        let row = self.grid.rows().into_iter().find(|row| row.name == cell.row);
        row.unwrap_or_else(|| unreachable!("cells are made of the grid's rows"))
    }

    fn set_of(&self, cell: &Cell) -> Result<&DataSet> {
        self.set(&cell.data, &self.row(cell).prepare)
    }

    fn settings(
        &self,
        cell: &Cell,
        budget: &BudgetSettings,
        rate: Option<f64>,
    ) -> Result<Settings> {
        let preset = &self.set_of(cell)?.preset;
        let mut settings = cell.settings(preset, self.grid, &self.row(cell), budget, rate)?;
        settings.checkpoint.keep = 1;
        Ok(settings)
    }

    /// The cell that the learning rate of `cell` is searched in.
    fn search_at(&self, cell: &Cell) -> Cell {
        let Some(search) = &self.grid.search else { return cell.clone() };
        Cell {
            samples: search.samples.unwrap_or(cell.samples),
            slate_size: search.slate_size.unwrap_or(cell.slate_size),
            seed: search.seed,
            ..cell.clone()
        }
    }

    /// The learning rate found with `at`; nothing where the settings' own is used.
    fn search(&self, at: &Cell, watcher: &mut dyn Watcher) -> Result<UnlessStopped<Option<f64>>> {
        let Some(search) = &self.grid.search else { return Ok(Some(None)) };
        for &rate in &search.learning_rates {
            let settings = self.settings(at, &search.budget.0, Some(rate)).map(brief);
            if self.train(&self.search_folder(at, rate), at, settings, watcher)?.is_none() {
                return Ok(None);
            }
        }
        let searched = self.searched(at)?;
        if let Some(searched) = &searched {
            watcher.searched(searched);
        }
        Ok(Some(searched.map(|searched| searched.best)))
    }

    /// What the search with `at` came to, if there was one, has ended, and any rate could be tried.
    fn searched(&self, at: &Cell) -> Result<Option<Searched>> {
        let Some(search) = &self.grid.search else { return Ok(None) };
        let mut tried = Vec::new();
        for &rate in &search.learning_rates {
            let folder = self.search_folder(at, rate);
            if !folder.join(OUTCOME).exists() {
                return Ok(None);
            }
            let measured = measurements(&RunFolder::new(&folder))?;
            let last = measured.last().and_then(|last| last.reward(Split::Validation));
            tried.extend(last.map(|last| (rate, last.reward)));
        }
        let finite = tried.iter().filter(|(_, reward)| reward.is_finite());
        let best = finite.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(rate, _)| *rate);
        let Cell { data, row, samples, slate_size, .. } = at.clone();
        Ok(best.map(|best| Searched { data, row, samples, slate_size, tried, best }))
    }

    /// What every cell of a round has to spend.
    fn budget(
        &self,
        round: &Round,
        watcher: &mut dyn Watcher,
    ) -> Result<UnlessStopped<BudgetSettings>> {
        let budget = &self.grid.budget.0;
        if self.grid.equal == Equal::Time || budget.unit != BudgetUnit::Seconds {
            return Ok(Some(budget.clone()));
        }
        let trial =
            BudgetSettings { amount: (budget.amount / SPEED_SHARE).max(1), ..budget.clone() };
        let seed = self.grid.seeds.first().copied().unwrap_or_default();
        let mut slowest = f64::INFINITY;
        for cell in round {
            let cell = Cell { seed, ..cell.clone() };
            let settings = self.settings(&cell, &trial, None).map(brief);
            let folder = self.folder.join("speeds").join(cell.name());
            match self.train(&folder, &cell, settings, watcher)? {
                None => return Ok(None),
                Some(CellOutcome::Trained { steps, seconds, .. }) => {
                    slowest = slowest.min(steps as f64 / seconds);
                }
                Some(CellOutcome::NotAvailable { .. }) => {}
            }
        }
        let steps = slowest * budget.amount as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0")]
        let amount = if steps.is_finite() { steps.max(1.0) as u64 } else { 1 };
        Ok(Some(BudgetSettings { unit: BudgetUnit::Steps, amount }))
    }

    /// Trains in `folder`, unless that has ended before.
    fn train(
        &self,
        folder: &Path,
        cell: &Cell,
        settings: Result<Settings>,
        watcher: &mut dyn Watcher,
    ) -> Result<UnlessStopped<CellOutcome>> {
        let run = RunFolder::new(folder);
        let settings = match settings {
            // What a method cannot do is a result.
            Err(refusal @ Error::Setting { .. }) => {
                let outcome = CellOutcome::NotAvailable { reason: refusal.to_string() };
                return end(&run, outcome).map(Some);
            }
            settings => settings?,
        };
        let origin = &self.set_of(cell)?.origin;
        if run.exists() {
            require_same(&run, &settings, origin)?;
        } else {
            run.begin(&settings, origin)?;
        }
        if let Some(outcome) = ended(&run)? {
            return Ok(Some(outcome));
        }
        if !self.wait_for(&run, watcher)? {
            return Ok(None);
        }
        let outcome = match process::train(self.program, &run, self.grid.memory_ceiling, self.stop)?
        {
            Ended::Interrupted => return Ok(None),
            Ended::TooLarge(memory) => {
                let ceiling = self.grid.memory_ceiling.unwrap_or(memory);
                let reason =
                    format!("takes {memory} of memory or more, above the {ceiling} it may");
                CellOutcome::NotAvailable { reason }
            }
            Ended::Finished(Footprint { peak, training }) => {
                let last = measurements(&run)?.pop();
                let last = last.ok_or_else(|| Error::file(run.path(), "recorded no evaluation"))?;
                CellOutcome::Trained {
                    steps: last.step,
                    seconds: last.seconds,
                    learning_rate: settings.optimizer.learning_rate,
                    recall: recall(&run)?,
                    peak_memory: peak,
                    training_memory: training,
                }
            }
        };
        end(&run, outcome).map(Some)
    }

    /// Waits until no other process trains here: a comparison that was killed leaves its training
    /// to go on alone. Whether it was not asked to stop meanwhile.
    fn wait_for(&self, run: &RunFolder, watcher: &mut dyn Watcher) -> Result<bool> {
        let mut told = false;
        loop {
            match run.lock() {
                Ok(_) => return Ok(true),
                Err(Error::File { .. }) => {}
                Err(error) => return Err(error),
            }
            if !std::mem::replace(&mut told, true) {
                watcher.waiting(run.path());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn cell_folder(&self, cell: &Cell) -> PathBuf {
        self.folder.join("cells").join(cell.name())
    }

    fn search_folder(&self, at: &Cell, rate: f64) -> PathBuf {
        self.folder.join("searches").join(format!("{}-rate{rate:e}", at.name()))
    }

    fn result(&self, cell: &Cell) -> Result<Option<CellResult>> {
        let run = RunFolder::new(self.cell_folder(cell));
        let Some(outcome) = ended(&run)? else { return Ok(None) };
        let measurements = match outcome {
            CellOutcome::Trained { .. } => measurements(&run)?,
            CellOutcome::NotAvailable { .. } => Vec::new(),
        };
        let command = format!(
            "slate train --data {} --config {} --out RUN",
            self.set_of(cell)?.origin.data.display(),
            run.settings_path().display()
        );
        let run = run.path().to_owned();
        Ok(Some(CellResult { cell: cell.clone(), outcome, measurements, run, command }))
    }
}

/// Settings of a run that only its end is looked at.
fn brief(mut settings: Settings) -> Settings {
    settings.evaluation.count = 1;
    settings.evaluation.gradient_draws = 0;
    settings
}
