//! Users' rows of a matrix ↔ the decomposition of the whole, whose products Python sums over processes.

use std::path::PathBuf;

use fast_slate::dataset::ActionSets;
use fast_slate::embedding::{Gram, SvdOptions, svd_of_products};
use fast_slate::matrix::Matrix;
use fast_slate::seed::Seed;
use fast_slate::{Error, Result, embedding};
use pyo3::prelude::*;

use crate::array::{Array, numbers};
use crate::error::{exception, wrong};
use crate::reward::Word;
use crate::work::work;

fn matrix(of: &Bound<'_, PyAny>) -> PyResult<Matrix> {
    let (numbers, shape) = numbers::<f32>(of)?;
    Matrix::new(numbers, shape.last().copied().unwrap_or(0).max(1)).map_err(exception)
}

fn unsigned(of: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    Ok(numbers::<i32>(of)?.0.into_iter().map(i32::cast_unsigned).collect())
}

/// Some users' rows.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Slice(embedding::Slice);

#[pymethods]
impl Slice {
    /// Takes pairs of a user's place here and an item's number; `counts` are the users of each item, of all
    /// slices together.
    #[new]
    fn new(
        py: Python<'_>,
        users: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
        counts: &Bound<'_, PyAny>,
        normalization: f32,
    ) -> PyResult<Self> {
        let (users, items, counts) = (unsigned(users)?, unsigned(items)?, unsigned(counts)?);
        if users.len() != items.len() {
            return Err(wrong("items", "expected one for each user"));
        }
        let slice = work(py, || {
            let rows = users.iter().max().map_or(0, |last| *last as usize + 1);
            let rows = ActionSets::from_pairs(rows, users.into_iter().zip(items));
            embedding::Slice::new(rows, &counts, normalization)
        });
        slice.map(Self)
    }

    /// `A_pᵀ(A_p X)`.
    fn times(&self, py: Python<'_>, block: &Bound<'_, PyAny>) -> PyResult<Array> {
        let block = matrix(block)?;
        let width = block.cols();
        let product = work(py, || self.0.times(&block))?;
        Ok(Array::floats(product.into_vec(), width))
    }

    /// The sum of the squared entries.
    fn energy(&self) -> f64 {
        self.0.energy()
    }
}

/// A Python function that takes a block `[P, width]` and returns its product with AᵀA.
struct Products {
    call: Py<PyAny>,
    word: Word,
}

impl Gram for Products {
    fn times(&mut self, block: &Matrix, out: &mut Matrix) -> Result<()> {
        let product = Python::attach(|py| {
            py.check_signals()?;
            let block = Array::floats(block.as_slice().to_vec(), block.cols());
            let (product, _) = numbers::<f32>(&self.call.bind(py).call1((block,))?)?;
            if product.len() != out.as_slice().len() {
                return Err(wrong("product", "expected the shape of the block"));
            }
            out.as_mut_slice().copy_from_slice(&product);
            Ok(())
        });
        product.map_err(|exception| {
            let message = exception.to_string();
            self.word.say(exception);
            Error::Library { context: "asking the slices".into(), message }
        })
    }
}

/// The SVD of a matrix of so many rows and items, of which `call` knows the products; it is written to the
/// safetensors file `out`.
#[pyfunction]
#[pyo3(signature = (call, shape, energy, out, *, latent_dim, normalization, passes, seed))]
#[allow(clippy::too_many_arguments, reason = "called once, by name")]
pub fn decompose(
    py: Python<'_>,
    call: Py<PyAny>,
    shape: [usize; 2],
    energy: f64,
    out: PathBuf,
    latent_dim: usize,
    normalization: f32,
    passes: usize,
    seed: u64,
) -> PyResult<()> {
    let word = Word::default();
    let mut products = Products { call, word: word.clone() };
    let done = work(py, || {
        let options = SvdOptions { latent_dim, passes, normalization };
        let found = svd_of_products(&mut products, shape, energy, options, Seed(seed))?;
        found.into_stored().save(&out)
    });
    word.heard(done)
}
