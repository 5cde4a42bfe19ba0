//! What each judge would be shown by a candidate, and a little more, in; the slates by weights near its own out.
//!
//! Weights of one decomposition, or of the neighbours beside it, that are a step or two apart rank nearly the same
//! actions first. So those near a candidate that was judged among all actions are judged among the best of its own, in
//! a part of the time where vectors are long; what earns as much there as the best of its length is judged among all
//! actions too.

use rayon::prelude::*;

use super::axes::places;
use super::candidate::Candidate;
use super::fits::Searched;
use crate::matrix::{Matrix, dot};
use crate::retrieval::Slates;

/// The multiplications of one judgement from which on lists are kept: a third of a second of two cores.
pub(super) const LONG: usize = 30_000_000_000;
/// The actions of a list: so many for each of a slate, from the fewest to the most.
const EACH: usize = 16;
const FEWEST: usize = 128;
const MOST: usize = 512;
/// The most steps from the candidate to those who are judged by its lists.
const NEAR: usize = 2;

/// The best actions by a candidate.
pub(super) struct Shortlist {
    of: Candidate,
    /// The lists of each part of the judges and each of their halves, one after the other.
    best: Vec<Vec<Vec<u32>>>,
}

impl Shortlist {
    pub(super) fn new(of: Candidate, best: Vec<Vec<Vec<u32>>>) -> Self {
        Self { of, best }
    }

    /// The length of a list for slates of K.
    pub(super) fn size(slate_size: usize) -> usize {
        (EACH * slate_size).clamp(FEWEST, MOST).max(2 * slate_size)
    }

    /// The candidate whose lists these are.
    pub(super) fn of(&self) -> Candidate {
        self.of
    }

    /// True if their candidate's source is that of this one.
    pub(super) fn is_of_source(&self, candidate: Candidate) -> bool {
        candidate.source() == self.of.source()
    }

    /// True for lists of so many parts of the judges, by this candidate's source or by neighbours beside the same
    /// decomposition.
    pub(super) fn is_alike(&self, candidate: Candidate, parts: usize) -> bool {
        let beside = self.of.beside_neighbours();
        let is_beside = beside.is_some() && beside == candidate.beside_neighbours();
        (is_beside || self.is_of_source(candidate)) && parts == self.best.len()
    }

    /// True if they serve `candidate`, which is near their own.
    pub(super) fn serves(&self, candidate: Candidate, parts: usize) -> bool {
        let [own, other] = [self.of, candidate].map(|candidate| places(&candidate));
        let steps = own.iter().zip(&other).map(|(a, b)| a.abs_diff(*b)).sum::<usize>();
        self.is_alike(candidate, parts) && steps <= NEAR
    }

    /// The slates of K for the queries `latent` of a part of the judges about a half of theirs, by `searched`, the
    /// vectors of a candidate, times `factor`.
    pub(super) fn slates(
        &self,
        [part, half]: [usize; 2],
        latent: &Matrix,
        searched: &Searched,
        factor: impl Fn(u32) -> f32 + Sync,
        slate_size: usize,
    ) -> Slates {
        let (lists, beta) = (&self.best[part][half], searched.vectors.actions.beta());
        let lists = lists.par_chunks_exact(lists.len() / latent.rows().max(1));
        let slates = lists.enumerate().map(|(at, list)| {
            let query = latent.row(at);
            let score = |&action: &u32| factor(action) * dot(query, beta.row(action as usize));
            let mut best: Vec<_> = list.iter().map(|action| (score(action), *action)).collect();
            best.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            best.into_iter().take(slate_size).map(|(_, action)| action).collect::<Vec<_>>()
        });
        Slates::unscored(slate_size, slates.collect::<Vec<_>>().concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_longer_than_a_slate() {
        let sizes = [1, 5, 20, 100, 1000].map(Shortlist::size);
        assert_eq!(sizes, [128, 128, 320, 512, 2000]);
    }
}
