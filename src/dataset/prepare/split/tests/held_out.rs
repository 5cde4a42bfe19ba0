//! Splits that hold out a part of each user's items: by time, from a moment on, and by files.

use std::path::PathBuf;

use super::*;
use crate::dataset::{Filters, Given, Source, read, read_given};

/// Actions by their items' ids, of each context: user, split, X, Y.
type Sets = Vec<(String, Split, Vec<i64>, Vec<i64>)>;

fn all() -> Filters {
    Filters { min_user_interactions: 1, ..Filters::default() }
}

fn source(path: PathBuf, time: Option<&str>) -> Source {
    Source {
        path,
        user_column: Some("who".into()),
        item_column: Some("what".into()),
        time_column: time.map(str::to_owned),
        first_times: true,
        ..Source::default()
    }
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs_err::write(&path, text).unwrap();
    path
}

fn of_kind(kind: SplitKind) -> SplitSettings {
    SplitSettings { kind, test_share: 0.2, ..SplitSettings::default() }
}

/// A log of `who,what,when` rows.
fn timed(rows: &str, settings: &SplitSettings) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "log.csv", &format!("who,what,when\n{rows}"));
    assemble(read(&source(path, Some("when")), &all()).unwrap(), settings)
}

fn given(files: [Option<&str>; 3], settings: &SplitSettings) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let written = |(rows, name): (Option<&str>, &str)| {
        rows.map(|rows| file(&folder, name, &format!("who,what\n{rows}")))
    };
    let [train, validation, test] =
        [(files[0], "train.csv"), (files[1], "validation.csv"), (files[2], "test.csv")]
            .map(written);
    let (train, test) = (source(train.unwrap(), None), test.unwrap());
    assemble(read_given(&Given { train, validation, test }, &all())?, settings)
}

fn sets(dataset: &Dataset) -> Sets {
    let items: Vec<i64> =
        dataset.actions.column("item_id").unwrap().i64().unwrap().into_no_null_iter().collect();
    let users = dataset.contexts.column("user_id").unwrap().cast(&DataType::String).unwrap();
    let users: Vec<_> = users.str().unwrap().iter().flatten().map(str::to_owned).collect();
    let Sessions { observed, hidden, split, .. } = &dataset.sessions;
    let ids = |set: &[u32]| {
        let mut ids: Vec<i64> = set.iter().map(|&action| items[action as usize]).collect();
        ids.sort_unstable();
        ids
    };
    let of = |context: u32| (ids(observed.of(context)), ids(hidden.of(context)));
    let named = observed.contexts().zip(users).zip(split);
    named.map(|((at, user), split)| (user, *split, of(at).0, of(at).1)).collect()
}

fn context(user: &str, split: Split, observed: &[i64], hidden: &[i64]) -> Sets {
    vec![(user.into(), split, observed.to_vec(), hidden.to_vec())]
}

#[test]
fn of_items_of_one_time_any_may_be_hidden() {
    let mut rows: Vec<String> = (0..8).map(|item| format!("a,{item},2024-01-31\n")).collect();
    let hidden = (0..20).map(|seed| {
        let settings = SplitSettings { seed: Seed(seed), ..of_kind(SplitKind::Temporal) };
        let sets = sets(&timed(&rows.concat(), &settings).unwrap());
        // The order of the rows does not matter.
        rows.reverse();
        assert_eq!(self::sets(&timed(&rows.concat(), &settings).unwrap()), sets);
        sets.into_iter().find(|(_, split, ..)| *split == Split::Test).unwrap().3
    });
    let mut hidden: Vec<Vec<i64>> = hidden.collect();
    hidden.sort_unstable();
    hidden.dedup();
    assert!(hidden.len() > 5, "{hidden:?}");
}

#[test]
fn the_latest_items_are_the_test_and_those_before_them_validation() {
    // Ten items at falling times, so item 0 is the latest.
    let mut rows: Vec<String> = (0..10).map(|at| format!("1,{at},{}\n", 50 - at)).collect();
    rows.push("2,7,4\n2,3,2\n2,5,3\n2,4,6\n3,1,1\n3,2,2\n3,3,3\n".into());
    let dataset = timed(&rows.concat(), &of_kind(SplitKind::Temporal)).unwrap();
    let expected = [
        context("1", Split::Train, &[7, 8, 9], &[3, 4, 5, 6]),
        context("1", Split::Validation, &[3, 4, 5, 6, 7, 8, 9], &[2]),
        context("1", Split::Test, &[2, 3, 4, 5, 6, 7, 8, 9], &[0, 1]),
        context("2", Split::Train, &[3], &[5]),
        context("2", Split::Validation, &[3, 5], &[7]),
        context("2", Split::Test, &[3, 5, 7], &[4]),
        // Three items are too few for two to train on and one each for validation and test.
        context("3", Split::Train, &[1], &[2, 3]),
    ];
    assert_eq!(sets(&dataset), expected.concat());
    // Users and pairs count once.
    let Statistics { users, interactions, train, test, .. } = dataset.statistics;
    assert_eq!((users, interactions), (3, 17));
    assert_eq!((train.users, train.interactions), (3, 7 + 2 + 3));
    assert_eq!((test.users, test.interactions), (2, 14));
    // The order of the rows does not matter, and the times follow their items.
    rows.reverse();
    let again = timed(&rows.concat(), &of_kind(SplitKind::Temporal)).unwrap();
    assert_eq!((&again.sessions, &again.times), (&dataset.sessions, &dataset.times));
    let times = dataset.times.unwrap();
    assert_eq!(dataset.sessions.hidden.values_of(1, &times.hidden), [48]);
    let splits: Vec<_> = again.contexts.column("split").unwrap().str().unwrap().iter().collect();
    assert_eq!(splits[..3], [Some("train"), Some("validation"), Some("test")]);
}

#[test]
fn a_few_who_have_nearly_everything_keep_nobody_else_from_slates() {
    let of = |user: i64, count: i64| {
        (0..count).map(move |at| format!("{user},{},{at}\n", (7 * user + at) % 30))
    };
    let rows: Vec<String> = (1..20).flat_map(|user| of(user, 6)).chain(of(20, 30)).collect();
    let settings = SplitSettings { test_share: 0.1, ..of_kind(SplitKind::Temporal) };
    let dataset = timed(&rows.concat(), &settings).unwrap();
    let kept = sets(&dataset);
    // The test context would observe 27 of the 30 items, which leaves no five.
    let of_last = kept.iter().filter(|(user, ..)| user == "20");
    let splits: Vec<_> = of_last.map(|(_, split, ..)| *split).collect();
    assert_eq!(splits, [Split::Train, Split::Validation]);
    assert_eq!(kept.len(), 3 * 19 + 2);
    // In a small catalogue it is no exception.
    let rows: Vec<String> = (1..20).flat_map(|user| of(user, 28)).collect();
    assert_eq!(sets(&timed(&rows.concat(), &settings).unwrap()).len(), 3 * 19);
}

#[test]
fn parts_have_an_item_each_or_the_share_of_zero() {
    let rows = (0..5).map(|at| format!("1,{at},{at}\n")).collect::<Vec<_>>().concat();
    let cut = |validation_share, test_share, observed_share| {
        let kind = SplitKind::Temporal;
        let settings =
            SplitSettings { kind, validation_share, test_share, observed_share, seed: Seed(0) };
        let sets = sets(&timed(&rows, &settings).unwrap());
        sets.into_iter().map(|(_, _, x, y)| (x.len(), y.len())).collect::<Vec<_>>()
    };
    assert_eq!(cut(0.1, 0.1, 0.5), [(1, 2), (3, 1), (4, 1)]);
    assert_eq!(cut(0.1, 0.8, 0.5), [(1, 1), (2, 1), (3, 2)]);
    assert_eq!(cut(0.0, 0.4, 0.5), [(1, 2), (3, 2)]);
    assert_eq!(cut(0.4, 0.0, 0.0), [(0, 3), (3, 2)]);
    assert_eq!(cut(0.0, 0.0, 0.1), [(1, 4)]);
}

#[test]
fn nothing_from_the_moment_on_is_trained_on() {
    let mut stream = Seed(5).stream(Purpose::Synthetic, 0, 0);
    let rows: Vec<(u32, u32, u32)> = (0..3000)
        .map(|_| {
            let user = stream.below(60);
            // Some users come late, and items of the end are new.
            let time = (10 * user + stream.below(500)).min(899);
            (user, stream.below(40) + time / 10, time)
        })
        .collect();
    let text: Vec<_> = rows.iter().map(|(u, i, t)| format!("{u},{i},{t}\n")).collect();
    let text = text.concat();
    let dates =
        |validation_after| of_kind(SplitKind::Dates { test_after: Moment(500), validation_after });
    let dataset = timed(&text, &dates(Some(Moment(400)))).unwrap();
    let mut first = std::collections::BTreeMap::new();
    for &(user, item, time) in &rows {
        let kept: &mut u32 = first.entry((i64::from(user), i64::from(item))).or_insert(time);
        *kept = time.min(*kept);
    }
    let of = |user: &str, times: std::ops::Range<u32>| {
        let user: i64 = user.parse().unwrap();
        let of_user = first.iter().filter(|((of, _), time)| *of == user && times.contains(time));
        of_user.map(|((_, item), _)| *item).collect::<Vec<_>>()
    };
    let found = sets(&dataset);
    for (user, split, observed, hidden) in &found {
        let (known, ends) = match split {
            Split::Train => (of(user, 0..400), None),
            Split::Validation => (of(user, 0..400), Some(400..500)),
            Split::Test => (of(user, 0..500), Some(500..1000)),
        };
        if let Some(ends) = ends {
            assert_eq!((observed, hidden), (&known, &of(user, ends)), "{user}: {split}");
        } else {
            let mut both = [&observed[..], hidden].concat();
            both.sort_unstable();
            assert_eq!(both, known, "{user}: {split}");
        }
    }
    // Every user with something before and in a period has its context.
    let expected = |known: u32, end: u32| {
        let users = (0..60).map(|user| user.to_string());
        users
            .filter(|user| !of(user, 0..known).is_empty() && !of(user, known..end).is_empty())
            .count()
    };
    let statistics = &dataset.statistics;
    assert_eq!(statistics.validation.users, expected(400, 500));
    assert_eq!(statistics.test.users, expected(500, 1000));
    let known = (0..60).filter(|user| !of(&user.to_string(), 0..500).is_empty()).count();
    assert!(statistics.users <= known && known < 60);

    // By itself, validation is a tenth of what is before the test, and all that is as late.
    let dataset = timed(&text, &dates(None)).unwrap();
    let mut before: Vec<u32> = first.values().copied().filter(|time| *time < 500).collect();
    before.sort_unstable();
    let begins = before[before.len() - share_of(before.len(), 0.1, f64::round)];
    for (user, split, observed, _) in sets(&dataset) {
        if split == Split::Validation {
            assert_eq!(observed, of(&user, 0..begins), "{user}");
        }
    }
}

#[test]
fn files_say_what_is_tested_and_the_same_users_are_on_both_sides() {
    let train = "1,10\n1,11\n1,12\n1,13\n2,10\n2,11\n3,12\n";
    // Item 99 is new, 1 has 10 in both files, and nothing is known of user 4.
    let test = "1,99\n1,10\n1,14\n2,12\n4,10\n3,12\n";
    let settings = of_kind(SplitKind::Given);
    let dataset = given([Some(train), None, Some(test)], &settings).unwrap();
    let found = sets(&dataset);
    let of = |user: &str, split: Split| {
        let mut of = found.iter().filter(|it| it.0 == user && it.1 == split);
        let found = of.next().map(|it| (it.2.clone(), it.3.clone()));
        assert!(of.next().is_none());
        found
    };
    assert_eq!(of("1", Split::Test), Some((vec![10, 11, 12, 13], vec![14, 99])));
    assert_eq!(of("2", Split::Test), Some((vec![10, 11], vec![12])));
    // Nothing that is new to user 3 is in the test, and user 4 is left out.
    assert_eq!((of("3", Split::Test), of("4", Split::Train)), (None, None));
    // Validation comes from the train file: one of the four items of user 1; the others are trained
    // on, and nobody else has three.
    let (observed, hidden) = of("1", Split::Validation).unwrap();
    let (x, y) = of("1", Split::Train).unwrap();
    assert_eq!((observed.len(), hidden.len(), x.len(), y.len()), (3, 1, 1, 2));
    let mut parts = [x, y].concat();
    parts.sort_unstable();
    assert_eq!(parts, observed);
    assert!(!observed.contains(&hidden[0]) && (10..14).contains(&hidden[0]));
    assert_eq!(dataset.statistics.validation.users, 1);
    // Items that no one trains on come last.
    let Sessions { num_actions, .. } = dataset.sessions;
    let items = dataset.actions.column("item_id").unwrap().i64().unwrap().clone();
    assert_eq!((num_actions, items.get(num_actions - 1)), (6, Some(99)));

    // With a validation file everything of the train file is trained on, and the test knows no more.
    let validation = "1,14\n1,12\n2,15\n";
    let found = sets(&given([Some(train), Some(validation), Some(test)], &settings).unwrap());
    let held = |split: Split| found.iter().filter(|it| it.1 == split).cloned().collect::<Vec<_>>();
    let expected = [
        context("1", Split::Validation, &[10, 11, 12, 13], &[14]),
        context("2", Split::Validation, &[10, 11], &[15]),
    ];
    assert_eq!(held(Split::Validation), expected.concat());
    let expected = [
        context("1", Split::Test, &[10, 11, 12, 13], &[14, 99]),
        context("2", Split::Test, &[10, 11], &[12]),
    ];
    assert_eq!(held(Split::Test), expected.concat());
    assert_eq!(held(Split::Train).iter().map(|it| it.2.len() + it.3.len()).sum::<usize>(), 7);
}

#[test]
fn ids_of_given_files_are_the_same_whatever_their_types() {
    // `x` makes the ids of the test text; those of the train file are still the same users.
    let dataset =
        given([Some("1,1\n1,2\n2,1\n"), None, Some("1,3\nx,1\n")], &of_kind(SplitKind::Given));
    let message = dataset.unwrap_err().to_string();
    assert!(message.contains("no user has enough interactions for validation"), "{message}");
    let settings = SplitSettings { validation_share: 0.0, ..of_kind(SplitKind::Given) };
    let dataset = given([Some("1,1\n1,2\n2,1\n"), None, Some("1,3\nx,1\n")], &settings).unwrap();
    assert_eq!(sets(&dataset)[1], context("1", Split::Test, &[1, 2], &[3])[0]);
    assert_eq!((dataset.statistics.users, dataset.statistics.validation.users), (2, 0));
}

#[test]
fn splits_that_leave_nothing_are_refused() {
    let rows = "1,1,100\n1,2,200\n2,1,150\n2,3,250\n";
    let refused = |kind| timed(rows, &of_kind(kind)).unwrap_err().to_string();
    let dates = |test_after, validation_after| {
        let validation_after = Some(Moment(validation_after));
        refused(SplitKind::Dates { test_after: Moment(test_after), validation_after })
    };
    for (message, split) in [
        (dates(300, 200), "test"),
        (dates(90, 80), "train"),
        (dates(190, 180), "validation"),
        (dates(240, 100), "train"),
    ] {
        let said = format!("no user is left for {split}, with validation from");
        assert!(message.contains(&said), "{message}");
        assert!(message.contains("the log goes from 100 to 250"), "{message}");
    }
    let message = dates(200, 200);
    assert!(message.contains("200 has to be before --test-after 200"), "{message}");
    let message = refused(SplitKind::Temporal);
    assert!(message.contains("no user has enough interactions for validation"), "{message}");
    let shares =
        SplitSettings { validation_share: 0.5, test_share: 0.5, ..of_kind(SplitKind::Temporal) };
    let message = timed(rows, &shares).unwrap_err().to_string();
    assert!(message.contains("take 1 of each user's items"), "{message}");

    let message =
        given([Some("1,1\n"), None, Some("9,1\n")], &of_kind(SplitKind::Given)).unwrap_err();
    let message = message.to_string();
    assert!(message.contains("none of its users (`9` is one) is in"), "{message}");
    let known = given([Some("1,1\n1,2\n1,3\n"), None, Some("1,1\n")], &of_kind(SplitKind::Given));
    let message = known.unwrap_err().to_string();
    assert!(message.contains("no user of the test file is in the train file and has"), "{message}");

    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "log.csv", "who,what\n1,1\n");
    let untimed = |kind| {
        assemble(read(&source(path.clone(), None), &all()).unwrap(), &of_kind(kind))
            .unwrap_err()
            .to_string()
    };
    assert!(untimed(SplitKind::Temporal).contains("name their column (--time-column)"));
    assert!(untimed(SplitKind::Given).contains("files that are split already"));
}
