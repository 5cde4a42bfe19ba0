//! On real sessions: what the default index finds, and where the MLP's identity start points.

use fast_slate::dataset::{Filters, Source, Split};
use fast_slate::device;
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::settings::Preset;
use fast_slate::task::{Audits, Task};
use fast_slate::tower::TowerKind;

use crate::common::real_data;

#[test]
fn the_default_index_recalls_and_the_mlp_starts_where_the_linear_tower_does() {
    let Some(path) = real_data("gowalla/checkins.parquet") else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = Source {
        path,
        user_column: Some("user_id".into()),
        item_column: Some("location_id".into()),
        ..Source::default()
    };
    let input = Input::File(source, Filters::default());
    let out = folder.path().join("data");
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out, false).unwrap();

    let mut settings = prepared.preset(Preset::Default);
    let device = device::choose(None).unwrap().device;
    let task = Task::load(&prepared, &settings).unwrap();
    let linear = task.initial_model(&settings, &device).unwrap();
    let audits = Audits { task: &task, method: &settings.method, seed: settings.seed };
    let audit = audits.recall(&linear).unwrap().unwrap();
    assert!(audit.recall >= 0.98, "recall {}", audit.recall);

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
