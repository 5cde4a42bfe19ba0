//! Training users in, the embeddings whose decision at θ = I earns the most out.
//!
//! A start value decides more of the final reward than training does, and which one is best depends
//! on the data. Candidates are the truncated SVD at several normalisations η, lengths L, spectral
//! weights, popularity powers in β (κ) and in contexts (γ) and, where the split hid the latest items,
//! powers of recency (ρ), ALS, and blends of both. Each is judged by the run's own reward on training users that it was
//! not fitted on: everything is fitted again without their fold. Validation and test users are not
//! looked at. A thousand users judge, or more where they hide little or where P is small; five folds are
//! fitted where it takes five to have so many, one where one has them, since five times the fits say no
//! more about a candidate then. Where there are fewer users than that, each judges by several halves of
//! the own items: by one, a set of a thousand users could not tell a length from one that earns a
//! twentieth less. Where the split holds out items of the training users, and not users, judges hide
//! some of theirs in the same way, and one fit on all the others judges (see [`asked`]). A thousand are
//! few: unless judges hide the latest, the weights of the winner are judged again by five times as many.
//!
//! One decomposition serves all lengths up to its own, all weights and all powers. First, a short
//! one for every η, and ALS; then longer and longer ones for the best η, as long as that does not earn less
//! and the time allows; their weights are searched from the best so far. So do the other η, of which the
//! weights are searched as far where they are level with the best. ALS grows longer too where it may win.
//! Blends are made of the winner so far, before lengths beyond 1 024, if there is time to
//! make them for every fold.
//! The shortest candidate wins whose paired difference to the best is within one standard error, and
//! within one percent: every dimension is paid for in serving.
//!
//! EASE itself is not fitted: at the same lengths its factorisation earned no more than the closed
//! form of [`Form::ridge`](crate::embedding::Form), which costs nothing once the SVD is there.

mod asked;
mod candidate;
mod jury;
mod standing;

use std::cell::Cell;
use std::time::{Duration, Instant};

use self::candidate::{
    FIRST_BLENDS, NORMALIZATIONS, SHORT, lengths, places, probes, start, weights,
};
use self::jury::{FOLDS, Jury};
use self::standing::{Standings, Tried};
use super::search::{Deadline, Judged, nearest, search};
use crate::dataset::{Sessions, Split};
use crate::device;
use crate::error::Result;
use crate::prepared::{Choice, Chosen, HeldOut, Judge};
use crate::seed::Seed;

pub use candidate::Candidate;
pub use standing::{League, Settled, Standing};

/// Share of the time left that the long decompositions may take.
const FITTING: f64 = 0.8;
/// Share of the time limit that the last round may take.
const SETTLING: f64 = 0.25;
/// The lengths in a row that earn less than the best by more than chance, after which no longer one is
/// fitted. One may be bad luck: on Amazon Video Games 1 956 judges put 512 dimensions below 200 by two
/// standard errors, and 2 900 others put them, and still more 1 024, far above.
const FALLS: usize = 2;
/// The length beyond which an SVD is fitted after blends: to the judges on two of three splits of Amazon CDs a
/// blend of 1 024 is worth 4 % more than its SVD, an SVD of twice the length 1 %, in as much time.
const BLENDED: usize = 1024;
/// Candidates that the last round begins with.
const FINALISTS: usize = 4;
/// The time of a fit grows as this power of its columns from one length to the next, between the
/// sparse products' 1 and the dense ones' 2.
const GROWTH: f64 = 1.5;
/// The fits of an SVD that take as long as one of ALS of the same length.
const OF_ALS: u32 = 5;
/// Columns that the SVD adds to L.
const ADDED: f64 = 64.0;
/// The fits of the winner: on everybody, and without each fold.
#[allow(clippy::cast_lossless, reason = "`from` is no constant")]
const ALL: u32 = 1 + FOLDS as u32;

/// Plays the league on the training users of `sessions`, of whom or of which the split `held_out` some.
///
/// # Errors
/// [`Error::Setting`](crate::Error::Setting) if there are too few users to fit anything; fails if a fit
/// fails.
pub fn league(
    sessions: &Sessions,
    held_out: HeldOut<'_>,
    judge: &Judge,
    seed: Seed,
) -> Result<(Chosen, League)> {
    let mut play = Play::new(sessions, held_out, judge, seed)?;
    play.short()?;
    let left = ALL - play.jury.kept();
    for (turn, best) in play.standings.best_of_each().into_iter().enumerate() {
        // Another normalisation takes the memory of the first one's fits, which are then made again.
        let keep = if turn == 0 { left } else { ALL };
        let mut best = play.climb(best, keep, if turn == 0 { BLENDED } else { usize::MAX })?;
        if turn == 0 {
            play.around_als(play.before(keep))?;
            play.weigh(best, keep)?;
            play.blends(best)?;
            best = play.climb(best, keep, usize::MAX)?;
        }
        if play.jury.is_fitted(best) && play.standings.is_level(best) {
            play.weigh(best, keep)?;
        }
    }

    let winner = play.standings.winner()?;
    let winner = play.settle(winner)?;
    let source = winner.source();
    let embeddings = source.fit(sessions, &sessions.contexts(Split::Train), seed)?;
    let report = League {
        table: play.standings.table(winner),
        judges: play.jury.count(),
        draws: play.jury.draws(),
        tried: play.standings.0.len(),
        settled: play.settled,
        left_out: play.left_out,
        seconds: play.deadline.elapsed().as_secs_f64(),
    };
    let folds = play.jury.into_folds(winner)?;
    let choice = Choice { source, settings: Some(winner.settings()) };
    Ok((Chosen { choice, embeddings, folds }, report))
}

/// The columns of a fit.
fn columns(candidate: Candidate) -> f64 {
    match candidate {
        Candidate::Svd { latent_dim, .. } => latent_dim as f64 + ADDED,
        Candidate::Als { latent_dim, .. } => latent_dim as f64,
        Candidate::Blend { blend, .. } => (blend.svd.latent_dim + blend.als_dim) as f64,
    }
}

struct Play<'a> {
    jury: Jury<'a>,
    standings: Standings,
    limit: Duration,
    deadline: Deadline,
    /// The longest SVD that every fold allows.
    longest: usize,
    /// The time of the SVD that was fitted last, and its columns.
    fit: (Duration, f64),
    /// The time of the slowest SVD.
    slowest: Duration,
    /// The time of the last ALS.
    als: Duration,
    /// The time of the last blend, without its SVD.
    blend: Duration,
    /// The time of the slowest judgement of one candidate.
    judging: Duration,
    settled: Option<Settled>,
    left_out: Vec<String>,
}

impl<'a> Play<'a> {
    fn new(
        sessions: &'a Sessions,
        held_out: HeldOut<'_>,
        judge: &'a Judge,
        seed: Seed,
    ) -> Result<Self> {
        let limit = Duration::from_secs(judge.within);
        let deadline = Deadline::new(Instant::now(), Some(limit));
        let jury = Jury::new(sessions, held_out, judge, seed)?;
        Ok(Self {
            standings: Standings::default(),
            limit,
            deadline,
            longest: jury.longest()?,
            fit: (Duration::ZERO, 1.0),
            slowest: Duration::ZERO,
            als: Duration::ZERO,
            blend: Duration::ZERO,
            judging: Duration::ZERO,
            settled: None,
            left_out: Vec::new(),
            jury,
        })
    }

    /// A deadline that leaves time for so many more of the slowest fits, and for the last round.
    fn before(&self, fits: u32) -> Deadline {
        let kept = self.last_fits(self.slowest * fits) + self.settling();
        self.deadline.until(Some(self.limit.saturating_sub(kept)))
    }

    /// The time of the fits that are still to make if the game ends now, where an SVD's take `of_svd`.
    fn last_fits(&self, of_svd: Duration) -> Duration {
        match self.standings.winner() {
            Ok(Candidate::Als { .. }) => of_svd.max(self.als * ALL),
            Ok(Candidate::Blend { blend, .. }) => {
                of_svd.max((self.time_of(blend.svd.latent_dim) + self.blend) * ALL)
            }
            _ => of_svd,
        }
    }

    /// The time of an SVD of this length, from that of the last one.
    fn time_of(&self, length: usize) -> Duration {
        let (last, of_last) = self.fit;
        last.mul_f64(((length as f64 + ADDED) / of_last).powf(GROWTH))
    }

    /// The time that is kept for the last round.
    fn settling(&self) -> Duration {
        if self.jury.has_others() { self.limit.mul_f64(SETTLING) } else { Duration::ZERO }
    }

    /// The time for fits.
    fn spare(&self) -> Duration {
        let left = self.deadline.left().unwrap_or_default();
        left.saturating_sub(self.settling()).mul_f64(FITTING)
    }

    /// Every normalisation, at a length that takes next to no time, and ALS.
    fn short(&mut self) -> Result<()> {
        let (short, fits) = (SHORT.min(self.longest), self.jury.fits());
        // What earned the most on two sets, in the middle of what there is.
        let recency = if self.jury.ordered() { 1.0 } else { 0.0 };
        for normalization in NORMALIZATIONS {
            if 8 * fits * self.slowest > self.spare() {
                self.left_out.push(format!("svd with η = {normalization}"));
                continue;
            }
            self.fit(start(normalization, short, recency))?;
            for probe in probes(normalization, short, recency) {
                self.judge(probe)?;
            }
        }
        let of_als = Candidate::als(short)[0];
        if !self.is_possible(of_als, OF_ALS * self.slowest * (fits + ALL)) {
            return Ok(());
        }
        self.search(self.deadline, vec![of_als], Vec::new(), 1)
    }

    /// The best weights of the winner's source, and what is next to them, by five times as many users, if there
    /// is time. The winner of that round comes out.
    fn settle(&mut self, winner: Candidate) -> Result<Candidate> {
        if matches!(winner, Candidate::Als { .. }) || !self.jury.has_others() {
            return Ok(winner);
        }
        let judges = self.jury.call_others(winner)?;
        let first = self.jury.count();
        let finals = self.judging.mul_f64((FINALISTS * judges) as f64 / first as f64);
        if self.deadline.left().is_some_and(|left| left < finals) {
            return Ok(winner);
        }
        let finalists = self.standings.best_of_source(winner, FINALISTS);
        let before = std::mem::take(&mut self.standings);
        self.search(self.deadline, finalists, weights(winner, self.jury.ordered()), 1)?;
        let winner = self.standings.winner()?;
        let last = std::mem::replace(&mut self.standings, before);
        self.settled = Some(Settled { tried: last.0.len(), judges });
        for Tried { candidate, mut rewards } in last.0 {
            // The table is about those who judged everything.
            rewards.truncate(first);
            if !self.standings.has(candidate) {
                self.standings.0.push(Tried { candidate, rewards });
            }
        }
        Ok(winner)
    }

    /// Longer and longer SVDs of the normalisation of `best` up to a length, as long as not two in a row earn
    /// less than the best by more than chance, and there is time for it and for `keep` more of its fits. What
    /// is best at any length comes out.
    fn climb(&mut self, mut best: Candidate, keep: u32, longest: usize) -> Result<Candidate> {
        let (fits, mut falls) = (self.jury.fits(), 0);
        for next in self.longer_than(best).filter(|next| next.latent_dim() <= longest) {
            // Unless an earlier climb was here.
            if self.standings.best_like(next).is_none() {
                let fit = self.time_of(next.latent_dim());
                let kept = self.last_fits(fit.max(self.slowest) * keep);
                if !self.is_possible(next, fit * fits + kept) {
                    break;
                }
                self.fit(next)?;
                best = self.around(next, self.before(keep))?;
            }
            falls = if self.standings.falls(next) { falls + 1 } else { 0 };
            if falls == FALLS {
                break;
            }
        }
        // Without time for a longer one, another source may be fitted.
        if self.jury.is_fitted(best) {
            self.shorter(best, self.before(keep))?;
        }
        Ok(self.standings.best_at_any_length(best).unwrap_or(best))
    }

    /// Weights that are two steps from those of `best`, if there is time for them and `keep` fits.
    fn weigh(&mut self, best: Candidate, keep: u32) -> Result<()> {
        self.search(self.before(keep), Vec::new(), weights(best, self.jury.ordered()), 2)
    }

    /// The candidate at the longer lengths, ascending.
    fn longer_than(&self, candidate: Candidate) -> impl Iterator<Item = Candidate> + use<> {
        let length = candidate.latent_dim();
        let longer = lengths(self.longest).into_iter().filter(move |longer| *longer > length);
        longer.map(move |length| candidate.with_length(length))
    }

    /// True if there is time and memory for the fits of a candidate; otherwise it is left out.
    fn is_possible(&mut self, candidate: Candidate, time: Duration) -> bool {
        let memory = device::available_memory().unwrap_or(f64::INFINITY) / 2.0;
        let vectors = 4.0 * self.jury.num_actions() as f64 * columns(candidate);
        let reason = if time > self.spare() {
            "no time"
        } else if vectors * f64::from(ALL + 1) > memory {
            "no memory"
        } else {
            return true;
        };
        let named = candidate.named(reason);
        if !self.left_out.contains(&named) {
            self.left_out.push(named);
        }
        false
    }

    /// What is around ALS, if it may win, then longer and longer ones as long as each earns more.
    fn around_als(&mut self, until: Deadline) -> Result<()> {
        let of_als = Candidate::als(SHORT.min(self.longest));
        if self.standings.centre(of_als[0]).is_none() {
            return Ok(());
        }
        let of_svd = self.jury.take_fits();
        self.search(until, Vec::new(), of_als.clone(), 1)?;
        if let Some(mut best) = self.standings.centre(of_als[0]) {
            for next in self.longer_than(best) {
                let growth = (columns(next) / columns(best)).powi(2);
                if !self.is_possible(next, self.als.mul_f64(growth) * (self.jury.fits() + ALL)) {
                    break;
                }
                self.search(until, vec![next], Vec::new(), 0)?;
                let [of_next, of_best] =
                    [next, best].map(|like| self.standings.mean_of_best_like(like));
                if of_next <= of_best {
                    break;
                }
                best = next;
            }
        }
        self.jury.put_fits(of_svd);
        Ok(())
    }

    /// Blends with ALS of the winner so far, or where that is ALS of the SVD that is `best`; or of the longest
    /// shorter one that may win and that there is time for. Then their weights and shorter blends.
    fn blends(&mut self, best: Candidate) -> Result<()> {
        let best = match self.standings.winner()? {
            Candidate::Als { .. } => self.standings.best_at_any_length(best).unwrap_or(best),
            winner => winner,
        };
        let fits = self.jury.fits();
        let longest = best.latent_dim();
        let shorter = lengths(self.longest).into_iter().rev().filter(|length| *length < longest);
        for length in std::iter::once(longest).chain(shorter) {
            let Some(base) = self.standings.centre(best.with_length(length)) else { continue };
            let mut grid = base.blends();
            let Some(first) = grid.first().copied() else { continue };
            let svd = self.time_of(length);
            let again = if self.jury.is_fitted(base) { 0 } else { fits };
            // As long as none was made, one is taken to last as long as its SVD. If an SVD wins after all, it
            // is fitted again.
            let last = self.last_fits((2 * svd).max(self.slowest) * ALL);
            if !self.is_possible(first, svd * (again + FIRST_BLENDS * fits) + last) {
                continue;
            }
            self.jury.keep_base(base)?;
            let few = grid.drain(..FIRST_BLENDS as usize).collect();
            self.search(self.deadline, few, Vec::new(), 0)?;
            let last = self.last_fits((svd + self.blend).max(self.slowest) * ALL);
            let kept = last + self.settling();
            let until = self.deadline.until(Some(self.limit.saturating_sub(kept)));
            // Where these earn less by more than chance, others hardly earn more.
            let has_time = until.left().is_none_or(|left| !left.is_zero());
            if has_time && self.standings.is_level(first) {
                self.search(until, Vec::new(), grid, 1)?;
                let found = self.standings.best_like(first).unwrap_or(first);
                self.search(until, Vec::new(), weights(found, self.jury.ordered()), 1)?;
                self.shorter(self.standings.best_like(first).unwrap_or(found), until)?;
            }
            self.jury.drop_base();
            break;
        }
        Ok(())
    }

    /// Fits the source of a candidate for those who judge.
    fn fit(&mut self, candidate: Candidate) -> Result<()> {
        let began = Instant::now();
        self.jury.fit(candidate)?;
        let time = began.elapsed() / self.jury.fits();
        match candidate {
            Candidate::Als { .. } => self.als = time,
            Candidate::Blend { .. } => self.blend = time,
            Candidate::Svd { .. } => {
                (self.fit, self.slowest) = ((time, columns(candidate)), self.slowest.max(time));
            }
        }
        Ok(())
    }

    /// The mean reward of a candidate whose source is fitted, with at least its length.
    fn judge(&mut self, candidate: Candidate) -> Result<f64> {
        let began = Instant::now();
        let rewards = self.jury.judge(candidate)?;
        self.judging = self.judging.max(began.elapsed());
        let tried = Tried { candidate, rewards };
        let mean = tried.mean();
        tracing::debug!("{mean:.4} {candidate:?}");
        self.standings.0.push(tried);
        Ok(mean)
    }

    /// Judges a candidate whose source is fitted and the weights near it. The best at its length comes
    /// out.
    fn around(&mut self, first: Candidate, until: Deadline) -> Result<Candidate> {
        // Which weights are best depends on the length, so the search begins at each kind of them.
        let mut given = vec![first];
        let others = probes(first.normalization(), first.latent_dim(), first.recency());
        given.extend(others.into_iter().filter(|other| *other != first));
        self.search(until, given, weights(first, self.jury.ordered()), 1)?;
        Ok(self.standings.best_like(first).unwrap_or(first))
    }

    /// Judges the weights of `best`, and what is near them, at all shorter lengths.
    fn shorter(&mut self, best: Candidate, until: Deadline) -> Result<()> {
        let lengths = lengths(self.longest).into_iter().rev();
        for length in lengths.filter(|length| *length < best.latent_dim()) {
            if until.left().is_some_and(|left| left.is_zero()) {
                break;
            }
            let shorter = best.with_length(length);
            self.search(until, vec![shorter], weights(shorter, self.jury.ordered()), 1)?;
        }
        Ok(())
    }

    /// Judges what is `given`, then what is at most so many `steps` from the best of its kind and length
    /// in `grid`, until the deadline, or until that best is beyond doubt not the winner.
    fn search(
        &mut self,
        deadline: Deadline,
        mut given: Vec<Candidate>,
        mut grid: Vec<Candidate>,
        steps: usize,
    ) -> Result<()> {
        given.retain(|other| !self.standings.has(*other));
        grid.retain(|other| !given.contains(other) && !self.standings.has(*other));
        let centre = Cell::new(grid.first().and_then(|like| self.standings.centre(*like)));
        let mut given = given.into_iter();
        let next = |_: Option<&Candidate>| {
            given.next().or_else(|| nearest(&mut grid, places, &centre.get()?, steps))
        };
        search(deadline, next, |candidate| {
            if !self.jury.is_fitted(*candidate) {
                self.fit(*candidate)?;
            }
            let reward = self.judge(*candidate)?;
            centre.set(self.standings.centre(*candidate));
            Ok(Judged::Reward(reward))
        })?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::dataset::{SplitSettings, SyntheticSettings, assemble, synthetic};

    #[test]
    fn a_candidate_is_judged_by_its_own_vectors_whatever_was_fitted_before() {
        let settings = SyntheticSettings { users: 200, actions: 300, ..Default::default() };
        let interactions = synthetic(&settings).unwrap();
        let sessions = assemble(interactions, &SplitSettings::default()).unwrap().sessions;
        let (judge, length) = (Judge::default(), 10);
        let blend = start(0.5, length, 0.0).blends()[0];
        let candidates =
            [start(0.5, length, 0.0), Candidate::als(length)[0], blend, start(0.25, length, 0.0)];
        let rewards = |candidates: &[Candidate]| {
            let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            play.search(play.deadline, candidates.to_vec(), Vec::new(), 0).unwrap();
            play.standings.0.into_iter().map(|tried| tried.rewards).collect::<Vec<_>>()
        };
        let alone: Vec<_> = candidates.iter().flat_map(|alone| rewards(&[*alone])).collect();
        assert_eq!(rewards(&candidates), alone);
        assert_ne!(alone[0], alone[3]);
        assert_ne!(alone[0], alone[2]);

        // A blend of an SVD that is there is the one that is fitted as a whole.
        let mut play = Play::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
        play.jury.keep_base(candidates[0]).unwrap();
        play.fit(blend).unwrap();
        assert_eq!(play.jury.judge(blend).unwrap(), alone[2]);
    }

    #[test]
    fn few_judges_judge_by_several_halves_of_their_items() {
        let halves_of = |users, actions| {
            let settings = SyntheticSettings { users, actions, ..Default::default() };
            let interactions = synthetic(&settings).unwrap();
            let sessions = assemble(interactions, &SplitSettings::default()).unwrap().sessions;
            let judge = Judge::default();
            let jury = Jury::new(&sessions, HeldOut::Users, &judge, Seed(0)).unwrap();
            (jury.draws(), jury.count())
        };
        assert_eq!(halves_of(200, 300), (4, 160));
        assert_eq!(halves_of(3000, 300).0, 3, "5 000 judgements");
    }

    #[test]
    fn the_longest_that_the_data_allow_is_among_the_lengths() {
        assert_eq!(lengths(30), [30]);
        assert_eq!(lengths(240), [50, 100, 200]);
        assert_eq!(lengths(389), [50, 100, 200, 389]);
        assert_eq!(lengths(1011), [50, 100, 200, 512, 1011]);
        assert_eq!(lengths(5000), [50, 100, 200, 512, 1024, 2048]);
    }
}
