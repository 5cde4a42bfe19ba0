//! The order of the training contexts: one keyed permutation per epoch, so that the batch of any
//! step is known without those before it. The last batch of an epoch wraps into the next.

use super::learner::Batch;
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// Batches by step.
#[derive(Clone, Debug)]
pub struct Batches {
    contexts: Vec<u32>,
    batch_size: usize,
    seed: Seed,
    epoch: Option<(u64, Vec<u32>)>,
}

impl Batches {
    /// Batches of `batch_size` out of `contexts`, which are not empty.
    #[must_use]
    pub fn new(contexts: Vec<u32>, batch_size: usize, seed: Seed) -> Self {
        debug_assert!(!contexts.is_empty() && batch_size > 0);
        Self { contexts, batch_size, seed, epoch: None }
    }

    /// Steps that `epochs` passes take.
    #[must_use]
    pub fn steps(&self, epochs: u64) -> u64 {
        (epochs * self.contexts.len() as u64).div_ceil(self.batch_size as u64)
    }

    /// The contexts of `step` and their vectors, rows of `vectors` `[U, D]`.
    pub fn at(&mut self, step: u64, vectors: &Matrix) -> Batch {
        let size = self.contexts.len() as u64;
        let first = step * self.batch_size as u64;
        let mut contexts = Vec::with_capacity(self.batch_size);
        for position in first..first + self.batch_size as u64 {
            let order = self.epoch(position / size);
            #[allow(clippy::cast_possible_truncation, reason = "less than the number of contexts")]
            contexts.push(order[(position % size) as usize]);
        }
        Batch { step, inputs: vectors.select(&contexts), contexts }
    }

    fn epoch(&mut self, epoch: u64) -> &[u32] {
        if self.epoch.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let mut order = self.contexts.clone();
            self.seed.stream(Purpose::Order, epoch, 0).shuffle(&mut order);
            self.epoch = Some((epoch, order));
        }
        self.epoch.as_ref().map_or(&[], |(_, order)| order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_visits_every_context_once_in_another_order() {
        let vectors = Matrix::zeros(100, 1);
        let mut batches = Batches::new((0..50).collect(), 8, Seed(1));
        let visited: Vec<u32> =
            (0..25).flat_map(|step| batches.at(step, &vectors).contexts).collect();
        let (first, second) = (&visited[..50], &visited[50..100]);
        assert_ne!(first, second);
        for epoch in [first, second] {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<u32>>());
        }
        assert_eq!(batches.steps(2), 13);
    }

    #[test]
    fn a_step_does_not_depend_on_those_before_it() {
        let vectors = Matrix::zeros(100, 1);
        let mut all = Batches::new((0..50).collect(), 7, Seed(2));
        let in_order: Vec<_> = (0..30).map(|step| all.at(step, &vectors).contexts).collect();
        let mut late = Batches::new((0..50).collect(), 7, Seed(2));
        assert_eq!(late.at(29, &vectors).contexts, in_order[29]);
    }
}
