//! The winner in, and out: its weights, and its length where a longer one earned more, are judged again by up to
//! five times as many users.

use std::time::Duration;

use super::axes::weights;
use super::budget::FINALISTS;
use super::candidate::{Candidate, Kind};
use super::rounds::Play;
use super::standing::Tried;
use crate::error::Result;

impl Play<'_> {
    /// The best weights of the winner's decomposition, and what is next to them, by five times as many users,
    /// if there is time; and of a longer one like it that earned more, if there is time for that: a thousand
    /// users tell hardly more than one percent. The winner of that round comes out.
    pub(super) fn settle(&mut self, winner: Candidate) -> Result<Candidate> {
        if !self.jury.has_others() {
            return Ok(winner);
        }
        // A fit of a longer blend serves both.
        let is_blend = matches!(winner.kind, Kind::Blend { .. });
        let times = |of: Candidate| {
            let fit = self.budget.of(of);
            self.jury.fits.before_and_after_all(of).map(|fits| fit * fits)
        };
        // Otherwise the fits of the longer one are made when the winner was judged, and those of the winner again
        // if it wins after all.
        let anew = |of: Candidate| {
            self.jury.fits.before_and_after_anew().map(|fits| self.budget.of(of) * fits)
        };
        let is_apart = |longer: Candidate| !is_blend && longer != winner;
        let last = |longer: Candidate| {
            let [first, last] = if is_apart(longer) {
                let ([first, _], [other, last]) = (times(winner), anew(longer));
                [first + other, last + anew(winner)[0]]
            } else {
                times(longer)
            };
            (!self.budget.is_over(longer, first, last)).then_some((longer, last))
        };
        let longer = self.standings.longer_and_better(winner).and_then(last);
        let Some((longer, last)) = longer.or_else(|| last(winner)) else { return Ok(winner) };
        // The winner first, in case that the fits take longer than is thought.
        let lengths = if longer == winner { vec![winner] } else { vec![winner, longer] };
        let each = FINALISTS as usize / lengths.len();
        let best = |length| (length, self.standings.best_of_source(length, each));
        let finalists: Vec<_> = lengths.into_iter().map(best).collect();
        let of_longer = if is_apart(longer) { anew(longer)[0] } else { times(longer)[0] };
        let count = self.jury.count();
        self.jury.call_others(if is_blend { longer } else { winner })?;
        let before = std::mem::take(&mut self.standings);
        for (length, finalists) in finalists {
            let fits = if self.jury.fits.is_fitted(longer) { Duration::ZERO } else { of_longer };
            let mut until = self.budget.until(last + fits);
            if length != longer {
                until = until.halfway();
            } else if !self.jury.fits.is_fitted(longer) {
                if until.left().is_some_and(|left| left.is_zero()) {
                    break;
                }
                self.jury.fits.fit(longer)?;
                until = self.budget.until(last);
            }
            self.search(until, finalists, Vec::new(), 0)?;
            let near = self.standings.best_like(length).unwrap_or(length);
            self.search(until, Vec::new(), weights(near, self.jury.ordered()), 1)?;
        }
        let winner = self.standings.winner()?;
        self.last = std::mem::replace(&mut self.standings, before);
        for Tried { candidate, rewards, .. } in &self.last.0 {
            if !self.standings.has(*candidate) {
                // The table is about those who judged everything.
                self.standings.0.push(Tried::new(*candidate, rewards[..count].to_vec()));
            }
        }
        Ok(winner)
    }
}
