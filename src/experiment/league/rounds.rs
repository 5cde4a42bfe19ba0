//! The rounds of a league: what is tried next, and for how long.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::axes::{NORMALIZATIONS, SHORT, lengths, places, probes, start, weights};
use super::budget::Budget;
use super::candidate::Candidate;
use super::jury::Jury;
use super::report::{Lack, LeftOut};
use super::standing::{Standings, Tried};
use crate::dataset::Sessions;
use crate::device;
use crate::embedding::SvdOptions;
use crate::error::{Error, Result};
use crate::experiment::search::{Deadline, Judged, nearest, search};
use crate::prepared::{HeldOut, Judge};
use crate::seed::Seed;

/// The lengths in a row that earn less than the best by more than chance, after which no longer one is
/// fitted. One may be bad luck: on Amazon Video Games 1 956 judges put 512 dimensions below 200 by two
/// standard errors, and 2 900 others put them, and still more 1 024, far above.
const FALLS: usize = 2;

/// A league that is being played: its rounds.
pub(super) struct Play<'a> {
    pub(super) jury: Jury<'a>,
    pub(super) standings: Standings,
    /// What the last round judged, by all who may judge.
    pub(super) last: Standings,
    pub(super) budget: Budget,
    /// The longest SVD that every fold allows.
    pub(super) longest: usize,
    /// The length from which on ALS grows.
    pub(super) als_from: usize,
    pub(super) left_out: Vec<LeftOut>,
}

impl<'a> Play<'a> {
    pub(super) fn new(
        sessions: &'a Sessions,
        held_out: HeldOut<'_>,
        judge: &'a Judge,
        seed: Seed,
    ) -> Result<Self> {
        let began = Instant::now();
        let jury = Jury::new(sessions, held_out, judge, seed)?;
        let mut play = Self {
            standings: Standings::default(),
            last: Standings::default(),
            budget: Budget::new(began, judge.within, jury.others(), jury.fits.all()),
            longest: jury.fits.longest()?,
            als_from: SHORT,
            left_out: Vec::new(),
            jury,
        };
        if play.has_few_pairs() {
            play.budget.keep_for_neighbours();
        }
        Ok(play)
    }

    /// A deadline that leaves time for so many more of the slowest fits, and for the last round.
    pub(super) fn before(&self, fits: u32) -> Deadline {
        self.budget.before(self.last_fits(self.budget.slowest() * fits))
    }

    /// The time of the fits that are still to make if the game ends now, where an SVD's take `of_svd`.
    pub(super) fn last_fits(&self, of_svd: Duration) -> Duration {
        self.budget.last_fits(self.standings.winner().ok(), of_svd)
    }

    /// Every normalisation, at a length that takes next to no time, and ALS.
    pub(super) fn short(&mut self) -> Result<()> {
        let (short, fits) = (SHORT.min(self.longest), self.jury.fits.count());
        // What earned the most on two sets, in the middle of what there is.
        let recency = if self.jury.ordered() { 1.0 } else { 0.0 };
        for normalization in NORMALIZATIONS {
            let svd = SvdOptions::soft(short, normalization);
            if 8 * fits * self.budget.slowest() > self.budget.spare() {
                let what = format!("svd with {}", svd.kind());
                self.left_out.push(LeftOut { what, reason: Lack::Time });
                continue;
            }
            let first = start(svd, recency);
            // Its folds would be in memory at the end, whatever judges.
            let takes = self.takes(first, self.jury.fits.all() + 1);
            if takes > memory() {
                return Err(too_large(short, takes));
            }
            self.fit(first)?;
            self.search(self.budget.end(), probes(svd, recency), Vec::new(), 0)?;
        }
        let Some(best) = self.standings.best_of_each().first().copied() else { return Ok(()) };
        // Half of the time at least is for longer vectors.
        let until = self.budget.end().halfway();
        self.als(best, short, until)?;
        self.shorter(best, until)
    }

    /// Longer and longer SVDs like `best` up to a length, as long as not two in a row earn
    /// less than the best by more than chance, and there is time for it and for `keep` more of its fits. What
    /// is best at any length comes out.
    pub(super) fn climb(
        &mut self,
        mut best: Candidate,
        keep: u32,
        longest: usize,
    ) -> Result<Candidate> {
        let (fits, mut falls, mut before) = (self.jury.fits.count(), 0, best);
        for next in self.longer_than(best).filter(|next| next.latent_dim() <= longest) {
            // In 61 leagues of eighteen sets, of abrupt SVDs, none that was six percent behind at a hundred dimensions won at more.
            if self.standings.is_beaten(before) {
                break;
            }
            before = next;
            // Unless an earlier climb was here.
            if self.standings.best_like(next).is_none() {
                let fit = self.budget.of(next);
                let kept = self.last_fits(fit.max(self.budget.slowest()) * keep);
                if !self.is_possible(next, fit * fits + kept) {
                    break;
                }
                self.fit(next)?;
                best = self.around(next, keep)?;
            }
            falls = if self.standings.falls(next) { falls + 1 } else { 0 };
            if falls == FALLS {
                break;
            }
        }
        Ok(self.standings.best_at_any_length(best).unwrap_or(best))
    }

    /// Weights that are two steps from those of `best`, if there is time for them and `keep` fits.
    pub(super) fn weigh(&mut self, best: Candidate, keep: u32) -> Result<()> {
        let until = self.before(keep);
        if until.left().is_some_and(|left| left < self.again(best)) {
            return Ok(());
        }
        self.search(until, Vec::new(), weights(best, self.jury.ordered()), 2)
    }

    /// The candidate at the longer lengths, ascending.
    pub(super) fn longer_than(
        &self,
        candidate: Candidate,
    ) -> impl Iterator<Item = Candidate> + use<> {
        let length = candidate.latent_dim();
        let longer = lengths(self.longest).into_iter().filter(move |longer| *longer > length);
        longer.map(move |length| candidate.with_length(length))
    }

    /// True if there is time and memory for the fits of a candidate; otherwise it is left out.
    pub(super) fn is_possible(&mut self, candidate: Candidate, time: Duration) -> bool {
        let Some(reason) = self.why_not(candidate, time) else { return true };
        let left_out = LeftOut { what: candidate.name(), reason };
        if !self.left_out.contains(&left_out) {
            self.left_out.push(left_out);
        }
        false
    }

    /// What there is too little of for the fits of a candidate.
    pub(super) fn why_not(&self, candidate: Candidate, time: Duration) -> Option<Lack> {
        if time > self.budget.spare() {
            Some(Lack::Time)
        } else if self.takes(candidate, self.jury.fits.all() + 1) > memory() / 2.0 {
            Some(Lack::Memory)
        } else {
            None
        }
    }

    /// True if not all fits of a candidate are possible at once.
    pub(super) fn lacks_memory(&self, candidate: Candidate) -> bool {
        self.takes(candidate, self.jury.fits.all() + 1) > memory()
    }

    /// The bytes of so many of a candidate's fits, and of the users' side of the one that is made, twice.
    fn takes(&self, candidate: Candidate, fits: u32) -> f64 {
        let (actions, users) = (self.jury.fits.num_actions(), self.jury.fits.num_users());
        let rows = actions as f64 * f64::from(fits) + 2.0 * users as f64;
        4.0 * candidate.columns() * rows
    }

    /// The time in which those who judge have an SVD fitted again, unless it is there.
    pub(super) fn again(&self, svd: Candidate) -> Duration {
        let fits = &self.jury.fits;
        let is_there = fits.is_fitted(svd) || fits.has_base(svd);
        if is_there { Duration::ZERO } else { self.budget.of(svd) * fits.count() }
    }

    /// Keeps an SVD as the one at which ALS starts and which blends are made of, fitted again if need be.
    pub(super) fn keep_base(&mut self, svd: Candidate) -> Result<()> {
        if self.jury.fits.has_base(svd) {
            return Ok(());
        }
        if !self.jury.fits.is_fitted(svd) {
            // Both at once may be more than the memory holds.
            drop(self.jury.fits.take_base());
            self.fit(svd)?;
        }
        self.jury.fits.keep_base();
        Ok(())
    }

    /// Fits the source of a candidate for those who judge.
    pub(super) fn fit(&mut self, candidate: Candidate) -> Result<()> {
        let began = Instant::now();
        self.jury.fits.fit(candidate)?;
        let time = began.elapsed() / self.jury.fits.count();
        tracing::debug!("a fit of {:.1} s: {:?}", time.as_secs_f64(), candidate.source());
        self.budget.fitted(candidate, time);
        Ok(())
    }

    /// The mean reward of a candidate whose source is fitted; of a blend, a longer one serves. One near the best of
    /// its source is judged among that one's best actions first, and among all if it earns as much there as the best
    /// of its length.
    pub(super) fn judge(&mut self, candidate: Candidate) -> Result<f64> {
        let highest = self.standings.mean_like(candidate);
        let began = Instant::now();
        let near = self.jury.judge_near(candidate)?.map(|rewards| Tried::new(candidate, rewards));
        let tried = if let Some(near) = near.filter(|near| Some(near.mean) < highest) {
            self.note(Budget::judged_near, candidate, began);
            near
        } else {
            let began = Instant::now();
            let (rewards, list) = self.jury.judge(candidate)?;
            self.note(Budget::judged, candidate, began);
            let tried = Tried::new(candidate, rewards);
            self.jury.keep(list, tried.mean, |kept| self.standings.mean_of(kept));
            tried
        };
        let mean = tried.mean;
        tracing::debug!("{mean:.4} {candidate:?}");
        self.standings.0.push(tried);
        Ok(mean)
    }

    /// Notes the time of a judgement, but of one of the last round, by more users.
    fn note(
        &mut self,
        judged: fn(&mut Budget, Candidate, Duration),
        of: Candidate,
        began: Instant,
    ) {
        if !self.jury.calls_others() {
            judged(&mut self.budget, of, began.elapsed());
        }
    }

    /// Judges a candidate whose source is fitted and the weights near it, if need be in the time of the last round, so
    /// long as there is time for `keep` more fits; where ALS leads, which wants the time, no more than each kind of them.
    /// The best at its length comes out.
    fn around(&mut self, first: Candidate, keep: u32) -> Result<Candidate> {
        // Which weights are best depends on the length, so the search begins at each kind of them.
        let mut given = vec![first];
        let others = probes(first.svd(), first.recency);
        given.extend(others.into_iter().filter(|other| *other != first));
        let steps = usize::from(!self.als_leads(first));
        let until = self.budget.until(self.last_fits(self.budget.slowest() * keep));
        self.search(until, given, weights(first, self.jury.ordered()), steps)?;
        Ok(self.standings.best_like(first).unwrap_or(first))
    }

    /// Judges the weights of `best`, and what is near them, at all shorter lengths.
    pub(super) fn shorter(&mut self, best: Candidate, until: Deadline) -> Result<()> {
        let lengths = lengths(self.longest).into_iter().rev();
        for length in lengths.filter(|length| *length < best.latent_dim()) {
            let shorter = best.with_length(length);
            if until.left().is_some_and(|left| left.is_zero() || left < self.again(shorter)) {
                break;
            }
            self.search(until, vec![shorter], weights(shorter, self.jury.ordered()), 1)?;
        }
        Ok(())
    }

    /// Judges what is `given`, then what is at most so many `steps` from the best of its kind and length
    /// in `grid`, until the deadline, or until that best is beyond doubt not the winner.
    pub(super) fn search(
        &mut self,
        deadline: Deadline,
        mut given: Vec<Candidate>,
        mut grid: Vec<Candidate>,
        steps: usize,
    ) -> Result<()> {
        given.retain(|other| !self.standings.has(*other));
        grid.retain(|other| !given.contains(other) && !self.standings.has(*other));
        if given.is_empty() && deadline.left().is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        let centre = Cell::new(grid.first().and_then(|like| self.standings.centre(*like)));
        let mut given = given.into_iter();
        let next = |_: Option<&Candidate>| {
            given.next().or_else(|| nearest(&mut grid, places, &centre.get()?, steps))
        };
        search(deadline, next, |candidate| {
            if !self.jury.fits.is_fitted(*candidate) {
                self.fit(*candidate)?;
            }
            let reward = self.judge(*candidate)?;
            centre.set(self.standings.centre(*candidate));
            Ok(Judged::Reward(reward))
        })?;
        Ok(())
    }
}

/// The memory that is left, in bytes.
fn memory() -> f64 {
    device::available_memory().unwrap_or(f64::INFINITY)
}

fn too_large(latent_dim: usize, bytes: f64) -> Error {
    let problem = format!(
        "comparing vectors of {latent_dim} numbers takes {:.1} GB of memory, and {:.1} GB are available; \
         name the embeddings instead, as in --embeddings svd --latent-dim 50",
        bytes / 1e9,
        memory() / 1e9
    );
    Error::setting("embeddings", problem)
}

#[cfg(test)]
mod tests {
    use super::super::axes::soft;
    use super::super::made_up;
    use super::*;

    #[test]
    fn lists_change_nothing_of_what_is_the_best() {
        let sessions = made_up(700, 500);
        let (judge, svd) = (Judge::default(), SvdOptions::soft(50, 0.25));
        let best = |long: usize| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            play.jury.long = long;
            let end = play.budget.end();
            play.search(end, probes(svd, 0.0), weights(start(svd, 0.0), false), 2).unwrap();
            let best = play.standings.best_like(start(svd, 0.0)).unwrap();
            let near = play.jury.judge_near(best).unwrap().is_some();
            (near, best, play.standings.mean_of(best), play.standings.0.len())
        };
        let (with, without) = (best(0), best(usize::MAX));
        assert!(with.0 && !without.0);
        assert_eq!((with.1, with.2, with.3), (without.1, without.2, without.3));
    }

    #[test]
    fn a_candidate_is_judged_by_its_own_vectors_whatever_was_fitted_before() {
        let sessions = made_up(200, 300);
        let (judge, length) = (Judge::default(), 10);
        let svd = soft(0.5, length);
        let blend = svd.blends()[0];
        let candidates = [
            svd,
            svd.first_als().unwrap(),
            blend,
            soft(0.25, length),
            // It is no part of a longer one.
            svd.with_length(2 * length),
            svd.with_length(length - 2),
        ];
        let rewards = |candidates: &[Candidate]| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            play.search(play.budget.end(), candidates.to_vec(), Vec::new(), 0).unwrap();
            play.standings.0.into_iter().map(|tried| tried.rewards).collect::<Vec<_>>()
        };
        let alone: Vec<_> = candidates.iter().flat_map(|alone| rewards(&[*alone])).collect();
        assert_eq!(rewards(&candidates), alone);
        assert_ne!(alone[0], alone[3]);
        assert_ne!(alone[0], alone[2]);

        // A blend of an SVD that is there is the one that is fitted as a whole.
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        play.fit(svd).unwrap();
        play.jury.fits.keep_base();
        play.fit(blend).unwrap();
        assert_eq!(play.jury.judge(blend).unwrap().0, alone[2]);
    }
}
