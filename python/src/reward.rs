//! A Python function → a reward, called once a step with all of its slates.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fast_slate::dataset::{ActionSets, Catalogue, Sessions};
use fast_slate::retrieval::Slates;
use fast_slate::reward::SlateReward;
use fast_slate::{Error, Result};
use polars::prelude::{Column, DataFrame};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::array::{Array, numbers};
use crate::arrow::Table;
use crate::error::wrong;

/// The exception that ends a run, and the flag that stops one: what Python has to say to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Word {
    exception: Arc<Mutex<Option<PyErr>>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// True of a training, which ends after its step.
    ends_steps: bool,
}

impl Word {
    /// The word to a training.
    pub(crate) fn of_training() -> Self {
        Self { ends_steps: true, ..Self::default() }
    }

    /// What a function of Python, named by the `context`, returns; its exception ends the run. Ctrl-C stops a
    /// training after its step, which needs an answer, so the function is called again.
    pub(crate) fn asked<T>(
        &self,
        context: impl Into<String>,
        call: impl Fn(Python<'_>) -> PyResult<T>,
    ) -> Result<T> {
        Python::attach(|py| {
            let mut answered = call(py);
            if let Err(exception) = &answered
                && self.ends_steps
                && exception.is_instance_of::<PyKeyboardInterrupt>(py)
            {
                self.say(exception.clone_ref(py));
                answered = call(py);
            }
            answered.map_err(|exception| {
                let message = exception.to_string();
                self.say(exception);
                Error::Library { context: context.into(), message }
            })
        })
    }

    /// Keeps the first exception, and asks the run to stop.
    pub(crate) fn say(&self, exception: PyErr) {
        let mut kept = self.exception.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(exception);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// `result`, unless Python has raised something, which then says why.
    pub(crate) fn heard<T>(&self, result: PyResult<T>) -> PyResult<T> {
        let mut kept = self.exception.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(false, Ordering::Relaxed);
        kept.take().map_or(result, Err)
    }

    /// `result`, whose error is what Python has raised, if it has: of calls side by side, one that went well
    /// does not raise another's.
    pub(crate) fn explained<T>(&self, result: PyResult<T>) -> PyResult<T> {
        if result.is_ok() { result } else { self.heard(result) }
    }
}

/// A Python function that gives slates a reward.
#[derive(Debug)]
pub(crate) struct PythonReward {
    name: String,
    /// Takes a [`Visit`] and returns a buffer of f32.
    call: Py<PyAny>,
    sessions: Arc<Sessions>,
    /// The ids of the items, by number.
    ids: Arc<Column>,
    word: Word,
}

impl PythonReward {
    pub(crate) fn new(
        (call, name): (Py<PyAny>, String),
        sessions: &Arc<Sessions>,
        ids: Arc<Column>,
        word: &Word,
    ) -> Self {
        Self { name, call, sessions: Arc::clone(sessions), ids, word: word.clone() }
    }

    /// The ids of the items of a prepared folder, by number.
    pub(crate) fn ids(data: &Path) -> Result<Arc<Column>> {
        Ok(Arc::new(Catalogue::read(data)?.items.ids.column().clone()))
    }

    fn call(&self, py: Python<'_>, contexts: &[u32], slates: &Slates) -> PyResult<Vec<f32>> {
        let visit = Visit {
            sessions: Arc::clone(&self.sessions),
            contexts: contexts.to_vec(),
            slates: slates.clone(),
            ids: Arc::clone(&self.ids),
        };
        let (rewards, _) = numbers::<f32>(&self.call.bind(py).call1((visit,))?)?;
        if rewards.len() != slates.len() {
            let problem = format!("expected {} rewards, found {}", slates.len(), rewards.len());
            return Err(PyValueError::new_err(problem));
        }
        Ok(rewards)
    }
}

impl SlateReward for PythonReward {
    fn reward(&self, context: u32, slate: &[u32]) -> f32 {
        let one = Slates::unscored(slate.len(), slate.to_vec());
        // Python's exception is kept; it ends the run.
        self.rewards(&[context], &one).map_or(f32::NAN, |rewards| rewards[0])
    }

    fn rewards(&self, contexts: &[u32], slates: &Slates) -> Result<Vec<f32>> {
        if slates.is_empty() {
            return Ok(Vec::new());
        }
        let context = format!("reward `{}`", self.name);
        self.word.asked(context, |py| self.call(py, contexts, slates))
    }

    fn on(&self, sessions: &Arc<Sessions>) -> Option<Arc<dyn SlateReward>> {
        Some(Arc::new(Self {
            name: self.name.clone(),
            call: Python::attach(|py| self.call.clone_ref(py)),
            sessions: Arc::clone(sessions),
            ids: Arc::clone(&self.ids),
            word: self.word.clone(),
        }))
    }
}

/// Slates and what is known of the users that they are for, with the halves of this visit.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Visit {
    sessions: Arc<Sessions>,
    contexts: Vec<u32>,
    slates: Slates,
    ids: Arc<Column>,
}

impl Visit {
    /// A set of items for each user: where each begins, and the items.
    fn rows(&self, sets: &ActionSets) -> (Array, Array) {
        let (mut starts, mut items) = (vec![0], Vec::new());
        for context in &self.contexts {
            items.extend_from_slice(sets.of(*context));
            starts.push(items.len().try_into().unwrap_or(i64::MAX));
        }
        (Array::longs(starts), Array::numbers(&items, None))
    }
}

#[pymethods]
impl Visit {
    /// Numbers of the contexts, `[B]`.
    fn users(&self) -> Array {
        Array::numbers(&self.contexts, None)
    }

    /// Numbers of items, `[B · S, K]`.
    fn slates(&self) -> Array {
        Array::numbers(self.slates.actions(), Some(self.slates.slate_size()))
    }

    fn observed(&self) -> (Array, Array) {
        self.rows(&self.sessions.observed)
    }

    fn hidden(&self) -> (Array, Array) {
        self.rows(&self.sessions.hidden)
    }

    /// True where an item of a slate is hidden of its user, `[B · S, K]`.
    fn hits(&self) -> Array {
        let samples = self.slates.len() / self.contexts.len().max(1);
        let hidden = &self.sessions.hidden;
        let hits = (0..self.slates.len()).flat_map(|at| {
            let context = self.contexts[at / samples];
            self.slates.slate(at).iter().map(move |action| hidden.contains(context, *action))
        });
        Array::flags(hits.collect(), self.slates.slate_size())
    }

    fn num_items(&self) -> usize {
        self.sessions.num_actions
    }

    /// The ids of the items, by number: a column `item_id`.
    fn ids(&self) -> PyResult<Table> {
        let table = DataFrame::new_infer_height(vec![Column::clone(&self.ids)]);
        table.map(Table::new).map_err(|error| wrong("reward", error))
    }
}
