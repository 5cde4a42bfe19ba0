mod held_out;

use super::*;
use crate::dataset::{SyntheticSettings, synthetic};

fn dataset(seed: u64) -> Dataset {
    let settings = SyntheticSettings { users: 200, actions: 300, topics: 20, ..Default::default() };
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
        popularity
            .windows(2)
            .zip(ids.windows(2))
            .all(|(count, id)| { count[0] > count[1] || (count[0] == count[1] && id[0] < id[1]) })
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
