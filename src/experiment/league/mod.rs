//! Training users in, the embeddings whose decision at θ = I earns the most out.
//!
//! A start value decides more of the final reward than training does, and which one is best depends
//! on the data. Candidates are the SVD at several normalisations η, lengths L, spectral weights, popularity
//! powers in β (κ) and in contexts (γ) and, where the split hid the latest items, powers of recency (ρ), ALS, and
//! blends of both. Each is judged by the run's own reward on training users that it was not fitted on: everything is fitted again without their fold. Validation and test users are not
//! looked at, but for the share of their items that they hide. A thousand users judge, or more where they hide little or where P is small; five folds are
//! fitted where it takes five to have so many, one where one has them, since five times the fits say no
//! more about a candidate then. Of a large log only one is ever left out, so that all the time is for longer vectors
//! ([`Folds`](crate::dataset::Folds)). Where there are fewer users than that, each judges by several halves of
//! the own items: by one, a set of a thousand users could not tell a length from one that earns a
//! twentieth less. Where the split holds out items of the training users, and not users, judges hide
//! some of theirs in the same way, and one fit on all the others judges (see [`asked`]). A thousand are
//! few: unless judges hide the latest, the weights of the winner, and its length where a longer one earned
//! more, are judged again by up to five times as many.
//!
//! The SVDs end softly ([`SvdOptions::soft`](crate::embedding::SvdOptions::soft)): they earn up to a tenth more than
//! abrupt ones of their length on sparse logs, and on dense ones as much, or a percent less where they are short.
//! To judge both kinds costs more than it brings: on a split of Amazon CDs an abrupt one of a hundred dimensions
//! led by chance, and took the time of those that earn more. One decomposition serves all weights and all powers; a
//! blend also serves shorter ones. First, a short SVD for every η, and ALS that starts there; then longer and
//! longer ones for the best η, as long as that does not earn less and the time allows; their weights are searched
//! from the best so far. So do the other η, unless the best of their length beats them beyond doubt; their weights
//! are searched as far where they are level with the best.
//! ALS grows longer too, as long as it earns more than the SVD of its length: against the longest of them a short
//! one says nothing of a long one. The longer it is, the more its α and λ matter, so they are searched at every
//! length at which it may win or is far above the SVD: on Gowalla it is a little above SVDs that are short, and far
//! below one of 2 048, which wants the time. Where ALS is far above it at a hundred dimensions, an SVD beyond 1 024
//! comes after ALS of that length, if ALS does not win by then or the SVD may reach it: on CiteULike one of 2 048
//! earns more. Where ALS earns less than the SVD at a hundred dimensions, it has another try at 512, with weights that do
//! not come from the SVD, unless SVDs of that length earn less than shorter ones: on sessions of Diginetica it is a
//! seventh below the SVD at a hundred, and a tenth above it at 512 and more.
//! Where ALS wins, the time that is left goes to the last round. Where all who may judge do so already,
//! there is none, and it goes to SVDs, their weights and blends after all: on Amazon Grocery by time, leagues that ended
//! there took 20 of 180 seconds, and chose vectors that earned 2 to 7 % less for validation users.
//! Last, unless ALS leads, blends are made of the winner so far, or of a shorter SVD, if there is time to make them
//! for every fold; more of them where the first earn as much as it does.
//! Where one judgement takes long, weights near the best are judged among its best actions (see [`shortlist`]).
//! In the end neighbours are put beside the winner: on logs of many users with a few items each both together earn up to
//! a tenth more ([`neighbours`](crate::embedding::neighbours)). Then they are put beside shorter decompositions: of 82 000
//! books ALS of 512 dimensions earns as much with them as an SVD of 2 048. All who judged in the last round decide whether
//! they win: on Gowalla and Amazon CDs a fifth of them saw gains of two percent that were half as much, or none. Where
//! they put those beside a shorter one below the winner, they are asked about those beside the winner itself.
//! The shortest candidate wins whose paired difference to the best is within one standard error, and
//! within one percent: every dimension is paid for in serving.
//!
//! EASE itself is not fitted: at the same lengths its factorisation earned no more than the closed
//! form of [`Form::ridge`](crate::embedding::Form), which costs nothing once the SVD is there.

mod als;
mod asked;
mod axes;
mod blends;
mod budget;
mod called;
mod candidate;
mod fits;
mod jury;
mod last_round;
mod neighbours;
mod report;
mod rounds;
mod shortlist;
mod standing;

use self::rounds::Play;
use crate::dataset::{Sessions, Split};
use crate::error::{Error, Result};
use crate::prepared::{Choice, Chosen, HeldOut, Judge};
use crate::seed::Seed;

pub use candidate::{Candidate, Kind};
pub use report::{Lack, League, LeftOut, Settled, Standing};

/// The length at which ALS has another try where it was given up.
const LATE: usize = 512;
/// Where ALS leads, the length of the longest SVD that is fitted before it.
const BEFORE_ALS: usize = 1024;

/// The error of a league without judges.
fn nobody() -> Error {
    let problem = "needs training users with observed and hidden items to choose by; name the \
                   embeddings instead, as in --embeddings svd --latent-dim 10";
    Error::setting("embeddings", problem)
}

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
    let mut best_of_each = play.standings.best_of_each().into_iter();
    let is_over = best_of_each.next().map_or(Ok(true), |best| with_leading(&mut play, best))?;
    if !is_over {
        best_of_each.try_for_each(|best| with_another(&mut play, best))?;
    }

    let winner = play.standings.winner()?;
    let winner = play.settle(winner)?;
    let winner = play.neighbours(winner)?;
    let source = winner.source();
    let embeddings = source.fit(sessions, &sessions.contexts(Split::Train), seed)?;
    let (table, judges, draws) =
        (play.standings.table(winner), play.jury.count(), play.jury.draws());
    let strangers = play.jury.fits.by_folds();
    let folds = Some(play.jury.fits.into_folds(winner)?);
    let report = League {
        table,
        judges,
        strangers,
        draws,
        tried: play.standings.0.len(),
        settled: play.last.settled(winner),
        left_out: play.left_out,
        seconds: play.budget.elapsed().as_secs_f64(),
    };
    let choice = Choice { source, settings: Some(winner.settings()) };
    Ok((Chosen { choice, embeddings, folds }, report))
}

/// Plays on with the η that leads: longer SVDs, ALS and blends. True if ALS wins and no other η is of use.
fn with_leading(play: &mut Play<'_>, best: Candidate) -> Result<bool> {
    let keep = play.jury.fits.all() - play.jury.fits.kept();
    let mut best = play.climb(best, keep, LATE)?;
    play.late_als(best)?;
    let leads = play.als_leads(best);
    best = play.climb(best, keep, if leads { BEFORE_ALS } else { usize::MAX })?;
    if leads {
        play.als(best, BEFORE_ALS, play.before(keep))?;
        if !play.is_over_for_als(best)? || play.may_reach_als(best) {
            best = play.climb(best, keep, usize::MAX)?;
        }
    }
    // Where ALS wins, the weights of SVDs have hardly been searched, and without a last round the time is theirs.
    let is_open = !play.jury.has_others() && play.standings.is_for_als(best)?;
    if play.standings.is_level(best) || is_open {
        play.weigh(best, keep)?;
    }
    play.als(best, usize::MAX, play.before(keep))?;
    let is_over = play.is_over_for_als(best)?;
    if !is_over {
        play.blends()?;
    }
    Ok(is_over)
}

/// Plays on with another η: longer SVDs. They take the memory of the first one's fits, which are then made again.
fn with_another(play: &mut Play<'_>, best: Candidate) -> Result<()> {
    let keep = play.jury.fits.all();
    let best = play.climb(best, keep, usize::MAX)?;
    if play.standings.is_level(best) {
        play.weigh(best, keep)?;
    }
    Ok(())
}

/// A made-up log, split by its users.
#[cfg(test)]
fn made_up(users: u32, actions: u32) -> Sessions {
    use crate::dataset::{SplitSettings, SyntheticSettings, assemble, synthetic};

    let settings = SyntheticSettings { users, actions, ..Default::default() };
    assemble(synthetic(&settings).unwrap(), &SplitSettings::default()).unwrap().sessions
}
