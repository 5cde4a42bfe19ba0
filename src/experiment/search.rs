//! The one search of this crate: candidates go in, each is judged by its reward on users who judge,
//! and the candidate with the highest reward comes out.
//!
//! Four searches use it: the league of embeddings, successive halving over a run's settings (one
//! search per rung), the hyperparameters of a baseline, and the learning rates of a grid's row. They
//! share all but the choice of the next candidate, so the caller makes that choice, and may look at the best candidate
//! so far. Where the first candidate is the settings as given, the result is never worse than those on the
//! users who judge. A model of the reward would save trials only where there are
//! hundreds of them; these searches have time for a few dozen.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;

/// A limit in wall-clock time, in which everything counts: loading, fitting, training, judging.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    started: Instant,
    before: Duration,
    limit: Option<Duration>,
}

impl Deadline {
    /// A deadline `limit` after `started`, or none.
    #[must_use]
    pub fn new(started: Instant, limit: Option<Duration>) -> Self {
        Self { started, before: Duration::ZERO, limit }
    }

    /// This deadline, less what an interrupted process spent `before` the start of this one.
    #[must_use]
    pub fn after(self, before: Duration) -> Self {
        Self { before, ..self }
    }

    /// This clock with the deadline at another time of it, or none.
    #[must_use]
    pub fn until(self, limit: Option<Duration>) -> Self {
        Self { limit, ..self }
    }

    /// The time spent so far, earlier processes included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// This clock with the deadline between now and this one.
    #[must_use]
    pub fn halfway(self) -> Self {
        self.until(self.left().map(|left| self.elapsed() + left / 2))
    }

    /// The sooner one of two of the same clock.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        self.until(self.limit.into_iter().chain(other.limit).min())
    }

    /// The time left; none without a limit.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        Some(self.limit?.saturating_sub(self.elapsed()))
    }
}

/// A judge's answer about a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    /// Its mean reward on the users who judge.
    Reward(f64),
    /// It cannot be fitted or trained.
    Impossible,
    /// The judge was asked to stop before it knew.
    Stopped,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<C> {
    /// Every candidate with its reward, in the order of trial; no reward for an impossible one.
    pub tried: Vec<(C, Option<f64>)>,
    /// Place of the best candidate in `tried`; none if no candidate has a finite reward.
    best: Option<usize>,
    /// True if the judge was asked to stop.
    pub stopped: bool,
}

impl<C> Found<C> {
    /// The candidate with the highest reward, the first of several.
    #[must_use]
    pub fn best(&self) -> Option<&C> {
        Some(&self.tried[self.best?].0)
    }
}

/// Judges the candidates that `next` gives, one after the other, until there is none or the time is
/// up. `next` receives the best candidate so far. The first candidate is always judged; another one
/// only if the mean time of those before it is left, so that the search ends near its deadline.
///
/// # Errors
/// Fails if the judge fails.
pub fn search<C>(
    deadline: Deadline,
    mut next: impl FnMut(Option<&C>) -> Option<C>,
    mut judge: impl FnMut(&C) -> Result<Judged>,
) -> Result<Found<C>> {
    let began = Instant::now();
    let mut found = Found { tried: Vec::new(), best: None, stopped: false };
    let mut highest = f64::NEG_INFINITY;
    loop {
        interrupt::check()?;
        let count = u32::try_from(found.tried.len()).unwrap_or(u32::MAX);
        let late = |left: Duration| left.is_zero() || left < began.elapsed() / count.max(1);
        if count > 0 && deadline.left().is_some_and(late) {
            return Ok(found);
        }
        let Some(candidate) = next(found.best()) else { return Ok(found) };
        let reward = match judge(&candidate)? {
            Judged::Reward(reward) => Some(reward),
            Judged::Impossible => None,
            Judged::Stopped => {
                found.stopped = true;
                return Ok(found);
            }
        };
        if let Some(reward) = reward.filter(|reward| reward.is_finite() && *reward > highest) {
            (highest, found.best) = (reward, Some(found.tried.len()));
        }
        found.tried.push((candidate, reward));
    }
}

/// Takes out of `left` the candidate nearest to `centre`, in steps along the axes on which `places`
/// puts them, the first of several; none that is more than `within` steps away.
pub(super) fn nearest<C>(
    left: &mut Vec<C>,
    places: impl Fn(&C) -> Vec<usize>,
    centre: &C,
    within: usize,
) -> Option<C> {
    let centre = places(centre);
    let distance = |candidate: &C| -> usize {
        places(candidate).iter().zip(&centre).map(|(a, b)| a.abs_diff(*b)).sum()
    };
    let near = (0..left.len()).map(|at| (distance(&left[at]), at)).min();
    near.filter(|(steps, _)| *steps <= within).map(|(_, at)| left.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(deadline: Deadline, rewards: &[f64], each: Duration) -> Found<usize> {
        let mut places = 0..rewards.len();
        search(
            deadline,
            |_| places.next(),
            |&at| {
                std::thread::sleep(each);
                Ok(if rewards[at] < 0.0 { Judged::Impossible } else { Judged::Reward(rewards[at]) })
            },
        )
        .unwrap()
    }

    #[test]
    fn the_first_of_the_best_is_kept() {
        let without = Deadline::new(Instant::now(), None);
        let found = run(without, &[0.3, f64::NAN, 0.7, -1.0, 0.7], Duration::ZERO);
        assert_eq!((found.best(), found.tried.len()), (Some(&2), 5));
        assert_eq!(found.tried[3], (3, None));
        assert_eq!(run(without, &[-1.0], Duration::ZERO).best(), None);
    }

    #[test]
    fn a_search_ends_near_its_deadline_and_counts_what_was_spent_before() {
        let each = Duration::from_millis(40);
        let limit = Deadline::new(Instant::now(), Some(Duration::from_millis(200)));
        assert!((2..=5).contains(&run(limit, &[0.1; 50], each).tried.len()));
        assert!(limit.elapsed() < Duration::from_millis(400));
        let spent = Deadline::new(Instant::now(), limit.limit).after(Duration::from_secs(1));
        assert_eq!(spent.left(), Some(Duration::ZERO));
        assert_eq!(run(spent, &[0.1; 50], each).tried.len(), 1, "the first is always judged");
    }
}
