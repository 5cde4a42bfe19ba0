//! The sessions of a split that hides the latest items in, what judges are asked out.
//!
//! Such a split is not about strangers: the policy will be asked for the next items of users whose
//! earlier ones it was fitted on. So a judge hides as large a share of the own items as held-out
//! contexts do, the latest, and everything was fitted on the rest. Users who were left out of a fit, and
//! hid half of what they have, chose vectors for Amazon Beauty that earned a sixth less.

use std::collections::HashSet;

use crate::dataset::{ActionSets, Sessions, Split, Times};

/// Items with their times.
type Part = Vec<(u32, i64)>;

/// `sessions` whose training users observe all they have, but for `judges`, who hide as much of theirs
/// as held-out contexts do; with the times of the items.
pub(super) fn hide(sessions: &Sessions, times: &Times, judges: &[u32]) -> (Sessions, Times) {
    let share = hidden_share(sessions);
    let judges: HashSet<u32> = judges.iter().copied().collect();
    let (mut observed, mut hidden) = (ActionSets::none(), ActionSets::none());
    let mut asked = Times { observed: Vec::new(), hidden: Vec::new() };
    for context in sessions.observed.contexts() {
        let with_times = |sets: &ActionSets, times: &[i64]| -> Part {
            let items = sets.of(context).iter().copied();
            items.zip(sets.values_of(context, times).iter().copied()).collect()
        };
        let mut first = with_times(&sessions.observed, &times.observed);
        let mut second = with_times(&sessions.hidden, &times.hidden);
        if sessions.split[context as usize] == Split::Train {
            first.append(&mut second);
            if judges.contains(&context) {
                first.sort_unstable_by_key(|&(item, time)| (time, item));
                second = first.split_off(first.len() - hidden_of(first.len(), share));
                second.sort_unstable();
            }
            first.sort_unstable();
        }
        for (part, set, when) in
            [(first, &mut observed, &mut asked.observed), (second, &mut hidden, &mut asked.hidden)]
        {
            set.push_set();
            for (item, time) in part {
                set.push(item);
                when.push(time);
            }
        }
    }
    let Sessions { split, num_actions, .. } = sessions;
    (Sessions { observed, hidden, split: split.clone(), num_actions: *num_actions }, asked)
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

    #[test]
    fn judges_hide_the_latest_of_theirs_and_as_much_as_others() {
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
        let (asked, when) = hide(&sessions, &times, &[0]);
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
}
