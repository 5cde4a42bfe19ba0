//! The winner in, and out: alone or with neighbours beside it.

use super::candidate::Candidate;
use super::fits::Fitted;
use super::report::{Lack, LeftOut};
use super::rounds::Play;
use super::standing::Tried;
use crate::error::Result;
use crate::experiment::search::Deadline;

/// The most pairs of items that some user has both of, in the fits without a fold together: to count so many takes ten
/// seconds or so. Logs of such pairs beyond it have users with very many items, and neighbours add nothing there.
const MOST_PAIRS: usize = 1_000_000_000;
/// The judgements for which there must be time.
const LEAST: u32 = 2;

/// A decomposition's turn.
struct Turn {
    beside: Candidate,
    /// The decomposition's fits.
    fits: Option<Fitted>,
    /// The best neighbours beside it, if they are worth more than the winner.
    best: Option<Candidate>,
}

impl Play<'_> {
    /// True if similarities are counted soon.
    pub(super) fn has_few_pairs(&self) -> bool {
        let fits = self.jury.fits.all() as usize - 1;
        self.jury.fits.pairs().saturating_mul(fits) <= MOST_PAIRS
    }

    /// The winner, or neighbours beside it or beside a shorter decomposition, if they earn more than the winner by more
    /// than a standard error and one percent. They are the last, because they are made of any decomposition, and in a
    /// moment.
    pub(super) fn neighbours(&mut self, winner: Candidate) -> Result<Candidate> {
        if winner.beside_neighbours().is_some() || !self.has_few_pairs() {
            return Ok(winner);
        }
        self.budget.begin_neighbours();
        // Those beside the winner come where all put the others below it.
        for Turn { beside, fits, best } in self.turns(winner)?.into_iter().rev() {
            self.jury.fits.put(fits);
            let Some(best) = best else { break };
            self.jury.fits.keep_base();
            let best = self.best_beside(beside, best, winner)?;
            if self.are_worth_more_to_all(best, winner)? {
                return Ok(best);
            }
            let fits = self.jury.fits.take_base();
            self.jury.fits.put(fits);
        }
        Ok(winner)
    }

    /// The turn of the winner, unless there is no time for it, and that of the shortest decomposition that is as good with
    /// neighbours, since what they hold, it need not. Empty if nothing may take the place of the winner's fits.
    fn turns(&mut self, winner: Candidate) -> Result<Vec<Turn>> {
        // The judges of the table: more would take more time than is kept.
        self.jury.dismiss_others();
        let mut turns: Vec<Turn> = Vec::new();
        let shorter = self.standings.best_of_shorter(winner);
        for beside in std::iter::once(winner).chain(shorter) {
            let before = turns.last().and_then(|turn| turn.best);
            let Some(turn) = self.turn(beside, winner, before)? else {
                if self.jury.fits.is_fitted(winner) {
                    break;
                }
                continue;
            };
            let ends = turn.best.is_none();
            if !ends && turns.last().is_some_and(|last| last.beside != winner) {
                turns.pop();
            }
            if !ends || beside == winner {
                turns.push(turn);
            }
            if ends {
                break;
            }
        }
        Ok(turns)
    }

    /// The turn of a decomposition, after one whose best neighbours were those `before`. None if there is too little time
    /// or memory.
    fn turn(
        &mut self,
        beside: Candidate,
        winner: Candidate,
        before: Option<Candidate>,
    ) -> Result<Option<Turn>> {
        let mut all = beside.neighbours(self.jury.fits.num_actions());
        let until = self.until_last_fits(beside);
        let same = before.and_then(|best| best.beside(beside));
        let next = same.unwrap_or_else(|| all.remove(0));
        if let Some(reason) = self.lacks(beside, next, until) {
            if beside == winner {
                self.left_out.push(LeftOut { what: next.name(), reason });
            }
            return Ok(None);
        }
        if !self.jury.fits.is_fitted(beside) {
            self.fit(beside)?;
        }
        self.jury.fits.keep_base();
        self.search(until, vec![next], Vec::new(), 0)?;
        // Not more than the best of its weights: after a last round that is another one, by chance.
        if before.is_none() && self.standings.mean_of(next) > self.standings.mean_of(beside) {
            // The other half is for shorter ones, which take less of it.
            self.search(until.halfway(), Vec::new(), all, 1)?;
        }
        let best = self.shortest_beside(beside, winner);
        Ok(Some(Turn { beside, fits: self.jury.fits.take_base(), best }))
    }

    /// The best neighbours beside a decomposition, whose fits are kept, once those near the `best` of its turn are judged,
    /// and those in other dimensions. They are fitted.
    fn best_beside(
        &mut self,
        beside: Candidate,
        best: Candidate,
        winner: Candidate,
    ) -> Result<Candidate> {
        self.jury.dismiss_others();
        let until = self.until_last_fits(beside);
        self.search(until, Vec::new(), beside.neighbours(self.jury.fits.num_actions()), 1)?;
        let best = self.shortest_beside(beside, winner).unwrap_or(best);
        let others = best.in_other_dims(self.jury.fits.num_actions());
        let others = others.into_iter().filter(|other| !self.lacks_memory(*other)).collect();
        self.search(until, others, Vec::new(), 0)?;
        let best = self.shortest_beside(beside, winner).unwrap_or(best);
        if !self.jury.fits.is_fitted(best) {
            self.jury.fits.fit(best)?;
        }
        Ok(best)
    }

    /// True if neighbours are worth more than the winner to all who chose it in a last round, if there was one. Their
    /// fits are those that are still to make if they win.
    fn are_worth_more_to_all(&mut self, best: Candidate, winner: Candidate) -> Result<bool> {
        if !self.last.has(winner) {
            return Ok(true);
        }
        self.jury.call_others(best)?;
        let (rewards, _) = self.jury.judge(best)?;
        self.last.0.push(Tried::new(best, rewards));
        let are = self.last.is_worth_more(best, winner);
        tracing::debug!(
            "{are} to all: {:?}, {:?}",
            self.last.mean_of(best),
            self.last.mean_of(winner)
        );
        Ok(are)
    }

    /// A deadline that leaves the time in which what neighbours stand beside is fitted without the other folds. The
    /// judgement of all is not kept time for: of long vectors it takes as long as the search.
    fn until_last_fits(&self, beside: Candidate) -> Deadline {
        let [_, later] = self.jury.fits.now_and_later(beside);
        self.budget.until(self.budget.of(beside) * later)
    }

    /// The shortest neighbours that are as good as the best, if they are `beside` this and worth more than the winner.
    fn shortest_beside(&self, beside: Candidate, winner: Candidate) -> Option<Candidate> {
        let shortest = self.standings.winner_of(|of| of.beside_neighbours().is_some())?;
        let is_beside = shortest.beside_neighbours() == Some(beside);
        (is_beside && self.standings.is_worth_more(shortest, winner)).then_some(shortest)
    }

    /// What there is too little of for the first judgements of these neighbours, and for what they stand beside.
    fn lacks(&self, beside: Candidate, next: Candidate, until: Deadline) -> Option<Lack> {
        let [now, _] = self.jury.fits.now_and_later(beside);
        let time = self.budget.of(beside) * now + self.budget.judgement(next) * LEAST;
        if until.left().is_some_and(|left| left < time) {
            Some(Lack::Time)
        } else {
            self.lacks_memory(next).then_some(Lack::Memory)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::axes::{soft, weights};
    use super::super::candidate::Kind;
    use super::super::standing::Standings;
    use super::*;
    use crate::dataset::{ActionSets, Sessions, Split};
    use crate::prepared::{HeldOut, Judge};
    use crate::seed::{Purpose, Seed};

    const TASTES: u32 = 10;
    const PAIRS: u32 = 25;

    /// Users of ten tastes who observe one item each of four of a taste's pairs. If it is `of_pairs`, they hide the others
    /// of two of them and favourites of the taste; otherwise the same four items as all users of the taste.
    fn sessions(of_pairs: bool) -> Sessions {
        sessions_of(1200, of_pairs)
    }

    fn sessions_of(users: u32, of_pairs: bool) -> Sessions {
        let draw = |user: u32, at: u64| {
            let mut stream = Seed(9).stream(Purpose::Synthetic, at, user.into());
            stream.below(1 << 20)
        };
        let items = |hidden: bool| {
            (0..users).flat_map(move |user| {
                (0_u8..4).map(move |at| {
                    let pair = match (hidden, of_pairs, u32::from(at)) {
                        (true, false, at) => at,
                        (true, true, 2..) => {
                            draw(user, u64::from(at) + 4).trailing_zeros().min(PAIRS - 1)
                        }
                        _ => draw(user, at.into()) % PAIRS,
                    };
                    (user, 2 * (user % TASTES * PAIRS + pair) + u32::from(hidden))
                })
            })
        };
        Sessions {
            observed: ActionSets::from_pairs(users as usize, items(false)),
            hidden: ActionSets::from_pairs(users as usize, items(true)),
            split: vec![Split::Train; users as usize],
            num_actions: (2 * TASTES * PAIRS) as usize,
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

    fn fits_are_there(play: Play<'_>, sessions: &Sessions, best: Candidate) {
        assert!(play.jury.fits.is_fitted(best));
        let (folds, fits) = play.jury.fits.into_folds(best).unwrap();
        for (fold, fit) in (0..folds.count()).zip(fits) {
            let users = folds.without(fold);
            assert_eq!(best.source().fit(sessions, &users, Seed(0)).unwrap(), fit);
        }
    }

    #[test]
    fn neighbours_win_where_items_come_in_pairs_and_their_fits_are_there() {
        let sessions = sessions(true);
        with_a_short_winner(&sessions, |mut play, svd| {
            let best = play.neighbours(svd).unwrap();
            assert_eq!(best.beside_neighbours(), Some(svd));
            assert!(play.standings.is_worth_more(best, svd));
            assert!(play.left_out.is_empty(), "{:?}", play.left_out);
            fits_are_there(play, &sessions, best);
        });
    }

    #[test]
    fn they_stand_beside_the_shortest_decomposition_that_is_as_good() {
        let sessions = sessions(true);
        // With fewer dimensions than there are tastes the SVD adds less to neighbours; with one less, as much.
        for (length, is_as_good) in [(5, false), (19, true)] {
            with_a_short_winner(&sessions, |mut play, svd| {
                let shorter = svd.with_length(length);
                play.fit(shorter).unwrap();
                play.judge(shorter).unwrap();
                let best = play.neighbours(svd).unwrap();
                let beside = if is_as_good { shorter } else { svd };
                assert_eq!(best.beside_neighbours(), Some(beside));
                fits_are_there(play, &sessions, best);
            });
        }
    }

    #[test]
    fn after_the_last_round_only_those_who_judge_have_fits_until_neighbours_win() {
        let sessions = sessions_of(30_000, true);
        with_a_short_winner(&sessions, |mut play, svd| {
            play.jury.call_others(svd).unwrap();
            let all = play.jury.fits.all();
            assert_eq!(play.jury.fits.now_and_later(svd), [0, 1]);
            let best = play.neighbours(svd).unwrap();
            assert_eq!(best.beside_neighbours(), Some(svd));
            assert_eq!(play.jury.fits.now_and_later(best), [0, all - 1]);
            fits_are_there(play, &sessions, best);
        });
    }

    #[test]
    fn all_who_chose_the_winner_decide() {
        let sessions = sessions_of(30_000, true);
        for is_good in [false, true] {
            with_a_short_winner(&sessions, |mut play, svd| {
                let judges = play.jury.call_others(svd).unwrap();
                let (rewards, _) = play.jury.judge(svd).unwrap();
                assert_eq!(rewards.len(), judges);
                // Nothing earns more than what is given to a winner that is good.
                let rewards = rewards.into_iter().map(|reward| if is_good { 10.0 } else { reward });
                play.last = Standings(vec![Tried::new(svd, rewards.collect())]);
                let best = play.neighbours(svd).unwrap();
                assert_eq!(best == svd, is_good);
                assert_eq!(play.jury.fits.now_and_later(best), [0, 1]);
                fits_are_there(play, &sessions, best);
            });
        }
    }

    #[test]
    fn those_beside_the_winner_come_where_all_put_those_beside_a_shorter_one_below_it() {
        let sessions = sessions_of(30_000, true);
        let play = |below: Option<Candidate>| {
            with_a_short_winner(&sessions, |mut play, svd| {
                let shorter = svd.with_length(19);
                play.fit(shorter).unwrap();
                play.judge(shorter).unwrap();
                play.fit(svd).unwrap();
                let judges = play.jury.call_others(svd).unwrap();
                let (rewards, _) = play.jury.judge(svd).unwrap();
                let below = below.map(|below| Tried::new(below, vec![0.0; judges]));
                let last = std::iter::once(Tried::new(svd, rewards)).chain(below);
                play.last = Standings(last.collect());
                let best = play.neighbours(svd).unwrap();
                fits_are_there(play, &sessions, best);
                (best, svd, shorter)
            })
        };
        let (beside_shorter, svd, shorter) = play(None);
        assert_eq!(beside_shorter.beside_neighbours(), Some(shorter));
        let (beside_winner, ..) = play(Some(beside_shorter));
        assert_eq!(beside_winner.beside_neighbours(), Some(svd));
    }

    #[test]
    fn weights_that_more_users_put_below_the_winner_do_not_stand_in_the_way() {
        let sessions = sessions(true);
        with_a_short_winner(&sessions, |mut play, svd| {
            let best = play.neighbours(svd).unwrap();
            let of = |tried: &&Tried| tried.candidate.beside_neighbours().is_some();
            let first = play.standings.0.iter().find(of).unwrap();
            assert_ne!(first.candidate, best);
            let rewards: Vec<f64> = first.rewards.iter().map(|reward| 1.03 * reward).collect();
            with_a_short_winner(&sessions, |mut play, svd| {
                let others = weights(svd, false);
                let other = others.into_iter().find(|other| *other != svd).unwrap();
                play.standings.0.push(Tried::new(other, rewards.clone()));
                assert_eq!(play.neighbours(svd).unwrap(), best);
            });
        });
    }

    #[test]
    fn lists_change_nothing_of_which_are_the_best() {
        let sessions = sessions(true);
        let best = |long: usize| {
            with_a_short_winner(&sessions, |mut play, svd| {
                play.jury.long = long;
                let best = play.neighbours(svd).unwrap();
                let has_lists = play.jury.judge_near(best).unwrap().is_some();
                (best, play.standings.mean_of(best), has_lists)
            })
        };
        let (with, without) = (best(0), best(usize::MAX));
        assert!(with.2 && !without.2);
        assert_eq!((with.0, with.1), (without.0, without.1));
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
