//! The library in a few lines.

use fast_slate::Error;
use fast_slate::facade::{Policy, Which};
use fast_slate::settings::Preset;

use crate::common::small;

#[test]
fn prepare_train_recommend_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = small(&folder.path().join("data"));
    let run = folder.path().join("run");
    let mut settings = data.preset(Preset::Default);
    settings.budget.amount = 20;
    settings.evaluation.count = 2;

    let policy = data.train(&settings, &run).unwrap();
    let slate = policy.recommend("42").unwrap().slate;
    assert_eq!(slate.len(), 5);
    assert!(slate.is_sorted_by(|a, b| a.score >= b.score), "{slate:?}");
    let first = slate[0].item_id.clone();
    let after = policy.recommend_after(&[&first]).unwrap().slate;
    assert!(after.iter().all(|item| item.item_id != first), "{after:?}");
    assert!(matches!(policy.recommend("nobody"), Err(Error::UnknownId { .. })));
    assert!(policy.user_ids().unwrap().any(|user| user == "42"));

    // Nothing is trained twice, and nothing is overwritten.
    let metrics = fs_err::read(run.join("metrics.jsonl")).unwrap();
    let again = data.train(&settings, &run).unwrap();
    assert_eq!(again.recommend("42").unwrap().slate, slate);
    assert_eq!(fs_err::read(run.join("metrics.jsonl")).unwrap(), metrics);
    let opened = Policy::open(&run, Which::Best, None).unwrap();
    assert_eq!(opened.recommend("42").unwrap().slate, slate);
    settings.optimizer.batch_size += 1;
    let error = data.train(&settings, &run).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}
