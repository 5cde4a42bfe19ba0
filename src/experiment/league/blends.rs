//! Blends with ALS, of the SVD that wins so far.

use std::time::Duration;

use super::axes::{FIRST_BLENDS, lengths, weights};
use super::candidate::{Candidate, Kind};
use super::rounds::Play;
use crate::error::Result;

impl Play<'_> {
    /// Blends of the SVD that wins so far, or of the longest shorter one that may win and that there is time for.
    pub(super) fn blends(&mut self) -> Result<()> {
        let Some(svd) = self.standings.to_blend()? else { return Ok(()) };
        let longest = svd.latent_dim();
        let shorter = lengths(self.longest).into_iter().rev().filter(|length| *length < longest);
        for length in std::iter::once(longest).chain(shorter) {
            let Some(base) = self.standings.centre(svd.with_length(length)) else { continue };
            let Some(first) = base.blends().first().copied() else { break };
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
            let until = self.budget.before(self.last_of_blend(first));
            self.search(until.halfway(), Vec::new(), others, 1)?;
            let found = self.standings.best_like(first).unwrap_or(first);
            self.search(until, Vec::new(), weights(found, self.jury.ordered()), 1)?;
            self.shorter(self.standings.best_like(first).unwrap_or(found), until)?;
        }
        let base = self.jury.fits.take_base();
        if !matches!(self.standings.winner()?.kind, Kind::Blend { .. }) {
            self.jury.fits.put(base);
        }
        Ok(())
    }

    /// The time of the fits of a blend if it wins, or of an SVD again if that wins after all.
    fn last_of_blend(&self, blend: Candidate) -> Duration {
        let fits = self.jury.fits.all();
        self.last_fits(self.budget.of(blend).max(self.budget.slowest()) * fits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::axes::{SHORT, soft};
    use super::super::made_up;
    use super::super::standing::Tried;
    use super::*;
    use crate::prepared::{HeldOut, Judge};
    use crate::seed::Seed;

    #[test]
    fn blends_are_of_the_winner_whose_fits_stay_unless_they_win() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let svd = soft(0.25, SHORT);
        for (svd, reward) in [(svd.with_length(2 * SHORT), 8.0), (svd, 9.0)] {
            play.fit(svd).unwrap();
            play.judge(svd).unwrap();
            // It is made to win.
            *play.standings.0.last_mut().unwrap() =
                Tried::new(svd, vec![reward; play.jury.count()]);
        }
        play.blends().unwrap();
        let first = svd.blends()[0];
        let blends = play.standings.0.iter().filter(|tried| tried.candidate.is_like(first));
        assert_eq!(blends.count(), FIRST_BLENDS as usize);
        assert_eq!(play.standings.0.len(), 2 + FIRST_BLENDS as usize);
        // Its fits are there for what comes next.
        assert!(play.jury.fits.is_fitted(svd) && !play.jury.fits.has_base(svd));
    }
}
