//! What each judge would be shown by a candidate, and a little more, in; the slates by weights near its own out.
//!
//! Weights of one decomposition that are a step or two apart rank nearly the same actions first. So those near a
//! candidate that was judged among all actions are judged among the best of its own, in a tenth of the time where
//! vectors are long; what earns more there than the best of its length is judged among all actions too.

use rayon::prelude::*;

use super::candidate::{Candidate, places};
use super::fits::Searched;
use crate::matrix::{Matrix, dot};
use crate::retrieval::Slates;

/// The multiplications, for all judges, from which on lists are kept: a third of a second of two cores.
pub(super) const LONG: usize = 30_000_000_000;
/// The fewest actions of a list, and how many it has for each of a slate.
const SIZE: (usize, usize) = (128, 16);
/// The most steps from the candidate to those who are judged by its lists.
const NEAR: usize = 2;

/// The best actions by a candidate.
pub(super) struct Shortlist {
    of: Candidate,
    /// Of each part of the judges and each of their halves.
    best: Vec<Vec<Slates>>,
}

impl Shortlist {
    pub(super) fn new(of: Candidate, best: Vec<Vec<Slates>>) -> Self {
        Self { of, best }
    }

    /// Actions of a list for slates of K, if no more are left than `available`; none if these are no more than K.
    pub(super) fn size(slate_size: usize, available: usize) -> Option<usize> {
        let (fewest, each) = SIZE;
        let size = (each * slate_size).max(fewest).min(available);
        (size > slate_size).then_some(size)
    }

    /// The candidate whose lists these are.
    pub(super) fn of(&self) -> Candidate {
        self.of
    }

    /// True if the lists serve `candidate` and so many parts of the judges.
    pub(super) fn serves(&self, candidate: Candidate, parts: usize) -> bool {
        let both = [self.of, candidate].map(|candidate| places(&candidate));
        let steps = both[0].iter().zip(&both[1]).map(|(a, b)| a.abs_diff(*b)).sum::<usize>();
        candidate.source() == self.of.source() && steps <= NEAR && parts == self.best.len()
    }

    /// The slates of K for the queries `latent` of a part of the judges about a half of theirs, by `searched`, the
    /// vectors of the lists' candidate times `factor`.
    pub(super) fn slates(
        &self,
        [part, half]: [usize; 2],
        latent: &Matrix,
        searched: &Searched,
        factor: impl Fn(u32) -> f32 + Sync,
        slate_size: usize,
    ) -> Slates {
        let (lists, beta) = (&self.best[part][half], searched.vectors.actions.beta());
        let slates = (0..latent.rows()).into_par_iter().map(|at| {
            let query = latent.row(at);
            let score = |&action: &u32| factor(action) * dot(query, beta.row(action as usize));
            let scored = lists.slate(at).iter().map(|action| (score(action), *action));
            let mut best: Vec<(f32, u32)> = scored.collect();
            best.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            best.into_iter().take(slate_size).map(|(_, action)| action).collect::<Vec<_>>()
        });
        Slates::unscored(slate_size, slates.collect::<Vec<_>>().concat())
    }
}
