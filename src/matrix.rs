//! A row-major matrix of `f32` on the host, and products of its rows.

mod cholesky;
mod numbers;

use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faer::MatRef;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::files::{Hasher, Mapped};
use numbers::Numbers;

pub(crate) use cholesky::{cholesky, solve};

/// The numbers that one thread looks at in a row. It is through with fewer before another one is awake.
pub(crate) const PART: usize = 1 << 16;

/// Row-major `[rows, cols]` matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    data: Numbers,
    cols: usize,
}

impl Matrix {
    /// A matrix over `data`, which holds whole rows of `cols` numbers.
    ///
    /// # Errors
    /// [`Error::Shape`] when `data` is not a whole number of rows, or `cols` is 0.
    pub fn new(data: Vec<f32>, cols: usize) -> Result<Self> {
        Self::of(Numbers::Own(data), cols)
    }

    /// A matrix over the numbers in `bytes` of a file, f32, little endian. It becomes a copy when it is
    /// changed.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn mapped(file: &Arc<Mapped>, bytes: Range<usize>, cols: usize) -> Result<Self> {
        Self::of(Numbers::mapped(file, bytes), cols)
    }

    fn of(data: Numbers, cols: usize) -> Result<Self> {
        if cols == 0 || !data.len().is_multiple_of(cols) {
            return Err(Error::Shape {
                what: "matrix".into(),
                expected: format!("[rows, {cols}]"),
                found: format!("{} numbers", data.len()),
            });
        }
        Ok(Self { data, cols })
    }

    /// `[rows, cols]` of zeros.
    ///
    /// # Panics
    /// Never on a positive `cols`; a matrix without columns is a programming error.
    #[must_use]
    pub fn zeros(rows: usize, cols: usize) -> Self {
        assert!(cols > 0, "a matrix has at least one column");
        Self { data: Numbers::Own(vec![0.0; rows * cols]), cols }
    }

    /// The first `cols` columns, with zeros for those that there are not.
    #[must_use]
    pub fn resized(&self, cols: usize) -> Self {
        let (mut resized, shared) = (Self::zeros(self.rows(), cols), cols.min(self.cols));
        resized.par_rows_mut().zip(self.data.par_chunks_exact(self.cols)).for_each(|(to, from)| {
            to[..shared].copy_from_slice(&from[..shared]);
        });
        resized
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.data.len() / self.cols
    }

    /// Number of columns.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`, `[cols]`.
    #[must_use]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Row `i`, `[cols]`.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.data.own()[i * self.cols..(i + 1) * self.cols]
    }

    /// All numbers, row after row.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// All numbers, row after row.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.data.own()
    }

    /// The numbers themselves, row after row.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<f32> {
        std::mem::take(self.data.own())
    }

    /// Rows in order.
    pub fn iter_rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.data.chunks_exact(self.cols)
    }

    /// Rows in order, in parallel.
    pub(crate) fn par_rows(&self) -> rayon::slice::ChunksExact<'_, f32> {
        self.data.par_chunks_exact(self.cols)
    }

    /// Rows in order, in parallel.
    pub fn par_rows_mut(&mut self) -> rayon::slice::ChunksExactMut<'_, f32> {
        self.data.own().par_chunks_exact_mut(self.cols)
    }

    /// The norm of each row.
    pub(crate) fn norms(&self) -> Vec<f32> {
        if self.data.len() <= PART {
            return self.iter_rows().map(norm).collect();
        }
        self.par_rows().map(norm).collect()
    }

    /// The norm of the longest row; 0 without rows.
    pub(crate) fn longest(&self) -> f32 {
        self.norms().into_iter().fold(0.0, f32::max)
    }

    /// The chosen rows, in the order asked for.
    #[must_use]
    pub fn select(&self, rows: &[u32]) -> Self {
        let mut data = Vec::with_capacity(rows.len() * self.cols);
        for &row in rows {
            data.extend_from_slice(self.row(row as usize));
        }
        Self { data: Numbers::Own(data), cols: self.cols }
    }

    /// Rows `start..end` as a view for products.
    #[must_use]
    pub fn view(&self, start: usize, end: usize) -> MatRef<'_, f32> {
        let rows = &self.data[start * self.cols..end * self.cols];
        MatRef::from_row_major_slice(rows, end - start, self.cols)
    }

    /// Errors on the first NaN or infinity; `what` names the matrix in the message.
    ///
    /// # Errors
    /// [`Error::NotFinite`].
    pub fn require_finite(&self, what: &str) -> Result<()> {
        let infinite = |values: &[f32]| values.iter().position(|value| !value.is_finite());
        let found = if self.data.len() <= PART {
            infinite(&self.data)
        } else {
            let parts = self.data.par_chunks(PART).enumerate();
            parts.find_map_first(|(part, values)| Some(part * PART + infinite(values)?))
        };
        match found {
            None => Ok(()),
            Some(at) => Err(Error::NotFinite {
                what: what.into(),
                row: at / self.cols,
                column: at % self.cols,
                value: self.data[at],
            }),
        }
    }

    /// SHA-256 over the shape and the numbers (little endian), in hex.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = Hasher::default();
        hasher.update(&(self.rows() as u64).to_le_bytes());
        hasher.update(&(self.cols as u64).to_le_bytes());
        let Ok(()) = in_bytes(&self.data, |bytes| {
            hasher.update(bytes);
            Ok::<_, Infallible>(())
        });
        hasher.hex()
    }
}

/// Passes the bytes of `numbers`, little endian, to `each` in pieces, without a copy of all of them.
pub(crate) fn in_bytes<E>(
    numbers: &[f32],
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = Vec::new();
    numbers.chunks(1 << 14).try_for_each(|numbers| {
        bytes.clear();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        each(&bytes)
    })
}

/// Memory for matrices that every step writes in full; only the first step zeroes it.
#[derive(Clone, Default)]
pub(crate) struct Spare(Arc<Mutex<Vec<Matrix>>>);

impl Spare {
    /// A `[rows, cols]` matrix with arbitrary content.
    ///
    /// # Panics
    /// Panics without columns, as [`Matrix::zeros`] does.
    #[must_use]
    pub(crate) fn take(&self, rows: usize, cols: usize) -> Matrix {
        assert!(cols > 0, "a matrix has at least one column");
        let mut data = self.lock().pop().map(Matrix::into_vec).unwrap_or_default();
        data.resize(rows * cols, 0.0);
        Matrix { data: Numbers::Own(data), cols }
    }

    /// Keeps `matrix` for a later [`take`](Self::take).
    pub(crate) fn give_back(&self, matrix: Matrix) {
        self.lock().push(matrix);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Matrix>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spare").finish_non_exhaustive()
    }
}

/// The least number of rows, of `numbers` each, to hand to another thread: handing over takes as long
/// as some ten thousand simple steps.
#[must_use]
pub(crate) fn rows_worth_a_fork(numbers: usize) -> usize {
    (1_usize << 14).div_ceil(numbers.max(1))
}

/// `xᵀy`.
#[must_use]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    // Eight running sums let the compiler use vector registers; a single one may not be reordered.
    let mut sums = [0.0_f32; 8];
    let (xs, ys) = (x.chunks_exact(8), y.chunks_exact(8));
    let tail: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in xs.zip(ys) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// Numbers of a cache line.
const LINE: usize = 16;

/// Reads a number of each cache line of `numbers`, so that the processor has asked for all of them.
pub(crate) fn touch(numbers: &[f32]) {
    let lines = numbers.iter().step_by(LINE).chain(numbers.last());
    std::hint::black_box(lines.fold(0, |all, number| all ^ number.to_bits()));
}

/// Euclidean norm.
#[must_use]
pub fn norm(x: &[f32]) -> f32 {
    dot(x, x).sqrt()
}

/// The power of two, hence without rounding, that takes the longest row to a norm between 32 and 64:
/// f16 neither overflows nor goes subnormal.
pub(crate) fn half_scale(vectors: &Matrix) -> f32 {
    half_factor(vectors.longest())
}

/// The power of two of [`half_scale`] where the longest row has the norm `longest`.
pub(crate) fn half_factor(longest: f32) -> f32 {
    if longest.is_normal() {
        (5.0 - longest.log2().floor()).clamp(-120.0, 120.0).exp2()
    } else {
        1.0
    }
}
