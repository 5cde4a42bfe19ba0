//! Interactions → sessions, by FOPO's procedure: half of each user's items are observed, the rest is
//! hidden, and each user belongs to training, validation or test.

use std::cmp::Reverse;

use polars::prelude::*;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::interactions::Interactions;
use crate::dataset::{ActionSets, Dataset, Sessions, Split, Statistics, Times};
use crate::error::{Error, Result};
use crate::seed::{Purpose, Seed};

/// How interactions are split into sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitSettings {
    /// Share of a user's n items that is observed, ⌊n · share⌋ of them; in [0, 1).
    pub observed_share: f64,
    /// Share of the users for validation; in [0, 1).
    pub validation_share: f64,
    /// Share of the users for the test; in [0, 1).
    pub test_share: f64,
    /// Seed of the shuffle of users and the shuffle of each user's items.
    pub seed: Seed,
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self { observed_share: 0.5, validation_share: 0.1, test_share: 0.1, seed: Seed(0) }
    }
}

/// Cuts `interactions` into sessions and numbers contexts, by ascending user id, and actions, by
/// falling number of training users, then by item id. The same interactions in any order and the
/// same settings give the same sessions.
///
/// # Errors
/// [`Error::Setting`] for a share outside [0, 1), or shares that leave nobody to train on.
pub fn assemble(interactions: Interactions, settings: &SplitSettings) -> Result<Dataset> {
    let Interactions { users, items, titles, items_of, times } = interactions;
    let split = split_users(users.len(), settings)?;

    let mut popularity = vec![0_u32; items.len()];
    for (context, _) in (0..).zip(&split).filter(|(_, split)| **split == Split::Train) {
        items_of.of(context).iter().for_each(|&item| popularity[item as usize] += 1);
    }
    let mut item_of: Vec<u32> = (0..).take(items.len()).collect();
    item_of.sort_by_key(|&item| (Reverse(popularity[item as usize]), item));
    let mut action_of = vec![0; items.len()];
    for (action, &item) in (0_u32..).zip(&item_of) {
        action_of[item as usize] = action;
    }

    // The shuffle of a user's items is theirs alone, so each part can be cut by itself.
    let shuffled = |context: u32| {
        let mut items = items_of.of(context).to_vec();
        settings.seed.stream(Purpose::Hide, 0, context.into()).shuffle(&mut items);
        items.into_iter().map(|item| action_of[item as usize])
    };
    let num_observed =
        |context| share_of(items_of.of(context).len(), settings.observed_share, f64::floor);
    let part = |start: &(dyn Fn(u32) -> usize + Sync), end: &dyn Fn(u32) -> usize| {
        let sizes: Vec<usize> = items_of.contexts().map(|of| end(of) - start(of)).collect();
        ActionSets::filled(&sizes, |context, set| {
            let actions = shuffled(context).skip(start(context));
            set.iter_mut().zip(actions).for_each(|(to, action)| *to = action);
        })
    };
    let observed = part(&|_| 0, &num_observed);
    let hidden = part(&num_observed, &|context| items_of.of(context).len());

    let times = times.map(|times| {
        let of = |sets: &ActionSets| {
            let of_context = |context| {
                let (items, times) = (items_of.of(context), items_of.values_of(context, &times));
                let time = |item| times[items.partition_point(|&other| other < item)];
                let actions = sets.of(context).iter();
                actions.map(|&action| time(item_of[action as usize])).collect::<Vec<_>>()
            };
            sets.contexts().into_par_iter().flat_map_iter(of_context).collect()
        };
        Times { observed: of(&observed), hidden: of(&hidden) }
    });
    let titles = titles.map(|titles| {
        item_of.iter().map(|&item| titles[item as usize].clone()).collect::<Vec<_>>()
    });
    let sessions = Sessions { observed, hidden, split, num_actions: items.len() };
    let (contexts, actions) = names(&users, &items, &item_of, titles)
        .map_err(|error| Error::library("naming contexts and actions", error))?;
    let statistics = Statistics::of(&sessions);
    Ok(Dataset { sessions, times, contexts, actions, statistics })
}

/// The tables of contexts and of actions.
fn names(
    users: &Series,
    items: &Series,
    item_of: &[u32],
    titles: Option<Vec<Option<String>>>,
) -> PolarsResult<(DataFrame, DataFrame)> {
    let count = |name: &str, series: &Series| {
        Column::new(name.into(), (0_u32..).take(series.len()).collect::<Vec<_>>())
    };
    let contexts = DataFrame::new_infer_height(vec![
        count("context", users),
        users.clone().with_name("user_id".into()).into(),
    ])?;
    let order = IdxCa::from_slice("order".into(), item_of);
    let mut columns =
        vec![count("action", items), items.take(&order)?.with_name("item_id".into()).into()];
    columns.extend(titles.map(|titles| Column::new("title".into(), titles)));
    Ok((contexts, DataFrame::new_infer_height(columns)?))
}

fn split_users(num_users: usize, settings: &SplitSettings) -> Result<Vec<Split>> {
    let shares = [
        ("observed_share", settings.observed_share),
        ("validation_share", settings.validation_share),
        ("test_share", settings.test_share),
    ];
    for (key, share) in shares {
        if !(0.0..1.0).contains(&share) {
            return Err(Error::setting(key, format!("expected a share in [0, 1), found {share}")));
        }
    }
    let num_test = share_of(num_users, settings.test_share, f64::round);
    let num_validation = share_of(num_users, settings.validation_share, f64::round);
    if num_test + num_validation >= num_users {
        return Err(Error::setting(
            "test_share",
            format!(
                "{num_test} test and {num_validation} validation users leave none of the \
                 {num_users} to train on; lower test_share or validation_share (--test-share, \
                 --validation-share)"
            ),
        ));
    }
    let mut order: Vec<usize> = (0..num_users).collect();
    settings.seed.stream(Purpose::Split, 0, 0).shuffle(&mut order);
    let mut split = vec![Split::Train; num_users];
    let (test, rest) = order.split_at(num_test);
    for &user in test {
        split[user] = Split::Test;
    }
    for &user in &rest[..num_validation] {
        split[user] = Split::Validation;
    }
    Ok(split)
}

/// `count · share` as a whole number; 0.29 of 100 is 29 although the product of the floats is less.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=count")]
fn share_of(count: usize, share: f64, whole: impl Fn(f64) -> f64) -> usize {
    whole(count as f64 * share + 1e-9) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{SyntheticSettings, synthetic};

    fn dataset(seed: u64) -> Dataset {
        let settings =
            SyntheticSettings { users: 200, actions: 300, topics: 20, ..Default::default() };
        let split = SplitSettings { seed: Seed(seed), ..Default::default() };
        assemble(synthetic(&settings).unwrap(), &split).unwrap()
    }

    #[test]
    fn half_of_each_session_is_observed_and_the_rest_is_hidden() {
        let Sessions { observed, hidden, .. } = dataset(0).sessions;
        for context in 0..200 {
            let (x, y) = (observed.of(context), hidden.of(context));
            assert_eq!(x.len(), usize::midpoint(x.len(), y.len()));
            assert!(x.len() + y.len() >= 20);
            assert!(x.iter().all(|&action| !hidden.contains(context, action)));
        }
    }

    #[test]
    fn the_shares_of_users_are_kept() {
        let statistics = dataset(0).statistics;
        assert_eq!(statistics.users, 200);
        assert_eq!((statistics.train.users, statistics.validation.users), (160, 20));
        assert_eq!(statistics.test.users, 20);
    }

    #[test]
    fn the_seed_decides_and_nothing_else() {
        let (a, b) = (dataset(1), dataset(1));
        assert_eq!(a.sessions, b.sessions);
        assert!(a.actions.equals_missing(&b.actions));
        let c = dataset(2);
        assert_ne!(a.sessions.split, c.sessions.split);
        assert_ne!(a.sessions.observed, c.sessions.observed);
    }

    #[test]
    fn actions_are_numbered_by_popularity_among_training_users() {
        let dataset = dataset(0);
        let sessions = &dataset.sessions;
        let mut popularity = vec![0; sessions.num_actions];
        for context in sessions.contexts(Split::Train) {
            for set in [&sessions.observed, &sessions.hidden] {
                set.of(context).iter().for_each(|&action| popularity[action as usize] += 1);
            }
        }
        let ids: Vec<i64> =
            dataset.actions.column("item_id").unwrap().i64().unwrap().into_no_null_iter().collect();
        assert!(
            popularity.windows(2).zip(ids.windows(2)).all(|(count, id)| {
                count[0] > count[1] || (count[0] == count[1] && id[0] < id[1])
            })
        );
    }

    #[test]
    fn shares_that_cannot_be_are_refused() {
        let refused = |settings: SplitSettings| {
            let made = SyntheticSettings { users: 5, ..Default::default() };
            assemble(synthetic(&made).unwrap(), &settings).unwrap_err().to_string()
        };
        let all = SplitSettings { test_share: 0.6, validation_share: 0.4, ..Default::default() };
        assert!(refused(all).contains("leave none of the 5 to train on"));
        for share in [-0.1, 1.0, f64::NAN] {
            let settings = SplitSettings { observed_share: share, ..Default::default() };
            assert!(refused(settings).contains("setting `observed_share`"));
        }
    }

    #[test]
    fn decimal_shares_are_taken_at_their_word() {
        assert_eq!(share_of(100, 0.29, f64::floor), 29);
        assert_eq!(share_of(5, 0.5, f64::floor), 2);
    }
}
