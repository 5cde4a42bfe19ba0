//! The times of what was fitted and judged in, whether there is time for more out.
//!
//! A fit takes as long as the last one of its kind, of an SVD the longest, or what its columns make of that. The last fits, of
//! the winner on everybody and without each fold, are kept time for from the start: they are made
//! whatever the limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::candidate::{Candidate, Kind, svd_columns};
use crate::embedding::{BlendOptions, SvdOptions};
use crate::experiment::search::Deadline;

/// Share of the time left that the long decompositions may take.
const FITTING: f64 = 0.9;
/// Candidates that the last round begins with.
pub(super) const FINALISTS: u32 = 4;
/// Candidates that it judges, as a rule.
const LAST: u32 = 16;
/// Share of the time limit that is kept for them, at most.
const SETTLING: f64 = 0.25;
/// Share of the time limit that is kept for neighbours.
const NEIGHBOURS: f64 = 0.15;
/// The time of a fit, of an SVD or of ALS, grows as this power of its columns from one length to the next,
/// between the sparse products' 1 and the dense ones' 2.
const GROWTH: f64 = 1.5;
/// The fits of an SVD that take as long as ALS that starts there.
const SVDS_PER_ALS: u32 = 3;

/// The time of a fit, and its columns.
#[derive(Clone, Copy)]
struct Fit {
    time: Duration,
    columns: f64,
}

impl Fit {
    /// The time of one of other columns; a shorter one saves less than a longer one costs.
    fn of(self, columns: f64) -> Duration {
        let growth = if columns < self.columns { 1.0 } else { GROWTH };
        self.time.mul_f64((columns / self.columns).powf(growth))
    }
}

/// The clock of a league.
pub(super) struct Budget {
    /// The limit of all but the neighbours.
    limit: Duration,
    /// The limit of everything.
    whole: Duration,
    clock: Deadline,
    /// How many times as many users judge in the last round.
    others: f64,
    /// The number of fits of the winner.
    fits: u32,
    /// The longest SVD that was fitted.
    svd: Option<Fit>,
    /// The time of the slowest SVD.
    slowest: Duration,
    /// The ALS that was fitted last, without its SVD.
    als: Option<Fit>,
    /// The time of the last blend, without its SVD.
    blend: Option<Duration>,
    /// The time of the slowest judgement of one candidate, by its length.
    judging: BTreeMap<usize, Duration>,
    /// The same of those near the best of their length.
    near: BTreeMap<usize, Duration>,
}

impl Budget {
    /// So many seconds from when it `began`; in the last round so many times as many users judge, 0 without
    /// one, and the winner has so many `fits`.
    pub(super) fn new(began: Instant, seconds: u64, others: f64, fits: u32) -> Self {
        let limit = Duration::from_secs(seconds);
        Self {
            limit,
            whole: limit,
            clock: Deadline::new(began, Some(limit)),
            others,
            fits,
            svd: None,
            slowest: Duration::ZERO,
            als: None,
            blend: None,
            judging: BTreeMap::new(),
            near: BTreeMap::new(),
        }
    }

    /// Keeps a share of the time for neighbours.
    pub(super) fn keep_for_neighbours(&mut self) {
        self.limit = self.whole.mul_f64(1.0 - NEIGHBOURS);
        self.clock = self.clock.until(Some(self.limit));
    }

    /// Ends the time of all else.
    pub(super) fn begin_neighbours(&mut self) {
        self.limit = self.whole;
        self.clock = self.clock.until(Some(self.limit));
    }

    /// The end of everything, for what comes before the neighbours, of that.
    pub(super) fn end(&self) -> Deadline {
        self.clock
    }

    /// The time so far.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// A candidate's source was fitted in this time; of ALS and a blend, without the SVD.
    pub(super) fn fitted(&mut self, candidate: Candidate, time: Duration) {
        let fit = Fit { time, columns: candidate.columns() };
        match candidate.kind {
            Kind::Als { .. } => self.als = Some(fit),
            Kind::Blend { .. } => self.blend = Some(time),
            // The last of all.
            Kind::Neighbours { .. } => {}
            Kind::Svd(_) => {
                // A short one says little of a long one.
                if self.svd.is_none_or(|longest| fit.columns >= longest.columns) {
                    self.svd = Some(fit);
                }
                self.slowest = self.slowest.max(time);
            }
        }
    }

    /// A candidate was judged in this time, among all actions.
    pub(super) fn judged(&mut self, candidate: Candidate, time: Duration) {
        let slowest = self.judging.entry(candidate.latent_dim()).or_default();
        *slowest = time.max(*slowest);
    }

    /// The same among the best actions by one near it.
    pub(super) fn judged_near(&mut self, candidate: Candidate, time: Duration) {
        let slowest = self.near.entry(candidate.latent_dim()).or_default();
        *slowest = time.max(*slowest);
    }

    /// The time of the slowest SVD.
    pub(super) fn slowest(&self) -> Duration {
        self.slowest
    }

    /// The time of one fit of a candidate.
    pub(super) fn of(&self, candidate: Candidate) -> Duration {
        match candidate.kind {
            Kind::Svd(svd) => self.time_of_svd(svd),
            Kind::Als { blend } => self.time_of_svd(blend.svd) + self.time_of_als(blend),
            Kind::Blend { blend } => {
                let svd = self.time_of_svd(blend.svd);
                svd + self.blend.unwrap_or_else(|| svd.max(self.time_of_als(blend)))
            }
            Kind::Neighbours { .. } => {
                candidate.beside_neighbours().map_or(Duration::ZERO, |of| self.of(of))
            }
        }
    }

    /// The time of what a candidate fits beside its SVD.
    pub(super) fn beside_svd(&self, candidate: Candidate) -> Duration {
        let of_svd = |blend: BlendOptions| self.time_of_svd(blend.svd);
        let svd = candidate.beside_svd().map_or(Duration::ZERO, of_svd);
        self.of(candidate).saturating_sub(svd)
    }

    fn time_of_svd(&self, svd: SvdOptions) -> Duration {
        self.svd.map_or(Duration::ZERO, |fit| fit.of(svd_columns(svd.latent_dim)))
    }

    /// The time of the ALS of a blend, without its SVD.
    fn time_of_als(&self, blend: BlendOptions) -> Duration {
        let svd = SvdOptions { latent_dim: blend.als_dim, ..blend.svd };
        let of_svd = || SVDS_PER_ALS * self.time_of_svd(svd);
        self.als.map_or_else(of_svd, |fit| fit.of(2.0 * blend.als_dim as f64))
    }

    /// The time of the fits that are still to make if the game ends now, where an SVD's take `of_svd`.
    pub(super) fn last_fits(&self, winner: Option<Candidate>, of_svd: Duration) -> Duration {
        winner.map_or(of_svd, |winner| of_svd.max(self.of(winner) * self.fits))
    }

    /// A deadline that leaves so much time.
    pub(super) fn until(&self, kept: Duration) -> Deadline {
        self.clock.until(Some(self.limit.saturating_sub(kept)))
    }

    /// A deadline that leaves so much time, and that of the last round.
    pub(super) fn before(&self, kept: Duration) -> Deadline {
        self.until(kept + self.settling(LAST))
    }

    /// What is kept for so many candidates in the last round.
    fn settling(&self, candidates: u32) -> Duration {
        self.last_round(usize::MAX, candidates).min(self.limit.mul_f64(SETTLING))
    }

    /// The time that must be left for such fits.
    pub(super) fn left_for(fits: Duration) -> Duration {
        fits.div_f64(FITTING)
    }

    /// The time of so many candidates up to a length in the last round, of which those after the finalists are near
    /// the best.
    fn last_round(&self, length: usize, candidates: u32) -> Duration {
        let slowest = self.judging.range(..=length).max_by_key(|(_, time)| **time);
        let Some((length, among_all)) = slowest else { return Duration::ZERO };
        let near = self.near.get(length).unwrap_or(among_all);
        let first = candidates.min(FINALISTS);
        (*among_all * first + *near * (candidates - first)).mul_f64(self.others)
    }

    /// The time of a judgement until the last round, of one that may be longer than all so far.
    pub(super) fn judgement(&self, of: Candidate) -> Duration {
        let longest = self.judging.iter().next_back();
        longest.map_or(Duration::ZERO, |(length, time)| {
            time.mul_f64(of.latent_dim() as f64 / *length as f64)
        })
    }

    /// True if there is no time for such fits before the last round, for the `last` ones after it, and for
    /// those whom it begins with, up to the length of `longest`.
    pub(super) fn is_over(&self, longest: Candidate, first: Duration, last: Duration) -> bool {
        let left = self.until(first + last).left();
        left.is_some_and(|left| left < self.last_round(longest.latent_dim(), FINALISTS))
    }

    /// The time that is left.
    pub(super) fn left(&self) -> Duration {
        self.clock.left().unwrap_or_default()
    }

    /// The time for fits. A longer SVD is worth more than all but the first of the last round.
    pub(super) fn spare(&self) -> Duration {
        self.left().saturating_sub(self.settling(FINALISTS)).mul_f64(FITTING)
    }
}

#[cfg(test)]
mod tests {
    use super::super::axes::soft;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn svd(latent_dim: usize) -> Candidate {
        soft(0.0, latent_dim)
    }

    #[test]
    fn a_blend_takes_what_its_als_does_where_there_are_many_users() {
        let mut budget = Budget::new(Instant::now(), 100, 0.0, 6);
        let blend = svd(512).blends()[0];
        budget.fitted(svd(512), SECOND);
        assert_eq!(budget.of(blend), 4 * SECOND);
        budget.fitted(svd(100).first_als().unwrap(), SECOND);
        assert!(budget.of(blend) > 10 * SECOND, "{:?}", budget.of(blend));
        budget.fitted(blend, 5 * SECOND);
        assert_eq!(budget.of(blend), 6 * SECOND);
    }

    #[test]
    fn time_is_kept_for_the_fits_of_the_winner_and_for_the_last_round() {
        let mut budget = Budget::new(Instant::now(), 100, 5.0, 6);
        budget.judged(svd(100), SECOND / 8);
        budget.fitted(svd(100), SECOND);
        let als = svd(100).first_als().unwrap();
        budget.fitted(als, 4 * SECOND);
        let left = |budget: &Budget, winner| {
            let kept = budget.last_fits(winner, 6 * SECOND);
            budget.before(kept).left().map(|left| left.as_secs_f64().round())
        };
        assert_eq!(left(&budget, Some(svd(100))), Some(100.0 - 10.0 - 6.0));
        assert_eq!(left(&budget, Some(als)), Some(100.0 - 10.0 - 30.0));
        assert!(budget.spare() < 88 * SECOND && budget.spare() > 87 * SECOND);
        budget.judged(svd(512), SECOND);
        assert_eq!(left(&budget, Some(svd(100))), Some(100.0 - 25.0 - 6.0), "a quarter at most");
        // A longer candidate does not end the last round of a short one.
        let is_over = |longest| budget.is_over(longest, 90 * SECOND, Duration::ZERO);
        assert!(is_over(svd(512)) && !is_over(svd(100)));
    }

    #[test]
    fn those_near_the_best_take_less_of_the_last_round() {
        let mut budget = Budget::new(Instant::now(), 100, 5.0, 6);
        budget.judged(svd(512), SECOND / 2);
        budget.judged_near(svd(100), SECOND / 100);
        let kept = |budget: &Budget| budget.settling(LAST).as_secs_f64();
        assert!(
            (kept(&budget) - 25.0).abs() < 1e-9,
            "a quarter at most, and none of that length yet"
        );
        budget.judged_near(svd(512), SECOND / 20);
        assert!((kept(&budget) - 5.0 * (4.0 / 2.0 + 12.0 / 20.0)).abs() < 1e-9);
    }
}
