//! What a split holds out in, what judges are asked out.
//!
//! Where a split holds out users, a judge is one: nothing was fitted on what a judge has done, and the
//! halves of a judge's items are those of the training. Where it holds out items of the training users,
//! a judge is asked for as large a share of the own items, the latest ones if those are held out, and
//! everything was fitted on the rest of them: that is what the policy will know of such a user. Users who
//! were left out of a fit, and hid half of what they have, chose vectors for Amazon Beauty by time that
//! earned a sixth less, and for Gowalla's published split some that earned a tenth less.

use std::collections::HashSet;

use crate::dataset::{Halved, Sessions, Split, Times, shuffled};
use crate::prepared::HeldOut;
use crate::seed::{Purpose, Seed};

/// `sessions` whose training users observe all they have, but for `judges`, who hide as much of theirs
/// as held-out contexts do; with the times that order the items, if any do.
pub(super) fn hide(
    sessions: &Sessions,
    held_out: HeldOut<'_>,
    judges: &[u32],
    seed: Seed,
) -> (Sessions, Option<Times>) {
    let share = hidden_share(sessions);
    let judges: HashSet<u32> = judges.iter().copied().collect();
    let times = match held_out {
        HeldOut::Latest(times) => Some(times),
        _ => None,
    };
    sessions.with_halves(times, |context| {
        if sessions.split[context as usize] != Split::Train {
            return Halved::AsBefore;
        }
        if !judges.contains(&context) {
            return Halved::Observed;
        }
        let mut first = sessions.halves(context, times).concat();
        first.sort_unstable();
        seed.stream(Purpose::Judges, 1, context.into()).shuffle(&mut first);
        if times.is_some() {
            // Items of one time are in no order; by number, the popular ones would come first.
            first.sort_by_key(|&(_, time)| time);
        }
        let second = first.split_off(first.len() - hidden_of(first.len(), share));
        Halved::Into([first, second])
    })
}

/// `sessions` whose training users observe and hide any of their items, as many of each as before.
/// `draw` addresses the draws.
pub(super) fn hide_others(sessions: &Sessions, draw: u64, seed: Seed) -> Sessions {
    let others = |context: u32| match sessions.split[context as usize] {
        Split::Train => {
            let mut stream = seed.stream(Purpose::Judges, draw, context.into());
            Halved::Into(shuffled(sessions.halves(context, None), &mut stream))
        }
        _ => Halved::AsBefore,
    };
    sessions.with_halves(None, others).0
}

/// The share of their items that validation contexts hide, or test contexts where nobody validates.
fn hidden_share(sessions: &Sessions) -> f64 {
    let of = |split| {
        let sizes = sessions.contexts(split).into_iter().map(|context| {
            (sessions.observed.of(context).len(), sessions.hidden.of(context).len())
        });
        let (observed, hidden) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        (hidden > 0).then(|| hidden as f64 / (observed + hidden) as f64)
    };
    of(Split::Validation).or_else(|| of(Split::Test)).unwrap_or(0.5)
}

/// How many of so many items, two or more, a judge hides.
pub(super) fn hidden_of(items: usize, share: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of items")]
    let hidden = (share * items as f64).round() as usize;
    hidden.clamp(1, items - 1)
}

/// The share, and the items of each training user who has two or more.
pub(super) fn who_may_judge(sessions: &Sessions) -> (f64, Vec<(u32, usize)>) {
    let size = |user| sessions.observed.of(user).len() + sessions.hidden.of(user).len();
    let users = sessions.contexts(Split::Train).into_iter().map(|user| (user, size(user)));
    (hidden_share(sessions), users.filter(|(_, items)| *items > 1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::ActionSets;

    fn sessions() -> (Sessions, Times) {
        let observed =
            [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 6), (2, 1), (2, 2), (2, 3)];
        let hidden = [(0, 7), (0, 8), (0, 9), (1, 9), (2, 5)];
        let sessions = Sessions {
            observed: ActionSets::from_pairs(3, observed.into_iter()),
            hidden: ActionSets::from_pairs(3, hidden.into_iter()),
            split: vec![Split::Train, Split::Train, Split::Validation],
            num_actions: 10,
        };
        // The first user's action 0 came last but one, 9 last.
        let times = Times {
            observed: vec![80, 10, 20, 30, 40, 5, 6, 1, 2, 3],
            hidden: vec![50, 60, 90, 7, 4],
        };
        (sessions, times)
    }

    #[test]
    fn judges_hide_the_latest_of_theirs_and_as_much_as_others() {
        let (sessions, times) = sessions();
        let (asked, when) = hide(&sessions, HeldOut::Latest(&times), &[0], Seed(1));
        let when = when.unwrap_or_else(|| panic!("items have an order"));
        // Validation hides one of four.
        assert_eq!(asked.observed.of(0), [1, 2, 3, 4, 7, 8]);
        assert_eq!(asked.hidden.of(0), [0, 9]);
        assert_eq!(asked.hidden.values_of(0, &when.hidden), [80, 90]);
        assert_eq!(asked.observed.values_of(0, &when.observed), [10, 20, 30, 40, 50, 60]);
        // Who does not judge hides nothing, and held-out contexts stay as they are.
        assert_eq!((asked.observed.of(1), asked.hidden.of(1)), (&[0, 6, 9][..], &[][..]));
        assert_eq!(asked.observed.values_of(1, &when.observed), [5, 6, 7]);
        assert_eq!((asked.observed.of(2), asked.hidden.of(2)), (&[1, 2, 3][..], &[5][..]));
    }

    #[test]
    fn of_items_of_one_time_any_may_be_hidden() {
        let (sessions, mut times) = sessions();
        times.observed.fill(7);
        times.hidden.fill(7);
        let hidden = (0..20).map(|seed| {
            let (asked, _) = hide(&sessions, HeldOut::Latest(&times), &[0], Seed(seed));
            asked.hidden.of(0).to_vec()
        });
        assert!(hidden.collect::<HashSet<_>>().len() > 5);
    }

    #[test]
    fn judges_hide_any_of_theirs_where_nothing_orders_them() {
        let (sessions, _) = sessions();
        let drawn = (0..20).map(|seed| {
            let (asked, times) = hide(&sessions, HeldOut::Items, &[0, 1], Seed(seed));
            assert!(times.is_none());
            assert_eq!((asked.hidden.of(0).len(), asked.hidden.of(1).len()), (2, 1));
            let mut all = [asked.observed.of(0), asked.hidden.of(0)].concat();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 7, 8, 9]);
            asked.hidden.of(0).to_vec()
        });
        assert!(drawn.collect::<HashSet<_>>().len() > 5);
    }

    #[test]
    fn a_judge_hides_as_many_of_the_own_items_as_before() {
        let (sessions, _) = sessions();
        let sizes = |of: &Sessions, user| (of.observed.of(user).len(), of.hidden.of(user).len());
        let drawn = (1..20).map(|draw| {
            let asked = hide_others(&sessions, draw, Seed(0));
            for user in 0..3 {
                assert_eq!(sizes(&asked, user), sizes(&sessions, user));
            }
            let mut all = [asked.observed.of(0), asked.hidden.of(0)].concat();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 7, 8, 9]);
            // Held-out contexts stay as they are.
            assert_eq!(asked.hidden.of(2), sessions.hidden.of(2));
            asked.hidden.of(0).to_vec()
        });
        assert!(drawn.collect::<HashSet<_>>().len() > 5);
    }
}
