//! Training users in, those who judge and what they are asked out.

use std::sync::Arc;

use super::asked::{hidden_of, hide, hide_others, who_may_judge};
use super::fits::{PARTS, Without};
use crate::dataset::{Folds, Sessions, Times};
use crate::prepared::HeldOut;
use crate::seed::{Purpose, Seed};

/// The users who judge, unless they hide so little that it takes more of them, or more cost little.
const JUDGES: usize = 1000;
/// The inner products for which a candidate is judged by more users, or more often by the same.
const PRODUCTS: usize = 20_000_000;
/// The most users who judge for that reason.
const MOST_JUDGES: usize = 5000;
/// The inner products of one judgement beyond which no more than [`JUDGES`] judge, whatever they hide: with a
/// hundred dimensions, six seconds of two cores.
const MOST_PRODUCTS: usize = 4_000_000_000;
/// The most halves of a judge. Two leave three quarters of the standard error of a difference, four five
/// eighths, more hardly less: users differ.
const DRAWS: u64 = 4;
/// The hidden items that it takes to tell candidates apart by some percent, where those who hide them are
/// missed in the fit.
const HIDDEN: usize = 10_000;
/// The same, where they are not in the fit anyway.
const HIDDEN_BY_STRANGERS: usize = 20_000;

/// One of so many users who may judge what others are fitted with hides too little for the fit to miss it.
const OF_MANY: usize = 20;

/// Those who judge.
pub(super) struct Called {
    /// The judging users of each part, ascending.
    pub(super) parts: Vec<Vec<u32>>,
    /// The parts that judge until the last round, the first ones.
    pub(super) asking: u16,
    /// The halves of their items; several where they are few.
    pub(super) asked: Vec<Arc<Sessions>>,
    /// What orders the items, if anything does.
    pub(super) times: Option<Times>,
    /// What they judge is fitted without.
    pub(super) without: Without,
}

/// How many of the users who may judge do, if together they hide so many items and it takes so many.
fn wanted(users: usize, items: usize, hidden: usize, num_actions: usize) -> usize {
    let affordable = MOST_PRODUCTS / num_actions.max(1);
    JUDGES.max((hidden * users / items.max(1)).min(affordable))
}

/// How many may judge because it costs little.
fn affordable(num_actions: usize) -> usize {
    (PRODUCTS / num_actions.max(1)).min(MOST_JUDGES)
}

/// Users who are left out of a fit, with their fold, judge it: until the last round those of the first folds. Of one
/// fold that is enough, others judge then.
pub(super) fn strangers(sessions: &Sessions, folds: &Folds, seed: Seed) -> Called {
    let judges = |fold: u16| {
        let mut users = folds.within(fold);
        users.retain(|user| !sessions.hidden.of(*user).is_empty());
        seed.stream(Purpose::Judges, 0, fold.into()).shuffle(&mut users);
        users
    };
    let mut parts: Vec<Vec<u32>> = (0..folds.count()).map(judges).collect();
    let hidden = |user: &u32| sessions.hidden.of(*user).len();
    let users: usize = parts.iter().map(Vec::len).sum();
    let items: usize = parts.iter().flatten().map(hidden).sum();
    let affordable = affordable(sessions.num_actions);
    let wanted = wanted(users, items, HIDDEN_BY_STRANGERS, sessions.num_actions).max(affordable);
    let draws = (wanted.div_ceil(users.max(1)) as u64).min(DRAWS);
    let smallest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let are_enough = |parts: &u16| usize::from(*parts) * smallest >= wanted;
    let asking = (1..folds.count()).find(are_enough).unwrap_or(folds.count());
    let of_each = wanted.div_ceil(asking.into());
    if let [all] = &parts[..] {
        parts = all.chunks(of_each).take(PARTS.into()).map(<[u32]>::to_vec).collect();
    }
    for users in &mut parts {
        users.truncate(of_each);
        users.sort_unstable();
    }
    let others = (1..draws).map(|draw| hide_others(sessions, draw, seed));
    let asked = std::iter::once(sessions.clone()).chain(others).map(Arc::new).collect();
    Called { parts, asking, asked, times: None, without: Without::Folds }
}

/// Any users judge one fit, which everything is part of but what they hide. As many again for each
/// other fold wait for the last round; not where they would hide the latest items, which say most of
/// what comes next and would be missed in the fit.
pub(super) fn anybody(sessions: &Sessions, held_out: HeldOut<'_>, seed: Seed) -> Called {
    let (share, mut users) = who_may_judge(sessions);
    seed.stream(Purpose::Judges, 0, 0).shuffle(&mut users);
    let items = users.iter().map(|(_, items)| hidden_of(*items, share)).sum();
    let affordable = affordable(sessions.num_actions);
    let of_each = wanted(users.len(), items, HIDDEN, sessions.num_actions)
        .max(affordable.min(users.len() / OF_MANY));
    let parts = if matches!(held_out, HeldOut::Latest(_)) { 1 } else { PARTS };
    users.truncate(of_each * usize::from(parts));
    let users: Vec<u32> = users.into_iter().map(|(user, _)| user).collect();
    let (asked, times) = hide(sessions, held_out, &users, seed);
    // None of times that are all alike is the latest.
    let times = times.filter(|times| tell_apart(times, &asked));
    let asked = Arc::new(asked);
    let mut parts: Vec<Vec<u32>> = users.chunks(of_each).map(<[u32]>::to_vec).collect();
    for users in &mut parts {
        users.sort_unstable();
    }
    let without = Without::Hidden(Arc::clone(&asked));
    Called { parts, asking: 1, asked: vec![asked], times, without }
}

/// True if somebody observes items of several times.
fn tell_apart(times: &Times, asked: &Sessions) -> bool {
    asked.observed.contexts().any(|user| {
        let times = asked.observed.values_of(user, &times.observed);
        times.iter().any(|time| *time != times[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_judge_where_they_hide_little_unless_there_are_many_items() {
        let wanted = |num_actions| wanted(1_000_000, 3_000_000, HIDDEN_BY_STRANGERS, num_actions);
        assert_eq!(wanted(40_000), 6666);
        assert_eq!(wanted(2_000_000), 2000);
        assert_eq!(wanted(50_000_000), JUDGES);
    }
}
