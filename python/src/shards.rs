//! Queries ↔ what shards answer, which Python takes from one process to another.

use std::sync::Arc;

use fast_slate::Result;
use fast_slate::matrix::Matrix;
use fast_slate::retrieval::{FanOut, Partial, Queries};
use pyo3::prelude::*;

use crate::array::{Array, numbers};
use crate::reward::Word;

/// Excluded actions of each query: where those of each begin, `[N + 1]`, and all of them.
pub(crate) type Lists = (Array, Array);

/// A Python function that takes queries `[N, L]`, K and excluded actions to all shards, and returns what
/// each answered, `(actions [N, K], scores [N, K])`, in their order.
#[derive(Debug)]
pub(crate) struct PythonShards {
    call: Py<PyAny>,
    word: Word,
}

impl PythonShards {
    pub(crate) fn new(call: Py<PyAny>, word: &Word) -> Arc<Self> {
        Arc::new(Self { call, word: word.clone() })
    }

    fn call(&self, py: Python<'_>, queries: Queries<'_>) -> PyResult<Vec<Partial>> {
        let latent = Array::floats(queries.latent.as_slice().to_vec(), queries.latent.cols());
        let (mut starts, mut excluded) = (vec![0], Vec::new());
        for row in 0..queries.latent.rows() {
            excluded.extend_from_slice(queries.excluded_of(row));
            starts.push(excluded.len().try_into().unwrap_or(i64::MAX));
        }
        let lists: Lists = (Array::longs(starts), Array::numbers(&excluded, None));
        let answered = self.call.bind(py).call1((latent, queries.slate_size, lists.0, lists.1))?;
        let parts = answered.try_iter()?.map(|part| {
            let (actions, scores): (Bound<'_, PyAny>, Bound<'_, PyAny>) = part?.extract()?;
            let actions = numbers::<i32>(&actions)?.0;
            let actions = actions.into_iter().map(i32::cast_unsigned).collect();
            Ok(Partial { actions, scores: numbers::<f32>(&scores)?.0 })
        });
        parts.collect()
    }
}

impl FanOut for PythonShards {
    fn ask(&self, queries: Queries<'_>) -> Result<Vec<Partial>> {
        self.word.asked("asking the shards", |py| self.call(py, queries))
    }
}

/// What a shard is asked: queries `[N, L]`, and for each the actions that it must not return.
pub(crate) struct Asked {
    pub(crate) latent: Matrix,
    excluded: Vec<u32>,
    starts: Vec<usize>,
}

impl Asked {
    /// Reads what Python passes.
    pub(crate) fn new(
        latent: &Bound<'_, PyAny>,
        starts: &Bound<'_, PyAny>,
        excluded: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let wrong = |what: &str| crate::error::wrong("excluded", what);
        let (latent, shape) = numbers::<f32>(latent)?;
        let latent = Matrix::new(latent, shape.last().copied().unwrap_or(0).max(1));
        let latent = latent.map_err(crate::error::exception)?;
        let excluded = numbers::<i32>(excluded)?.0.into_iter().map(i32::cast_unsigned).collect();
        let starts = numbers::<i64>(starts)?.0.into_iter().map(usize::try_from);
        let starts: Vec<usize> =
            starts.collect::<Result<_, _>>().map_err(|_| wrong("expected starts from 0"))?;
        let asked = Self { latent, excluded, starts };
        let fits = asked.starts.len() == asked.latent.rows() + 1
            && asked.starts.is_sorted()
            && asked.starts.last() == Some(&asked.excluded.len())
            && asked.lists().iter().all(|list| list.is_sorted_by(|a, b| a < b));
        if fits { Ok(asked) } else { Err(wrong("expected an ascending list for each query")) }
    }

    /// The list of each query.
    pub(crate) fn lists(&self) -> Vec<&[u32]> {
        self.starts.windows(2).map(|pair| &self.excluded[pair[0]..pair[1]]).collect()
    }
}
