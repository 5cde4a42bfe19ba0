//! Requests → slates, as a bundle or a run answers them.

use std::path::PathBuf;
use std::sync::Arc;

use fast_slate::bundle::{Answers, Filter, MANIFEST, Options, Request, VectorScalar, Who};
use fast_slate::device;
use fast_slate::retrieval::{Queries, Search};
use fast_slate::seed::Seed;
use polars::prelude::*;
use pyo3::prelude::*;

use crate::array::{Array, numbers};
use crate::arrow::Table;
use crate::error::{of_request, wrong};
use crate::reward::Word;
use crate::shards::{Asked, PythonShards};
use crate::work::work;

/// A policy and everything that it needs to answer, in memory.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Recommender(Arc<fast_slate::bundle::Recommender>, Word);

impl Recommender {
    pub(crate) fn new(recommender: fast_slate::bundle::Recommender) -> Self {
        Self(Arc::new(recommender), Word::default())
    }

    /// The names of those who ask: integers where the log's users are, else text; without names, the
    /// places of the requests.
    fn names(&self, users: Option<&[String]>, requests: usize) -> Column {
        let Some(users) = users else {
            let places: Vec<i64> = (0..requests.try_into().unwrap_or(i64::MAX)).collect();
            return Column::new("user".into(), places);
        };
        let column = Column::new("user".into(), users);
        let known = self.0.bundle().users.as_ref();
        if known.is_some_and(|known| known.ids.column().dtype() == &DataType::Int64) {
            // Somebody new may have an id that is no number.
            return column.strict_cast(&DataType::Int64).unwrap_or(column);
        }
        column
    }
}

/// Slates, and the queries h `[n, L]`, z `[n, L]` and σ `[n]` if they were asked for, and the ids that
/// the catalogue does not have.
type Answered = (Table, Option<(Array, Array, Array)>, Vec<String>);

#[pymethods]
impl Recommender {
    /// Opens a bundle.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf, device: Option<String>) -> PyResult<Self> {
        let opened = work(py, || {
            let chosen = device::choose(device.as_deref())?;
            fast_slate::bundle::Recommender::open(&folder, &chosen.device)?.on(&chosen)
        })?;
        Ok(Self::new(opened))
    }

    /// True for a folder that [`open`](Self::open) opens.
    #[staticmethod]
    fn is_bundle(folder: PathBuf) -> bool {
        folder.join(MANIFEST).exists()
    }

    /// The same policy, whose items are searched for in the shards behind a function
    /// ([`PythonShards`]).
    fn through(&self, shards: Py<PyAny>) -> Self {
        let word = Word::default();
        let fan_out = PythonShards::new(shards, &word);
        Self(Arc::new(fast_slate::bundle::Recommender::clone(&self.0).through(fan_out)), word)
    }

    /// The K best items here for each query `[N, L]`, without the excluded ones: their numbers in the
    /// whole catalogue `[N, K]`, −1 where there are no more, and their scores.
    #[pyo3(signature = (latent, k, starts, excluded, *, exact = false))]
    fn search(
        &self,
        py: Python<'_>,
        latent: &Bound<'_, PyAny>,
        k: usize,
        starts: &Bound<'_, PyAny>,
        excluded: &Bound<'_, PyAny>,
        exact: bool,
    ) -> PyResult<(Array, Array)> {
        let asked = Asked::new(latent, starts, excluded)?;
        let found = work(py, || {
            let lists = asked.lists();
            let queries = Queries { latent: &asked.latent, slate_size: k, excluded: Some(&lists) };
            self.0.shard(exact.then_some(Search::Exact))?.search(queries)
        });
        let found = self.1.explained(found)?;
        Ok((Array::numbers(&found.actions, Some(k)), Array::floats(found.scores, k)))
    }

    /// The bundle of the whole catalogue, its number of items, and of this part the first item, the place
    /// and the number of parts: JSON.
    fn part(&self) -> PyResult<String> {
        let part = self.0.bundle().part.as_ref();
        serde_json::to_string(&part).map_err(|error| wrong("bundle", error))
    }

    /// The digest of the bundle of the whole catalogue.
    fn whole(&self) -> Option<&str> {
        self.0.whole()
    }

    /// The digest of β as it was trained with.
    fn vectors(&self) -> &str {
        &self.0.bundle().trained.vectors
    }

    /// Answers users by id, or people by the items that they have, or contexts `[n, D]`. Beside users, people
    /// without a list are these users, where they are known.
    #[pyo3(signature = (users, items, contexts, *, k, exclude_seen, exclude, candidates, exact, max_per_group, seed, queries))]
    #[allow(clippy::too_many_arguments, reason = "called once, by name")]
    fn answer(
        &self,
        py: Python<'_>,
        users: Option<Vec<String>>,
        items: Option<Vec<Option<Vec<String>>>>,
        contexts: Option<&Bound<'_, PyAny>>,
        k: Option<usize>,
        exclude_seen: bool,
        exclude: Vec<String>,
        candidates: Option<Vec<String>>,
        exact: bool,
        max_per_group: Option<usize>,
        seed: Option<u64>,
        queries: bool,
    ) -> PyResult<Answered> {
        let user = |id: &String| Who::User { id: id.clone(), newer: Vec::new() };
        let who: Vec<Who> = if let Some(items) = items {
            let of_place = |at: usize| users.as_ref().and_then(|users| users.get(at));
            let own = |(at, items): (usize, Option<Vec<String>>)| match (items, of_place(at)) {
                (None, Some(id)) if self.0.knows(id) => user(id),
                (items, _) => Who::Items(items.unwrap_or_default()),
            };
            items.into_iter().enumerate().map(own).collect()
        } else if let Some(users) = &users {
            users.iter().map(user).collect()
        } else if let Some(contexts) = contexts {
            let (numbers, shape) = numbers::<f32>(contexts)?;
            let dim = shape.last().copied().unwrap_or(0).max(1);
            numbers.chunks(dim).map(|context| Who::Context(context.to_vec())).collect()
        } else {
            return Err(wrong("users", "give users=, items= or contexts="));
        };
        let names = self.names(users.as_deref(), who.len());
        let requests: Vec<Request> = who.into_iter().map(Request::from).collect();
        let answer = || {
            let filter = Filter::new(self.0.bundle(), candidates.as_deref(), &exclude)?;
            let unknown = filter.ignored.clone();
            let options = Options {
                slate_size: k,
                exclude_seen,
                search: exact.then_some(Search::Exact),
                filter,
                max_per_group,
                explore: seed.map(Seed),
                queries,
            };
            let mut answers = self.0.table(&names, &requests, &options)?;
            answers.ignored.extend(unknown);
            Ok(answers)
        };
        let answered = work(py, || Ok(answer())).and_then(|answered| answered.map_err(of_request));
        let Answers { slates, queries, ignored } = self.1.explained(answered)?;
        let dim = self.0.bundle().actions.latent_dim();
        let all = (!queries.is_empty()).then(|| {
            let (mut h, mut z, mut sigma) = (Vec::new(), Vec::new(), Vec::new());
            for query in queries {
                h.extend(query.h);
                z.extend(query.z);
                sigma.push(query.sigma);
            }
            (Array::floats(h, dim), Array::floats(z, dim), Array::line(sigma))
        });
        Ok((Table::new(slates), all, ignored))
    }

    /// `item_id` and, where there are any, `title` and `group`; row i is item i.
    fn items(&self) -> PyResult<Table> {
        let table = self.0.bundle().items.table();
        table.map(Table::new).map_err(crate::error::exception)
    }

    /// The ids of the users, if they are part of it.
    fn users(&self) -> PyResult<Option<Table>> {
        let Some(users) = &self.0.bundle().users else { return Ok(None) };
        let table = DataFrame::new_infer_height(vec![users.ids.column().clone()]);
        table.map(|table| Some(Table::new(table))).map_err(|error| wrong("users", error))
    }

    /// β `[P, L]`, without a copy.
    fn embeddings(&self) -> Array {
        Array::actions(Arc::clone(&self.0.bundle().actions))
    }

    /// K, unless a request asks for another.
    #[getter]
    fn slate_size(&self) -> usize {
        self.0.bundle().trained.slate_size
    }

    /// D.
    #[getter]
    fn context_dim(&self) -> usize {
        self.0.context_dim()
    }

    /// Writes a bundle.
    fn write(&self, py: Python<'_>, folder: PathBuf, replace: bool) -> PyResult<()> {
        work(py, || self.0.bundle().write(&folder, VectorScalar::F32, replace).map(drop))
    }
}
