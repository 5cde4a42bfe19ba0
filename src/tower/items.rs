//! The items of users in, what was learned about them out: the input vector of item i is `e_i + Δ_i`,
//! where e is fixed and Δ `[P, L]` starts at 0. A context becomes
//! `M(X) = Σ_i w_i (e_i + Δ_i) / Σ_i w_i`.
//!
//! Burn has no sparse gradient, and a step touches few of the rows. So Δ is no parameter on the tape:
//! the learner takes `∂/∂M` from the tape and hands it to the rows of the batch. Each row has an Adam
//! of its own, with one second moment for the row. Decay towards e is applied to a row when it is
//! next read. A step costs the same at any P, and a checkpoint holds the rows that were ever touched.

use std::path::Path;

use crate::embedding::tensors::{self, TensorFile};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot};

const FIRST_MOMENT: f32 = 0.9;
const SECOND_MOMENT: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// The items of some users with their shares `w_i / Σ w` of the context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bags {
    ends: Vec<usize>,
    items: Vec<u32>,
    shares: Vec<f32>,
}

impl Bags {
    /// Appends the bag of one more user.
    pub fn push(&mut self, items: &[u32], shares: &[f32]) {
        debug_assert_eq!(items.len(), shares.len());
        self.items.extend_from_slice(items);
        self.shares.extend_from_slice(shares);
        self.ends.push(self.items.len());
    }

    fn iter(&self) -> impl Iterator<Item = impl Iterator<Item = (u32, f32)> + '_> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| {
            let items = self.items[start..end].iter().copied();
            items.zip(self.shares[start..end].iter().copied())
        })
    }
}

/// Δ, and the state of its optimiser.
#[derive(Clone, Debug)]
pub struct Items {
    /// Δ in units of `scale`, `[P, L]`. Pages of rows that are never touched are never in memory.
    delta: Matrix,
    first: Matrix,
    rows: Vec<Row>,
    /// The root mean square of the numbers of training contexts.
    scale: f32,
    /// The decay so far, as a negative exponent.
    decayed: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    second: f32,
    updates: u32,
    /// [`Items::decayed`] when the row was written.
    decayed: f32,
}

impl Items {
    /// Δ = 0 for `num_items` items.
    #[must_use]
    pub fn new(num_items: usize, latent_dim: usize, scale: f32) -> Self {
        let zeros = || Matrix::zeros(num_items, latent_dim);
        let rows = vec![Row::default(); num_items];
        Self { delta: zeros(), first: zeros(), rows, scale, decayed: 0.0 }
    }

    /// Adds `Σ_i w_i Δ_i / Σ_i w_i` to the first L numbers of each context.
    pub fn add_to(&self, contexts: &mut Matrix, bags: &Bags) {
        for (row, bag) in bags.iter().enumerate() {
            let context = contexts.row_mut(row);
            for (item, share) in bag {
                let Row { updates, decayed, .. } = self.rows[item as usize];
                if updates > 0 {
                    let kept = (decayed - self.decayed).exp();
                    let delta = self.delta.row(item as usize);
                    let factor = share * self.scale * kept;
                    context.iter_mut().zip(delta).for_each(|(sum, delta)| *sum += factor * delta);
                }
            }
        }
    }

    /// Moves the items of a batch down the `gradient` with respect to its contexts, `[B, D]`: a step
    /// of Adam at `rate`, and `decay` times `rate` of the way back to 0.
    pub fn step(&mut self, bags: &Bags, gradient: &Matrix, rate: f32, decay: f32) {
        let dim = self.delta.cols();
        let mut touched: Vec<(u32, usize, f32)> = Vec::with_capacity(bags.items.len());
        for (row, bag) in bags.iter().enumerate() {
            touched.extend(bag.map(|(item, share)| (item, row, share)));
        }
        touched.sort_unstable_by_key(|(item, row, _)| (*item, *row));
        self.decayed += rate * decay;
        let mut sum = vec![0.0; dim];
        for of_item in touched.chunk_by(|(a, ..), (b, ..)| a == b) {
            sum.fill(0.0);
            for (_, row, share) in of_item {
                let factor = share * self.scale;
                let gradient = &gradient.row(*row)[..dim];
                sum.iter_mut().zip(gradient).for_each(|(sum, value)| *sum += factor * value);
            }
            let square = dot(&sum, &sum) / dim as f32;
            let item = of_item[0].0 as usize;
            let row = &mut self.rows[item];
            row.updates += 1;
            row.second = SECOND_MOMENT * row.second + (1.0 - SECOND_MOMENT) * square;
            #[allow(clippy::cast_possible_wrap, reason = "a run has fewer steps")]
            let updates = row.updates as i32;
            let second = row.second / (1.0 - SECOND_MOMENT.powi(updates));
            let rate = rate / (1.0 - FIRST_MOMENT.powi(updates)) / (second.sqrt() + EPSILON);
            let kept = (row.decayed - self.decayed).exp();
            row.decayed = self.decayed;
            let first = self.first.row_mut(item);
            let delta = self.delta.row_mut(item);
            for ((delta, first), value) in delta.iter_mut().zip(first).zip(&sum) {
                *first = FIRST_MOMENT * *first + (1.0 - FIRST_MOMENT) * value;
                *delta = kept * *delta - rate * *first;
            }
        }
    }

    /// Writes the rows that were ever touched.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let touched: Vec<u32> =
            (0_u32..).zip(&self.rows).filter(|(_, row)| row.updates > 0).map(|(i, _)| i).collect();
        let dim = self.delta.cols();
        let (delta, first) = (self.delta.select(&touched), self.first.select(&touched));
        let of = |number: &dyn Fn(&Row) -> f32| -> Vec<f32> {
            touched.iter().map(|&at| number(&self.rows[at as usize])).collect()
        };
        // The format has one type of numbers here, so integers go as the bits of floats.
        let items: Vec<f32> = touched.iter().copied().map(f32::from_bits).collect();
        let updates = of(&|row| f32::from_bits(row.updates));
        let (seconds, decays) = (of(&|row| row.second), of(&|row| row.decayed));
        let count = touched.len();
        tensors::write(
            path,
            &[
                (DELTA, vec![count, dim], delta.as_slice()),
                (FIRST, vec![count, dim], first.as_slice()),
                (ITEMS, vec![count], &items),
                (SECONDS, vec![count], &seconds),
                (UPDATES, vec![count], &updates),
                (DECAYS, vec![count], &decays),
                (DECAYED, vec![1], &[self.decayed]),
            ],
        )
    }

    /// Reads the rows that [`save`](Self::save) wrote into `self`, which has none.
    ///
    /// # Errors
    /// An error naming the file that is damaged or of other items.
    pub fn load(mut self, path: &Path) -> Result<Self> {
        let file = TensorFile::open(path)?;
        self.decayed = file.numbers(DECAYED)?.first().copied().unwrap_or_default();
        let items = file.numbers(ITEMS)?;
        if items.is_empty() {
            return Ok(self);
        }
        let (delta, first) = (file.matrix(DELTA)?, file.matrix(FIRST)?);
        let state = file.numbers(SECONDS)?.into_iter().zip(file.numbers(UPDATES)?);
        let state = state.zip(file.numbers(DECAYS)?);
        for ((at, item), ((second, updates), decayed)) in items.iter().enumerate().zip(state) {
            let item = item.to_bits() as usize;
            if item >= self.rows.len() || delta.cols() != self.delta.cols() {
                return Err(Error::Shape {
                    what: path.display().to_string(),
                    expected: format!("rows of [{}, {}]", self.rows.len(), self.delta.cols()),
                    found: format!("row {item} of {} numbers", delta.cols()),
                });
            }
            self.delta.row_mut(item).copy_from_slice(delta.row(at));
            self.first.row_mut(item).copy_from_slice(first.row(at));
            self.rows[item] = Row { second, updates: updates.to_bits(), decayed };
        }
        Ok(self)
    }
}

const DELTA: &str = "delta";
const FIRST: &str = "first_moments";
const ITEMS: &str = "items";
const SECONDS: &str = "second_moments";
const UPDATES: &str = "updates";
const DECAYS: &str = "decays";
const DECAYED: &str = "decayed";
