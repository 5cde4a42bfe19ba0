//! Training users in, the embeddings whose decision at θ = I earns the most out.
//!
//! A start value decides more of the final reward than training does, and which one is best depends
//! on the data. Candidates are the truncated SVD at several normalisations η, lengths L, spectral
//! weights, and popularity powers in β (κ) and in contexts (γ), and ALS. Each is judged by the run's
//! own reward on training users that it was not fitted on: everything is fitted again without their
//! fold. Validation and test users are not looked at. A thousand users judge; five folds are fitted
//! where it takes five to have so many, one where one has them, since five times the fits say no more
//! about a candidate then.
//!
//! One decomposition serves all lengths up to its own, all weights and all powers. First, a short
//! one for every η, and ALS; then a long one, as long as the time allows, for the best η; its settings
//! are searched from the best so far. The shortest candidate wins whose paired difference to the best is
//! within one standard error, and within one percent: every dimension is paid for in serving.
//!
//! EASE itself is not fitted: at the same lengths its factorisation earned no more than the closed
//! form of [`Form::ridge`](crate::embedding::Form), which costs nothing once the SVD is there.

mod candidate;
mod jury;
mod standing;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::candidate::{LENGTHS, NORMALIZATIONS, SHORT, places, probes, start, weights};
use self::jury::{FOLDS, Jury};
use self::standing::{Standings, Tried};
use super::search::{Deadline, Judged, nearest, search};
use crate::dataset::{Sessions, Split};
use crate::device;
use crate::error::Result;
use crate::prepared::{Choice, Chosen, Judge};
use crate::reward::SlateReward;
use crate::seed::Seed;

pub use candidate::Candidate;
pub use standing::{League, Standing};

/// Share of the time left that the long decompositions may take.
const FITTING: f64 = 0.8;
/// The time of a fit grows as this power of its columns, between the sparse products' 1 and the dense
/// ones' 2, on the safe side of what was measured on logs of 10⁵ to 10⁶ interactions.
const GROWTH: f64 = 1.4;
/// Columns that the SVD adds to L.
const ADDED: f64 = 64.0;

/// Plays the league on the training users of `sessions`.
///
/// # Errors
/// [`Error::Setting`](crate::Error::Setting) if there are too few users to fit anything; fails if a fit
/// fails.
pub fn league(sessions: &Sessions, judge: &Judge, seed: Seed) -> Result<(Chosen, League)> {
    let started = Instant::now();
    let limit = Duration::from_secs(judge.within);
    let deadline = Deadline::new(started, Some(limit));
    let mut play = Play::new(sessions, judge, seed)?;
    let longest = play.jury.longest()?;
    let short = SHORT.min(longest);
    let mut left_out = Vec::new();

    // Every normalisation, at a length that takes next to no time.
    let mut fitting = Duration::ZERO;
    for normalization in NORMALIZATIONS {
        let is_first = play.standings.0.is_empty();
        if !is_first && deadline.left().is_some_and(|left| left < 8 * fitting) {
            left_out.push(format!("svd with η = {normalization}"));
            continue;
        }
        let began = Instant::now();
        play.jury.fit(start(normalization, short))?;
        fitting = fitting.max(began.elapsed());
        for probe in probes(normalization, short) {
            play.judge(probe)?;
        }
    }
    // ALS, whose fits were seen to take five times as long.
    let of_als = Candidate::als(short);
    let can_try_als = deadline.left().is_some_and(|left| 20 * fitting < left);
    if can_try_als {
        play.search(deadline, vec![of_als[0]], Vec::new(), 1)?;
    } else {
        left_out.push(format!("als with L = {short}"));
    }

    // Long ones, the best normalisation first.
    let fits = play.jury.fits();
    let time = |length: usize, count: u32| {
        let growth = ((length as f64 + ADDED) / (short as f64 + ADDED)).powf(GROWTH);
        (fitting / fits).mul_f64(growth) * count
    };
    // On everybody and without each fold.
    let all = 1 + u32::from(FOLDS);
    let mut lengths: Vec<usize> = LENGTHS.into_iter().rev().filter(|it| *it <= longest).collect();
    let memory = device::available_memory().unwrap_or(f64::INFINITY) / 2.0;
    lengths.retain(|&length| {
        let numbers = sessions.num_actions as f64 * (length as f64 + ADDED);
        let has_room = length <= short || 4.0 * numbers * f64::from(all + 1) <= memory;
        if !has_room {
            left_out.push(format!("svd with L = {length}, for which the memory is too small"));
        }
        has_room
    });
    let spare = || deadline.left().unwrap_or_default().mul_f64(FITTING);
    let long = lengths.iter().find(|length| time(**length, all) <= spare());
    let long = long.copied().unwrap_or(short);
    let beyond = lengths.iter().filter(|length| **length > long);
    left_out.extend(beyond.map(|length| format!("svd with L = {length}")));
    let before = |count| deadline.until(Some(limit.saturating_sub(time(long, count))));
    let of_each = play.standings.best_of_each();
    let first = of_each[0].with_length(long);
    play.long(first, &lengths, before(all - fits))?;

    // With the time left: what is around ALS, if it may win; what is two steps away; and the other
    // normalisations. These take the memory of the first one's fits, which are then made again.
    if can_try_als && play.standings.centre(of_als[0]).is_some() {
        let of_svd = play.jury.take_fits();
        play.search(before(all - fits), Vec::new(), of_als, 1)?;
        play.jury.put_fits(of_svd);
    }
    play.search(before(all - fits), Vec::new(), weights(first), 2)?;
    for other in &of_each[1..] {
        if spare() < time(long, all + fits) {
            left_out.push(format!("svd with η = {} and L = {long}", other.normalization()));
        } else {
            play.long(other.with_length(long), &lengths, before(all))?;
        }
    }

    let winner = play.standings.winner()?;
    let source = winner.source();
    let embeddings = source.fit(sessions, &sessions.contexts(Split::Train), seed)?;
    let report = League {
        table: play.standings.table(winner),
        judges: play.jury.count(),
        tried: play.standings.0.len(),
        left_out,
        seconds: started.elapsed().as_secs_f64(),
    };
    let folds = play.jury.into_folds(winner)?;
    let choice = Choice { source, settings: Some(winner.settings()) };
    Ok((Chosen { choice, embeddings, folds }, report))
}

struct Play<'a> {
    jury: Jury<'a>,
    reward: Arc<dyn SlateReward>,
    standings: Standings,
}

impl<'a> Play<'a> {
    fn new(sessions: &'a Sessions, judge: &'a Judge, seed: Seed) -> Result<Self> {
        let jury = Jury::new(sessions, judge, seed)?;
        let reward = jury.reward()?;
        Ok(Self { jury, reward, standings: Standings::default() })
    }

    /// The mean reward of a candidate whose source is fitted, with at least its length.
    fn judge(&mut self, candidate: Candidate) -> Result<f64> {
        let rewards = self.jury.judge(candidate, self.reward.as_ref())?;
        let tried = Tried { candidate, rewards };
        let mean = tried.mean();
        tracing::debug!("{mean:.4} {candidate:?}");
        self.standings.0.push(tried);
        Ok(mean)
    }

    /// Fits the normalisation and length of `first`, and judges it and what is near it at its length
    /// and at all shorter ones.
    fn long(&mut self, first: Candidate, lengths: &[usize], until: Deadline) -> Result<()> {
        if !self.jury.has_fitted(first) {
            self.jury.fit(first)?;
        }
        // Which weights are best depends on the length, so the search begins at each kind of them.
        let mut given = vec![first];
        let others = probes(first.normalization(), first.latent_dim());
        given.extend(others.into_iter().filter(|other| *other != first));
        self.search(until, given, weights(first), 1)?;
        let best = self.standings.best_like(first).unwrap_or(first);
        for length in lengths.iter().filter(|length| **length < first.latent_dim()) {
            if until.left().is_some_and(|left| left.is_zero()) {
                break;
            }
            let shorter = best.with_length(*length);
            self.search(until, vec![shorter], weights(shorter), 1)?;
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
            if matches!(candidate, Candidate::Als { .. }) {
                self.jury.fit(*candidate)?;
            }
            let reward = self.judge(*candidate)?;
            centre.set(self.standings.centre(*candidate));
            Ok(Judged::Reward(reward))
        })?;
        Ok(())
    }
}
