//! Rows of the host in, the same rows on a GPU out, in the form that kernels read: filled up with zeros, in f32 or
//! scaled and in f16, in their order or shuffled.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};
use half::f16;
use rayon::prelude::*;

use crate::matrix::{Matrix, PART, half_factor};

/// The numbers of a vector are filled up with zeros to whole groups of so many, in f32 and in f16: kernels read
/// several at a time.
const GROUP: (usize, usize) = (4, 16);

/// Primes by which the actions of a block are shuffled: one that does not divide their number takes every action
/// once, and its product with 4 million, the most actions of a block, fits 32 bits.
const STRIDES: [usize; 4] = [1009, 1013, 1019, 1021];

/// The norms to which [`half_scale`](crate::matrix::half_scale) takes the longest vector, with room for the
/// rounding of a logarithm.
const LONGEST: Range<f32> = 16.0..128.0;

/// How the vectors of β lie on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct RowFormat {
    latent_dim: usize,
    /// Numbers of a vector there.
    width: usize,
    /// What β is multiplied with if it lies there in f16; none in f32.
    half: Option<f32>,
    /// Whether each block has its actions in the order of [`stride`](Self::stride).
    shuffled: bool,
}

impl RowFormat {
    /// Vectors of so many numbers in f32 and in their order.
    pub(super) fn in_order(latent_dim: usize) -> Self {
        Self {
            latent_dim,
            width: latent_dim.next_multiple_of(GROUP.0),
            half: None,
            shuffled: false,
        }
    }

    /// Vectors of so many numbers in f32 and shuffled.
    pub(super) fn shuffled(latent_dim: usize) -> Self {
        Self { shuffled: true, ..Self::in_order(latent_dim) }
    }

    /// `vectors` in f16 and shuffled, times a power of two that takes the longest near the middle of f16; none if
    /// they are too short or too long for that.
    pub(super) fn in_half(vectors: &Matrix) -> Option<Self> {
        let longest = vectors.longest();
        let scale = half_factor(longest);
        let width = vectors.cols().next_multiple_of(GROUP.1);
        let format = Self { width, half: Some(scale), ..Self::shuffled(vectors.cols()) };
        LONGEST.contains(&(scale * longest)).then_some(format)
    }

    /// True for vectors in f32 and in their order.
    pub(super) fn is_in_order(&self) -> bool {
        self.half.is_none() && !self.shuffled
    }

    /// The numbers that vectors are of there, `f32` or `f16`.
    #[must_use]
    pub fn numbers(&self) -> &'static str {
        if self.half.is_some() { "f16" } else { "f32" }
    }

    /// Bytes of a number there.
    pub(super) fn number(&self) -> usize {
        if self.half.is_some() { 2 } else { 4 }
    }

    /// Numbers of a vector there: L, filled up with zeros.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The row `i` of a block of so many actions is the action `i · stride` of it, modulo their number; 1 where
    /// blocks are in order.
    #[must_use]
    pub fn stride(&self, actions: usize) -> usize {
        let shuffles = |stride: &usize| !actions.is_multiple_of(*stride);
        let stride = STRIDES.into_iter().find(shuffles).filter(|_| self.shuffled);
        stride.unwrap_or(1)
    }

    /// What β is multiplied with there, a power of two.
    fn scale(&self) -> f32 {
        self.half.unwrap_or(1.0)
    }

    /// The largest error of a product of β and a query there, relative to the norms of the query and of the
    /// longest vector. Sums of L products in f32 are off by L ε. A number of f16 is off by 2⁻¹¹ of itself, that
    /// of β and that of the query; one below 2⁻¹⁴ may be lost as a whole, and the query and the longest
    /// vector have norms of at least 16.
    #[must_use]
    pub fn precision(&self) -> f32 {
        let dim = self.latent_dim as f32;
        let rounding = 1.0 / 2048.0 + dim.sqrt() / (16384.0 * LONGEST.start);
        dim * f32::EPSILON + if self.half.is_some() { 2.0 * rounding } else { 0.0 }
    }

    /// β of some actions, `[actions, width]`, by their [`stride`](Self::stride).
    pub(super) fn actions(&self, beta: &[f32], device: &Device) -> Tensor<2> {
        let stride = self.stride(beta.len() / self.latent_dim);
        self.rows(beta, stride, |_| self.scale(), device)
    }

    /// Queries of these norms, `[N, width]`, and what their products with β are multiplied with, powers of two,
    /// `[N]`.
    pub(crate) fn queries(
        &self,
        queries: &Matrix,
        norms: &[f32],
        device: &Device,
    ) -> (Tensor<2>, Vec<f32>) {
        let factor = |norm: &f32| if self.half.is_some() { half_factor(*norm) } else { 1.0 };
        let factors: Vec<f32> = norms.iter().map(factor).collect();
        let there = self.rows(queries.as_slice(), 1, |row| factors[row], device);
        (there, factors.iter().map(|factor| factor * self.scale()).collect())
    }

    /// Rows by a stride, each times a factor.
    fn rows(
        &self,
        rows: &[f32],
        stride: usize,
        factor: impl Fn(usize) -> f32 + Sync,
        device: &Device,
    ) -> Tensor<2> {
        let sizes = [self.latent_dim, self.width];
        let shape = [rows.len() / self.latent_dim, self.width];
        if self.half.is_some() {
            let rows =
                filled(rows, sizes, stride, |row, number| f16::from_f32(factor(row) * number));
            Tensor::from_data(TensorData::new(rows, shape), (device, DType::F16))
        } else {
            let rows = filled(rows, sizes, stride, |row, number| factor(row) * number);
            Tensor::from_data(TensorData::new(rows, shape), device)
        }
    }
}

/// What is made of the numbers of rows, by a stride, each row of `dim` filled up with zeros to `width`.
fn filled<T: Copy + Default + Send>(
    rows: &[f32],
    [dim, width]: [usize; 2],
    stride: usize,
    of: impl Fn(usize, f32) -> T + Sync,
) -> Vec<T> {
    let count = rows.len() / dim;
    let mut all = vec![T::default(); count * width];
    let fill = |(at, filled): (usize, &mut [T])| {
        let row = at * stride % count;
        let numbers = &rows[row * dim..(row + 1) * dim];
        filled.iter_mut().zip(numbers).for_each(|(filled, number)| *filled = of(row, *number));
    };
    if rows.len() <= PART {
        all.chunks_mut(width).enumerate().for_each(fill);
    } else {
        all.par_chunks_mut(width).enumerate().with_min_len(64).for_each(fill);
    }
    all
}
