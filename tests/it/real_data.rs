//! Real logs: what preparation counts in them, what the default index finds, and where the MLP's
//! identity start points.

use std::path::Path;

use fast_slate::dataset::{Catalogue, Filters, Source, Split};
use fast_slate::device;
use fast_slate::evaluation::Evaluation;
use fast_slate::prepared::{Input, Prepared};
use fast_slate::retrieval::Search;
use fast_slate::settings::Preset;
use fast_slate::task::{Audits, Task};
use fast_slate::tower::TowerKind;

use crate::common::{real_data, svd};

fn prepared(source: Source, folder: &Path) -> Prepared {
    let input = Input::File(source, Filters::of(Preset::Paper));
    Prepared::create(&input, &svd(100), &folder.join("data"), false).unwrap()
}

fn gowalla(folder: &Path) -> Option<Prepared> {
    let source = Source {
        path: real_data("gowalla/checkins.parquet")?,
        user_column: Some("user_id".into()),
        item_column: Some("location_id".into()),
        ..Source::default()
    };
    Some(prepared(source, folder))
}

#[test]
fn movielens_is_read_as_it_is_published() {
    let Some(path) = real_data("ml-latest-small") else { return };
    let folder = tempfile::tempdir().unwrap();
    let prepared = prepared(Source { path, ..Source::default() }, folder.path());
    let statistics = &prepared.manifest.statistics;
    assert_eq!(statistics.users, 610);
    assert_eq!((statistics.actions, statistics.interactions), (9_724, 100_836));
    let catalogue = Catalogue::read(prepared.folder()).unwrap();
    let titles: Vec<_> = (0..9_724).map(|action| catalogue.items.title(action).unwrap()).collect();
    assert!(titles[..10].contains(&"Forrest Gump (1994)"), "{:?}", &titles[..10]);
}

#[test]
fn the_default_index_recalls_and_the_mlp_starts_where_the_linear_tower_does() {
    let folder = tempfile::tempdir().unwrap();
    let Some(prepared) = gowalla(folder.path()) else { return };
    let statistics = &prepared.manifest.statistics;
    assert_eq!((statistics.users, statistics.actions), (15_612, 40_981));
    let sessions = &prepared.sessions;
    let sets = [&sessions.observed, &sessions.hidden];
    let active = |user| sets.iter().map(|set| set.of(user).len()).sum::<usize>() >= 20;
    assert!(sessions.observed.contexts().all(active));

    let mut settings = prepared.preset(Preset::Default);
    let device = device::choose(None).unwrap().device;
    let task = Task::load(&prepared, &settings).unwrap();
    let linear = task.initial_model(&settings, &device).unwrap();
    let all = Task::to_decide(&prepared, &settings).unwrap();
    let audits = Audits { task: &all, method: &settings.method, seed: settings.seed };
    let audit = audits.recall(&linear).unwrap().unwrap();
    assert!(audit.recall >= 0.98, "recall {}", audit.recall);

    // Folds are searched exactly, so training with them audits no index.
    let audits = Audits { task: &task, ..audits };
    assert_eq!(audits.recall(&linear).unwrap(), None);

    settings.tower.kind = TowerKind::SigmoidMlp;
    let mlp = task.initial_model(&settings, &device).unwrap();
    let contexts = task.sessions.contexts(Split::Validation);
    let decide = |tower| task.decide(tower, &contexts, task.exact.as_ref()).unwrap();
    let (theirs, ours) = (decide(&linear), decide(&mlp));
    let shared: usize = (0..contexts.len())
        .map(|i| ours.slate(i).iter().filter(|action| theirs.slate(i).contains(action)).count())
        .sum();
    let overlap = shared as f64 / (5 * contexts.len()) as f64;
    assert!(overlap >= 0.9, "top-5 overlap {overlap}");
}

#[test]
fn vectors_of_everybody_know_what_training_users_hid_and_those_of_folds_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = real_data("amazon_cds/interactions.parquet") else { return };
    let (user_column, item_column) = (Some("user_id".into()), Some("item_id".into()));
    let prepared =
        prepared(Source { path, user_column, item_column, ..Source::default() }, folder.path());
    let mut settings = prepared.preset(Preset::Default);
    let device = device::choose(None).unwrap().device;
    let mut apart = |folds| {
        settings.context.folds = folds;
        let task = Task::load(&prepared, &settings).unwrap();
        let start = task.initial_model(&settings, &device).unwrap();
        let of = |split| {
            let contexts = task.sessions.contexts(split);
            Evaluation::of(&task, &start, &contexts, Search::Exact).unwrap()
        };
        let (training, validation) = (of(Split::Train), of(Split::Validation));
        let error = training.standard_error().hypot(validation.standard_error());
        (training.mean() - validation.mean()) / error
    };
    let (with, without) = (apart(5), apart(0));
    assert!(with < 2.0 && without > 2.0, "{with:.1} and {without:.1} standard errors apart");
}
