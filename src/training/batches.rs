//! The order of the training contexts: one keyed permutation per epoch, so that the batch of any
//! step is known without those before it. The last batch of an epoch wraps into the next. Where the
//! contexts come in groups, each batch is of one group, and the groups take turns.

use super::learner::Batch;
use crate::matrix::Matrix;
use crate::seed::{Purpose, Seed};

/// Batches by step.
#[derive(Clone, Debug)]
pub struct Batches {
    groups: Vec<Group>,
    contexts: usize,
    batch_size: usize,
    seed: Seed,
}

/// Contexts that share batches, and their order in the epoch that was asked for last.
#[derive(Clone, Debug)]
struct Group {
    contexts: Vec<u32>,
    order: Option<(u64, Vec<u32>)>,
}

impl Batches {
    /// Batches of `batch_size` out of `groups`; at least one of them is not empty.
    #[must_use]
    pub fn new(groups: Vec<Vec<u32>>, batch_size: usize, seed: Seed) -> Self {
        let contexts = groups.iter().map(Vec::len).sum();
        debug_assert!(contexts > 0 && batch_size > 0);
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        let groups = groups.map(|contexts| Group { contexts, order: None }).collect();
        Self { groups, contexts, batch_size, seed }
    }

    /// The passes over all contexts that are complete before `step`.
    #[must_use]
    pub fn epoch(&self, step: u64) -> u64 {
        step.saturating_mul(self.batch_size as u64) / self.contexts as u64
    }

    /// Steps that `epochs` passes take.
    #[must_use]
    pub fn steps(&self, epochs: u64) -> u64 {
        epochs.saturating_mul(self.contexts as u64).div_ceil(self.batch_size as u64)
    }

    /// The contexts of `step` and their vectors, rows of `vectors` `[U, D]`.
    pub fn at(&mut self, step: u64, vectors: &Matrix) -> Batch {
        let count = self.groups.len() as u64;
        #[allow(clippy::cast_possible_truncation, reason = "less than the number of groups")]
        let (turn, at) = (step / count, (step % count) as usize);
        let (group, seed) = (&mut self.groups[at], self.seed);
        let size = group.contexts.len() as u64;
        let first = turn * self.batch_size as u64;
        let mut contexts = Vec::with_capacity(self.batch_size);
        for position in first..first + self.batch_size as u64 {
            let order = group.order(seed, position / size, at as u64);
            #[allow(clippy::cast_possible_truncation, reason = "less than the number of contexts")]
            contexts.push(order[(position % size) as usize]);
        }
        Batch { step, inputs: vectors.select(&contexts), contexts }
    }
}

impl Group {
    /// The order of an epoch; `group` is the group's number.
    fn order(&mut self, seed: Seed, epoch: u64, group: u64) -> &[u32] {
        if self.order.as_ref().is_none_or(|(known, _)| *known != epoch) {
            let mut order = self.contexts.clone();
            seed.stream(Purpose::Order, epoch, group).shuffle(&mut order);
            self.order = Some((epoch, order));
        }
        self.order.as_ref().map_or(&[], |(_, order)| order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_visits_every_context_once_in_another_order() {
        let vectors = Matrix::zeros(100, 1);
        let mut batches = Batches::new(vec![(0..50).collect()], 8, Seed(1));
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
        let mut all = Batches::new(vec![(0..50).collect()], 7, Seed(2));
        let in_order: Vec<_> = (0..30).map(|step| all.at(step, &vectors).contexts).collect();
        let mut late = Batches::new(vec![(0..50).collect()], 7, Seed(2));
        assert_eq!(late.at(29, &vectors).contexts, in_order[29]);
    }

    #[test]
    fn groups_take_turns_and_share_no_batch() {
        let vectors = Matrix::zeros(100, 1);
        let groups = vec![(0..20).collect(), (20..40).collect(), Vec::new(), (40..61).collect()];
        let mut batches = Batches::new(groups, 4, Seed(3));
        let mut visits = [0; 61];
        for step in 0..15 {
            let contexts = batches.at(step, &vectors).contexts;
            let first = 20 * u32::try_from(step % 3).unwrap();
            assert!(contexts.iter().all(|context| (first..first + 21).contains(context)));
            for context in contexts {
                visits[context as usize] += 1;
            }
        }
        assert!(visits.iter().all(|count| *count <= 1));
        assert_eq!(visits.iter().sum::<i32>(), 60);
        assert_eq!((batches.epoch(15), batches.epoch(16)), (0, 1));
    }
}
