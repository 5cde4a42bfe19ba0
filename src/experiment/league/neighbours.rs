//! The winner in, and out: alone or with neighbours beside it.

use super::candidate::Candidate;
use super::rounds::Play;
use super::standing::{Lack, LeftOut};
use crate::error::Result;
use crate::experiment::search::Deadline;

/// The most pairs of items that some user has both of, in the fits without a fold together: to count so many takes ten
/// seconds or so each time. Logs of such pairs beyond it have users with very many items, and neighbours add nothing there.
const MOST_PAIRS: usize = 1_000_000_000;
/// The judgements for which there must be time.
const LEAST: u32 = 2;

impl Play<'_> {
    /// True if similarities are counted soon.
    pub(super) fn has_few_pairs(&self) -> bool {
        let fits = self.jury.fits.all() as usize - 1;
        self.jury.fits.pairs().saturating_mul(fits) <= MOST_PAIRS
    }

    /// The winner, or neighbours beside it in the weights that earn the most, if that is more beyond doubt: they take
    /// a thousand dimensions. They are the last, because they are made of any decomposition, and in a moment.
    pub(super) fn neighbours(&mut self, winner: Candidate) -> Result<Candidate> {
        let mut others = winner.neighbours(self.jury.fits.num_actions());
        if others.is_empty() || !self.has_few_pairs() {
            return Ok(winner);
        }
        let first = others.remove(0);
        // The judges of the table: more would take more time than is kept.
        self.jury.dismiss_others();
        self.budget.begin_neighbours();
        let [now, later] = self.jury.fits.now_and_later(winner);
        let fit = self.budget.of(winner);
        let until = self.budget.until(fit * later);
        let time = fit * now + self.budget.judgement(first) * LEAST;
        let lack = if until.left().is_some_and(|left| left < time) {
            Some(Lack::Time)
        } else {
            self.lacks_memory(first).then_some(Lack::Memory)
        };
        if let Some(reason) = lack {
            self.left_out.push(LeftOut { what: first.name(), reason });
            return Ok(winner);
        }
        if now > 0 {
            self.fit(winner)?;
        }
        self.jury.fits.keep_base();
        self.search(until, vec![first], Vec::new(), 0)?;
        if self.standings.is_above(first, winner) {
            self.search(until, Vec::new(), others, 1)?;
        }
        let best = self.standings.best_like(first).unwrap_or(first);
        let wins = self.standings.is_worth_more(best, winner);
        let best = if wins { self.in_fewer(best, until)? } else { winner };
        if best == winner {
            let base = self.jury.fits.take_base();
            self.jury.fits.put(base);
        } else if !self.jury.fits.is_fitted(best) {
            self.jury.fits.fit(best)?;
        }
        Ok(best)
    }

    /// These neighbours in fewer dimensions, if they earn no less.
    fn in_fewer(&mut self, best: Candidate, until: Deadline) -> Result<Candidate> {
        let Some(fewer) = best.in_fewer() else { return Ok(best) };
        self.search(until, vec![fewer], Vec::new(), 0)?;
        let earns_less = !self.standings.has(fewer) || self.standings.is_worth_more(best, fewer);
        Ok(if earns_less { best } else { fewer })
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidate::{Kind, soft};
    use super::*;
    use crate::dataset::{ActionSets, Sessions, Split};
    use crate::prepared::{HeldOut, Judge};
    use crate::seed::{Purpose, Seed};

    const USERS: u32 = 1200;
    const PAIRS: u32 = 250;

    /// Users who observe one item each of four pairs, and hide another: that of the pair, or any.
    fn sessions(of_pairs: bool) -> Sessions {
        let draw =
            |user: u32, at: u64| Seed(9).stream(Purpose::Synthetic, at, user.into()).below(PAIRS);
        let items = |hidden: bool| {
            (0..USERS).flat_map(move |user| {
                (0..4).map(move |at| {
                    let at = if hidden && !of_pairs { at + 4 } else { at };
                    (user, 2 * draw(user, at) + u32::from(hidden))
                })
            })
        };
        Sessions {
            observed: ActionSets::from_pairs(USERS as usize, items(false)),
            hidden: ActionSets::from_pairs(USERS as usize, items(true)),
            split: vec![Split::Train; USERS as usize],
            num_actions: 2 * PAIRS as usize,
        }
    }

    /// What comes out of a league whose winner is an SVD that is too short for pairs.
    fn with_a_short_winner<T>(sessions: &Sessions, run: impl Fn(Play<'_>, Candidate) -> T) -> T {
        let judge = Judge::default();
        let mut play = Play::new(sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let svd = soft(0.25, 20);
        play.fit(svd).unwrap();
        play.judge(svd).unwrap();
        run(play, svd)
    }

    #[test]
    fn neighbours_win_where_items_come_in_pairs_and_their_fits_are_there() {
        let sessions = sessions(true);
        with_a_short_winner(&sessions, |mut play, svd| {
            let best = play.neighbours(svd).unwrap();
            assert_eq!(best.beside_neighbours(), Some(svd));
            assert!(play.standings.is_worth_more(best, svd) && play.jury.fits.is_fitted(best));
            assert!(play.left_out.is_empty(), "{:?}", play.left_out);
            let (folds, fits) = play.jury.fits.into_folds(best).unwrap();
            for (fold, fit) in (0..folds.count()).zip(fits) {
                let users = folds.without(fold);
                assert_eq!(best.source().fit(&sessions, &users, Seed(0)).unwrap(), fit);
            }
        });
    }

    #[test]
    fn the_winner_stays_where_neighbours_say_nothing() {
        let sessions = sessions(false);
        with_a_short_winner(&sessions, |mut play, svd| {
            assert_eq!(play.neighbours(svd).unwrap(), svd);
            assert!(play.jury.fits.is_fitted(svd) && !play.jury.fits.has_base(svd));
            let tried = play.standings.0.iter().map(|tried| tried.candidate.kind);
            assert!(tried.skip(1).all(|kind| matches!(kind, Kind::Neighbours { .. })));
        });
    }

    #[test]
    fn without_time_the_winner_stays_and_the_report_says_so() {
        let sessions = sessions(true);
        let judge = Judge { within: 0, ..Judge::default() };
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let svd = soft(0.25, 20);
        play.fit(svd).unwrap();
        play.judge(svd).unwrap();
        assert_eq!(play.neighbours(svd).unwrap(), svd);
        assert_eq!(play.left_out[0].to_string(), "neighbours with L = 520: no time");
    }
}
