//! Blends with ALS, of the SVD that wins so far.

use std::time::Duration;

use super::budget::Budget;
use super::candidate::{Candidate, FIRST_BLENDS, lengths, weights};
use super::fits::ALL;
use super::rounds::Play;
use crate::error::Result;

impl Play<'_> {
    /// Blends of the SVD that wins so far, or of the longest shorter one that may win and that there is time for,
    /// down to the first length whose blends were judged.
    pub(super) fn blends(&mut self) -> Result<()> {
        let Some(svd) = self.standings.to_blend()? else { return Ok(()) };
        let longest = svd.latent_dim();
        let shorter = lengths(self.longest).into_iter().rev().filter(|length| *length < longest);
        for length in std::iter::once(longest).chain(shorter) {
            let Some(base) = self.standings.centre(svd.with_length(length)) else { continue };
            let Some(first) = base.blends().first().copied() else { break };
            if self.standings.best_like(first).is_some() {
                break;
            }
            let few = self.budget.beside_svd(first) * FIRST_BLENDS * self.jury.fits.count();
            if self.is_possible(first, self.again(base) + few + self.last_of_blend(first)) {
                return self.blends_of(base);
            }
        }
        Ok(())
    }

    /// The first blends of an SVD; where they earn as much as the best, others, their weights and shorter ones.
    /// The fits of the SVD stay unless a blend wins.
    fn blends_of(&mut self, base: Candidate) -> Result<()> {
        let mut others = base.blends();
        let few: Vec<Candidate> = others.drain(..FIRST_BLENDS as usize).collect();
        let first = few[0];
        self.keep_base(base)?;
        self.search(self.budget.end(), few, Vec::new(), 0)?;
        // Where these earn less by more than chance, others hardly earn more.
        if self.standings.is_level(first) {
            // Where they earn no more, a longer SVD comes first.
            let is_above = self.standings.is_above(first, base);
            let of_longer = if is_above { None } else { self.time_of_longer(base) };
            let until = self.last_of_blend(first).max(of_longer.unwrap_or_default());
            let until = self.budget.before(until);
            self.search(until.halfway(), Vec::new(), others, 1)?;
            let found = self.standings.best_like(first).unwrap_or(first);
            self.search(until, Vec::new(), weights(found, self.jury.ordered()), 1)?;
            self.shorter(self.standings.best_like(first).unwrap_or(found), until)?;
        }
        let base = self.jury.fits.take_base();
        if !matches!(self.standings.winner()?, Candidate::Blend { .. }) {
            self.jury.fits.put(base);
        }
        Ok(())
    }

    /// The time of the fits of a blend if it wins, or of an SVD again if that wins after all.
    fn last_of_blend(&self, blend: Candidate) -> Duration {
        self.last_fits(self.budget.of(blend).max(self.budget.slowest()) * ALL)
    }

    /// The time that must be left for the next longer SVD, if there is one that was not judged and that is
    /// possible.
    pub(super) fn time_of_longer(&mut self, svd: Candidate) -> Option<Duration> {
        let next = self.longer_than(svd).find(|next| self.standings.best_like(*next).is_none())?;
        let fits = &self.jury.fits;
        let time = self.budget.of(next) * (fits.count() + ALL - fits.kept());
        self.is_possible(next, time).then(|| Budget::left_for(time))
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidate::{SHORT, soft};
    use super::super::made_up;
    use super::*;
    use crate::prepared::{HeldOut, Judge};
    use crate::seed::Seed;

    #[test]
    fn a_longer_svd_that_wins_later_is_blended_too_and_each_length_once() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let svd = soft(0.25, SHORT);
        let longer = svd.with_length(2 * SHORT);
        let blends = |play: &Play, of: Candidate| {
            let first = of.blends()[0];
            play.standings.0.iter().filter(|tried| tried.candidate.is_like(first)).count()
        };
        for (turn, of) in [svd, longer].into_iter().enumerate() {
            play.fit(of).unwrap();
            play.judge(of).unwrap();
            // It is made to win.
            play.standings.0.last_mut().unwrap().rewards.fill(9.0 + turn as f64);
            for _ in 0..2 {
                play.blends().unwrap();
                assert_eq!(blends(&play, of), FIRST_BLENDS as usize);
                // Its fits are there for what comes next.
                assert!(play.jury.fits.is_fitted(of) && !play.jury.fits.has_base(of));
            }
        }
        assert_eq!(play.standings.0.len(), 2 + 2 * FIRST_BLENDS as usize);
    }
}
