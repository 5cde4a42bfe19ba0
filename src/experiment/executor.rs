//! A grid and its prepared data go in; trained cells come out, one after the other, each after what it
//! depends on: the search for its learning rate, and the speed of each row.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::arguments::shell;
use super::cell::{Cell, Round};
use super::grid::{Equal, Grid, Row};
use super::process::{self, Ended, Footprint};
use super::record::{end, ended, forget, measurements, recall, require_same};
use super::results::{CellOutcome, CellResult, DataDescription, Machine, Results, Searched};
use super::search::{Deadline, Judged, search};
use crate::dataset::Split;
use crate::error::{Error, Result};
use crate::files::remove_folder;
use crate::prepared::Prepared;
use crate::run::{RunFolder, RunOrigin};
use crate::settings::{BudgetSettings, BudgetUnit, Preset, Settings};

/// The facts about a prepared folder that a comparison needs.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// The origin of its runs.
    pub origin: RunOrigin,
    /// The preset's settings for this data.
    pub preset: Settings,
    /// The report's description.
    pub description: DataDescription,
}

impl DataSet {
    /// Describes a prepared folder of a set of the grid under a name of its own, for runs on the device of this name.
    #[must_use]
    pub fn new(
        (set, name): (&str, &str),
        prepared: &Prepared,
        commands: Vec<String>,
        preset: Preset,
        device: &str,
    ) -> Self {
        Self {
            origin: RunOrigin::new(prepared, device),
            preset: prepared.preset(preset),
            description: DataDescription {
                set: set.to_owned(),
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
    /// The grid.
    pub grid: &'a Grid,
    /// Every data set of the grid, by its name and by [`Row::added`].
    pub data: &'a HashMap<(String, String), DataSet>,
    /// The comparison's folder.
    pub folder: &'a Path,
    /// The `slate` program that trains.
    pub program: &'a Path,
    /// The machine that trains.
    pub machine: Machine,
    /// Set this flag to stop the comparison where it can go on.
    pub stop: &'a AtomicBool,
}

/// Watches a comparison. `()` does nothing.
pub trait Watcher {
    /// Called after every cell, with the number of cells that have ended and of all cells.
    fn ended(&mut self, _cell: &CellResult, _done: usize, _of: usize) {}
    /// Called after every search for a learning rate.
    fn searched(&mut self, _searched: &Searched) {}
    /// Called when another process, left by a comparison that was killed, trains the next cell.
    fn waiting(&mut self, _run: &Path) {}
}

impl Watcher for () {}

/// A trial of a cell's speed is shorter than the cell by this factor.
const SPEED_SHARE: u64 = 10;

/// None if the comparison was asked to stop.
type UnlessStopped<T> = Option<T>;

impl Comparison<'_> {
    /// Trains every cell that has not ended, searches included; returns true at the end, and false if
    /// it was asked to stop.
    ///
    /// # Errors
    /// Fails if loading or training fails, naming the cell's run.
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
                self.give_another_chance(&RunFolder::new(&folder))?;
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

    /// The results so far.
    ///
    /// # Errors
    /// Fails if a record cannot be read.
    pub fn results(&self) -> Result<Results> {
        let (mut cells, mut of) = (Vec::new(), 0);
        let mut searches: Vec<Searched> = Vec::new();
        for cell in self.grid.rounds().iter().flatten() {
            of += 1;
            cells.extend(self.result(cell)?);
            let at = self.search_at(cell);
            let found = self.searched(&at, |rate| ended(&self.search_run(&at, rate)))?.flatten();
            searches.extend(found.filter(|found| !searches.contains(found)));
        }
        let mut data: Vec<DataDescription> = Vec::new();
        for set in &self.grid.data {
            for row in self.grid.rows() {
                let description = &self.set(&set.name, &row)?.description;
                if !data.contains(description) {
                    data.push(description.clone());
                }
            }
        }
        let (grid, machine) = (self.grid.clone(), self.machine.clone());
        Ok(Results { grid, data, machine, cells, of, searches })
    }

    fn set(&self, data: &str, row: &Row) -> Result<&DataSet> {
        let key = (data.to_owned(), row.added());
        self.data.get(&key).ok_or_else(|| Error::setting("data", format!("`{data}` is missing")))
    }

    fn row(&self, cell: &Cell) -> Row {
        let row = self.grid.rows().into_iter().find(|row| row.name == cell.row);
        row.unwrap_or_else(|| unreachable!("cells are made of the grid's rows"))
    }

    fn set_of(&self, cell: &Cell) -> Result<&DataSet> {
        self.set(&cell.data, &self.row(cell))
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

    /// Searches for the learning rate of `at`, if the grid asks for a search.
    fn search(&self, at: &Cell, watcher: &mut dyn Watcher) -> Result<UnlessStopped<Option<f64>>> {
        let Some(wanted) = &self.grid.search else { return Ok(Some(None)) };
        let found = self.searched(at, |rate| {
            let settings = self.settings(at, &wanted.budget.0, Some(rate)).map(brief);
            let run = self.search_run(at, rate);
            self.give_another_chance(&run)?;
            self.train(run.path(), at, settings, watcher)
        })?;
        let Some(searched) = found else { return Ok(None) };
        if let Some(searched) = &searched {
            watcher.searched(searched);
        }
        Ok(Some(searched.map(|searched| searched.best)))
    }

    /// Tries every learning rate of the grid with `at`; the last validation reward of each decides.
    /// None inside: there is no search, or no rate could be trained.
    fn searched(
        &self,
        at: &Cell,
        mut train: impl FnMut(f64) -> Result<UnlessStopped<CellOutcome>>,
    ) -> Result<UnlessStopped<Option<Searched>>> {
        let Some(wanted) = &self.grid.search else { return Ok(Some(None)) };
        let mut rates = wanted.learning_rates.iter().copied();
        let every_rate = Deadline::new(Instant::now(), None);
        let found = search(
            every_rate,
            |_| rates.next(),
            |&rate| match train(rate)? {
                None => Ok(Judged::Stopped),
                Some(CellOutcome::NotAvailable { .. }) => Ok(Judged::Impossible),
                Some(CellOutcome::Trained { .. }) => {
                    let measured = measurements(&self.search_run(at, rate))?;
                    let last = measured.last().and_then(|last| last.reward(Split::Validation));
                    Ok(last.map_or(Judged::Impossible, |last| Judged::Reward(last.reward)))
                }
            },
        )?;
        if found.stopped {
            return Ok(None);
        }
        let Some(&best) = found.best() else { return Ok(Some(None)) };
        let tried =
            found.tried.iter().filter_map(|&(rate, reward)| Some((rate, reward?))).collect();
        let Cell { data, row, samples, slate_size, .. } = at.clone();
        Ok(Some(Some(Searched { data, row, samples, slate_size, tried, best })))
    }

    /// The budget of every cell of a round.
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
        // A row without a speed under a lower ceiling stays so: the cells that have ended had this budget.
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

    /// Removes a training that did not fit under a lower ceiling, so that it is tried again.
    fn give_another_chance(&self, run: &RunFolder) -> Result<()> {
        match ended(run)? {
            Some(outcome) if outcome.may_fit(self.grid.memory_ceiling) => remove_folder(run.path()),
            _ => Ok(()),
        }
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
            // A method's refusal is a result; what was trained before keeps its own.
            Err(refusal @ Error::Setting { .. }) if !run.exists() => {
                let outcome =
                    CellOutcome::NotAvailable { reason: refusal.to_string(), ceiling: None };
                return end(&run, outcome).map(Some);
            }
            settings => settings?,
        };
        let origin = &self.set_of(cell)?.origin;
        if run.exists() {
            require_same(&run, &settings, origin)?;
        } else {
            // What was refused before is not refused any more.
            forget(&run)?;
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
                CellOutcome::NotAvailable { reason, ceiling: Some(ceiling) }
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

    /// Waits until no other process trains here, because a comparison that was killed leaves its
    /// training running. Returns false if it was asked to stop.
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

    fn search_run(&self, at: &Cell, rate: f64) -> RunFolder {
        RunFolder::new(self.folder.join("searches").join(format!("{}-rate{rate:e}", at.name())))
    }

    fn result(&self, cell: &Cell) -> Result<Option<CellResult>> {
        let run = RunFolder::new(self.cell_folder(cell));
        let Some(outcome) = ended(&run)? else { return Ok(None) };
        let measurements = match outcome {
            CellOutcome::Trained { .. } => measurements(&run)?,
            CellOutcome::NotAvailable { .. } => Vec::new(),
        };
        let (data, config) = (&self.set_of(cell)?.origin.data, run.settings_path());
        let (data, config) = (data.display().to_string(), config.display().to_string());
        let command =
            shell(&["slate", "train", "--data", &data, "--config", &config, "--out", "RUN"]);
        let run = run.path().to_owned();
        Ok(Some(CellResult { cell: cell.clone(), outcome, measurements, run, command }))
    }
}

/// Settings of a run of which only the end counts.
fn brief(mut settings: Settings) -> Settings {
    settings.evaluation.count = 1;
    settings.evaluation.gradient_draws = 0;
    settings
}
