//! ALS, longer and longer, as long as it earns more than the SVD of its length, at which it starts.

use std::time::Duration;

use super::LATE;
use super::axes::{SHORT, lengths, weights};
use super::budget::Budget;
use super::candidate::Candidate;
use super::rounds::Play;
use crate::error::Result;
use crate::experiment::search::Deadline;

/// What is around an ALS: those one step away in α or λ.
const AROUND: u32 = 4;

impl Play<'_> {
    /// ALS that starts at the SVDs like `best`, up to a length: longer and longer ones as
    /// long as it earns more than the SVD of its length, and there is time; until the deadline, those with other
    /// weights. On Amazon CDs it does from 100 dimensions to 1 024, on CiteULike to 512, on MovieLens nowhere.
    pub(super) fn als(&mut self, best: Candidate, longest: usize, until: Deadline) -> Result<()> {
        let svds = self.svds_like(best, longest);
        let mut shorter: Option<Candidate> = None;
        for (at, svd) in svds.iter().enumerate() {
            let known = shorter.unwrap_or(*svd).with_length(svd.latent_dim());
            let Some(first) = known.first_als() else { break };
            if self.standings.best_like(first).is_none() {
                if !self.is_possible(first, self.time_of_als(first, *svd)) {
                    if let Some(shorter) = shorter {
                        self.use_kept_time(shorter, svds[at - 1], until)?;
                    }
                    break;
                }
                self.keep_base(*svd)?;
                let longer = svds.get(at + 1).map(|svd| {
                    let als = first.with_length(svd.latent_dim());
                    (als, self.time_of_als(als, *svd))
                });
                let around = self.time_around(first);
                let longer =
                    longer.filter(|(als, time)| self.why_not(*als, *time + around).is_none());
                self.around_als(first, *svd, longer.map(|(_, time)| time), until)?;
            }
            if !self.standings.is_above(first, *svd) {
                break;
            }
            shorter = self.standings.best_like(first);
        }
        self.give_back_base()
    }

    /// ALS once more, at [`LATE`] dimensions and with weights of its own, where it was given up at the first length and
    /// SVDs like `best` do not earn less there. If it is above that SVD, it grows from there.
    pub(super) fn late_als(&mut self, best: Candidate) -> Result<()> {
        let [short, late] =
            [SHORT, LATE].map(|length| self.standings.best_like(best.with_length(length)));
        let Some((short, svd)) = short.zip(late) else { return Ok(()) };
        let Some((early, late)) = short.first_als().zip(svd.late_als()) else { return Ok(()) };
        if self.standings.is_above(early, short) || self.standings.falls(svd) {
            return Ok(());
        }
        if !self.is_possible(late, self.time_of_als(late, svd)) {
            return Ok(());
        }
        self.keep_base(svd)?;
        self.search(self.budget.end(), vec![late], Vec::new(), 0)?;
        if self.standings.is_above(late, svd) {
            self.als_from = LATE;
        }
        self.give_back_base()
    }

    /// The base goes, but for the fits of the winner.
    fn give_back_base(&mut self) -> Result<()> {
        let is_base = self.jury.fits.has_base(self.standings.winner()?);
        let base = self.jury.fits.take_base();
        if is_base {
            self.jury.fits.put(base);
        }
        Ok(())
    }

    /// What is around an ALS, with the time that was kept for a longer one, which takes more than there is.
    fn use_kept_time(&mut self, als: Candidate, svd: Candidate, until: Deadline) -> Result<()> {
        if self.why_not(als, self.time_of_als(als, svd)).is_some() {
            return Ok(());
        }
        self.keep_base(svd)?;
        self.around_als(als, svd, None, until)
    }

    /// True if ALS earns more than such an SVD beyond doubt, at the longest length at which it was judged: on a split
    /// of Gowalla it does at a hundred dimensions, and at 512 no more.
    pub(super) fn als_leads(&self, svd: Candidate) -> bool {
        let mut longest_first = self.svds_like(svd, usize::MAX).into_iter().rev();
        longest_first.find_map(|svd| {
            let als = self.standings.best_like(svd.first_als()?)?;
            Some(self.standings.is_far_above(als, svd))
        }) == Some(true)
    }

    /// True if ALS wins, and the time of more SVDs is better spent in the last round, if there is one.
    pub(super) fn is_over_for_als(&self, svd: Candidate) -> Result<bool> {
        Ok(self.jury.has_others() && self.standings.is_for_als(svd)?)
    }

    /// True if an SVD that is a step longer would earn what the best does, were that step worth what the last one
    /// was.
    pub(super) fn may_reach_als(&self, svd: Candidate) -> bool {
        let svds = self.svds_like(svd, usize::MAX);
        let mut means = svds.into_iter().rev().map_while(|svd| self.standings.mean_like(svd));
        let (Some(last), Some(shorter)) = (means.next(), means.next()) else { return false };
        Some(2.0 * last - shorter) >= self.standings.highest_mean()
    }

    /// The best SVDs like this one, from the length on at which ALS is judged first up to another,
    /// ascending.
    fn svds_like(&self, svd: Candidate, longest: usize) -> Vec<Candidate> {
        let first = self.als_from.min(self.longest);
        let lengths = lengths(self.longest).into_iter().filter(|at| (first..=longest).contains(at));
        lengths.filter_map(|length| self.standings.best_like(svd.with_length(length))).collect()
    }

    /// The time in which those who judge have an ALS fitted that starts at this SVD, and the other last fits are
    /// made if it wins: a longer one that takes its place has its own time.
    fn time_of_als(&self, als: Candidate, svd: Candidate) -> Duration {
        let fits = &self.jury.fits;
        let last = self.budget.of(als).max(self.budget.slowest()) * (fits.all() - fits.kept());
        self.again(svd) + self.budget.beside_svd(als) * fits.count() + self.last_fits(last)
    }

    /// The time in which an ALS and those around it are fitted and judged.
    fn time_around(&self, als: Candidate) -> Duration {
        let fits = self.budget.beside_svd(als) * self.jury.fits.count();
        (fits + self.budget.judgement(als)) * (AROUND + 1)
    }

    /// The time that must be left for the next longer SVD, if there is one that was not judged and that is
    /// possible.
    fn time_of_longer(&mut self, svd: Candidate) -> Option<Duration> {
        let next = self.longer_than(svd).find(|next| self.standings.best_like(*next).is_none())?;
        let fits = &self.jury.fits;
        let time = self.budget.of(next) * (fits.count() + fits.all() - fits.kept());
        self.is_possible(next, time).then(|| Budget::left_for(time))
    }

    /// Judges an ALS that starts at `svd`, then its weights, those next to the best so far on the axes of α and λ as
    /// long as there is time for them and for what a `longer` one takes, and last the weights of the best. The longest
    /// one alone unless it earns more than that SVD and what the best does, but for a standard error: blends are worth
    /// more of the time; and where a longer SVD may reach it, only as long as there is time for that.
    fn around_als(
        &mut self,
        first: Candidate,
        svd: Candidate,
        longer: Option<Duration>,
        until: Deadline,
    ) -> Result<()> {
        self.search(until, vec![first], Vec::new(), 0)?;
        let may_win = self.standings.is_above(first, svd) && self.standings.is_level(first);
        // A longer one may win where this one is far above the SVD of its length.
        let may_win = may_win || longer.is_some() && self.standings.is_far_above(first, svd);
        if first.latent_dim() > SHORT && !may_win {
            return Ok(());
        }
        let may_reach = longer.is_none() && self.may_reach_als(svd);
        let of_svd = if may_reach { self.time_of_longer(svd) } else { None };
        let of_als = longer.unwrap_or_else(|| self.time_of_als(first, svd));
        let kept = Budget::left_for(of_als).max(of_svd.unwrap_or_default());
        let until = until.sooner(self.budget.before(kept));
        // Weights cost no fit, and which are best depends on the length, so α and λ are compared by the best. Longer ones
        // begin where the short ones end, and two steps may be better where one is worse.
        let steps = if first.latent_dim() > SHORT { 1 } else { 2 };
        let best = |play: &Self| play.standings.best_like(first).unwrap_or(first);
        self.search(until, Vec::new(), weights(first, self.jury.ordered()), 1)?;
        self.search(until, Vec::new(), best(self).every_als(), steps)?;
        self.search(until, Vec::new(), weights(best(self), self.jury.ordered()), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::axes::soft;
    use super::super::candidate::Kind;
    use super::super::made_up;
    use super::super::standing::Tried;
    use super::*;
    use crate::prepared::{HeldOut, Judge};
    use crate::seed::Seed;

    #[test]
    fn als_grows_as_long_as_it_earns_more_than_the_svd_of_its_length() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let lengths: Vec<usize> =
            lengths(play.longest).into_iter().filter(|length| *length >= SHORT).collect();
        assert_eq!(lengths.len(), 3);
        // The SVDs are made to earn less, up to the last length but one.
        for (at, length) in lengths.iter().enumerate() {
            let svd = soft(0.25, *length);
            play.fit(svd).unwrap();
            play.judge(svd).unwrap();
            let reward = if at + 2 < lengths.len() { 0.0 } else { 9.0 };
            *play.standings.0.last_mut().unwrap() =
                Tried::new(svd, vec![reward; play.jury.count()]);
        }
        let best = soft(0.25, SHORT);
        play.als(best, usize::MAX, play.budget.end()).unwrap();
        let judged = |length: &usize| {
            play.standings.best_like(best.with_length(*length).first_als().unwrap()).is_some()
        };
        let (last, others) = lengths.split_last().unwrap();
        assert!(others.iter().all(judged) && !judged(last));
        // The SVD at which the last one starts is there for what comes next.
        assert!(play.jury.fits.is_fitted(best.with_length(*others.last().unwrap())));
    }

    #[test]
    fn weights_come_before_other_als_of_which_the_short_are_searched_in_two_steps() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        let svd = soft(0.25, SHORT);
        play.standings.0.push(Tried::new(svd, vec![0.0; play.jury.count()]));
        let first = svd.first_als().unwrap();
        play.around_als(first, svd, None, play.budget.end()).unwrap();
        let sources: Vec<_> =
            play.standings.0.iter().skip(1).map(|tried| tried.candidate.source()).collect();
        let of_first = sources.iter().take_while(|source| **source == sources[0]).count();
        assert!(of_first > 1 && of_first < sources.len(), "{of_first}");
        // Those that differ from the best in both.
        let Kind::Als { blend: best } = play.standings.best_like(first).unwrap().kind else {
            panic!("is no ALS")
        };
        let both = |tried: &Tried| {
            matches!(tried.candidate.kind, Kind::Als { blend } if blend.confidence != best.confidence
                && blend.regularization != best.regularization)
        };
        assert!(play.standings.0.iter().filter(|tried| both(tried)).count() >= 2);
    }

    #[test]
    fn time_that_a_longer_als_would_exceed_is_for_the_one_before() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let tried = |time_of_longer: Duration| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            let (svd, longer) = (soft(0.25, SHORT), soft(0.25, 2 * SHORT));
            let als = svd.first_als().unwrap();
            for (candidate, reward) in [(svd, 0.5), (longer, 0.5), (als, 0.6)] {
                play.standings.0.push(Tried::new(candidate, vec![reward; 3]));
            }
            play.budget.fitted(longer.first_als().unwrap(), time_of_longer);
            play.als(svd, usize::MAX, play.budget.end()).unwrap();
            let others = play.standings.0.iter().skip(3);
            let of_length =
                |length| others.clone().filter(move |it| it.candidate.latent_dim() == length);
            [SHORT, 2 * SHORT].map(|length| of_length(length).count())
        };
        // With the last fits eight such fits, or eight of half the time for the shorter.
        let [at_short, at_longer] = tried(Duration::from_secs(judge.within).mul_f64(0.12));
        assert!(at_short > 4 && at_longer == 0, "{at_short} {at_longer}");
        let [at_short, at_longer] = tried(Duration::ZERO);
        assert!(at_short == 0 && at_longer > 0, "{at_short} {at_longer}");
    }

    #[test]
    fn an_als_that_was_given_up_has_another_try_at_a_longer_length() {
        let (sessions, judge) = (made_up(1000, 800), Judge::default());
        let (svd, long) = (soft(0.25, SHORT), soft(0.25, LATE));
        let grows_from = |[of_svd, of_als, of_long]: [f64; 3]| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            let judged = [svd, svd.first_als().unwrap(), long].into_iter();
            for (candidate, reward) in judged.zip([of_svd, of_als, of_long]) {
                play.standings.0.push(Tried::new(candidate, vec![reward; 3]));
            }
            play.late_als(svd).unwrap();
            (play.standings.has(long.late_als().unwrap()), play.als_from)
        };
        assert_eq!(grows_from([-2.0, -3.0, -1.0]), (true, LATE));
        assert_eq!(grows_from([98.0, 97.0, 99.0]), (true, SHORT));
        // It was not given up, or longer vectors are not wanted.
        assert_eq!(grows_from([-3.0, -2.0, -1.0]), (false, SHORT));
        assert_eq!(grows_from([-1.0, -3.0, -2.0]), (false, SHORT));
    }

    #[test]
    fn als_leads_by_the_longest_that_was_judged() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let leads = |rewards: [[f64; 2]; 2]| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            // An SVD at which no ALS started says nothing.
            let [short, long] = rewards.map(Some);
            for (length, rewards) in [(SHORT, short), (2 * SHORT, long), (play.longest, None)] {
                let svd = soft(0.25, length);
                let [of_svd, of_als] = rewards.unwrap_or([9.0, 0.0]);
                play.standings.0.push(Tried::new(svd, vec![of_svd; 3]));
                if rewards.is_some() {
                    let candidate = svd.first_als().unwrap();
                    play.standings.0.push(Tried::new(candidate, vec![of_als; 3]));
                }
            }
            play.als_leads(soft(0.25, SHORT))
        };
        assert!(leads([[0.5, 0.6], [0.5, 0.6]]));
        assert!(leads([[0.5, 0.5], [0.5, 0.6]]));
        assert!(!leads([[0.5, 0.6], [0.6, 0.61]]));
    }

    #[test]
    fn an_als_that_wins_ends_the_league_only_for_a_last_round() {
        let judge = Judge::default();
        let is_over = |users| {
            let sessions = made_up(users, 500);
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            let svd = soft(0.25, SHORT);
            for (candidate, reward) in [(svd, 0.5), (svd.first_als().unwrap(), 0.6)] {
                play.standings.0.push(Tried::new(candidate, vec![reward; 3]));
            }
            (play.jury.has_others(), play.is_over_for_als(svd).unwrap())
        };
        assert_eq!(is_over(700), (false, false));
        assert_eq!(is_over(9000), (true, true));
    }

    #[test]
    fn an_svd_that_gains_too_little_with_its_length_does_not_reach_als() {
        let (sessions, judge) = (made_up(700, 500), Judge::default());
        let svd = soft(0.25, SHORT);
        let may_reach = |rewards: [f64; 3]| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            let als = svd.first_als().unwrap();
            for (candidate, reward) in [svd, svd.with_length(200), als].into_iter().zip(rewards) {
                play.standings.0.push(Tried::new(candidate, vec![reward; 3]));
            }
            play.may_reach_als(svd)
        };
        assert!(may_reach([0.5, 0.6, 0.69]));
        assert!(!may_reach([0.5, 0.6, 0.71]));
    }
}
