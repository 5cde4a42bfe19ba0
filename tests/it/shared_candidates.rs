//! Shared candidates in a run: what the audit says, and what becomes of it.

use fast_slate::training::MetricsRow;

use crate::common::{parameters, record, slate, small, stdout};

/// The coverage rows of a run with `sets`, and its last parameters' bits.
struct Runs {
    folder: tempfile::TempDir,
    prepared: fast_slate::prepared::Prepared,
}

impl Runs {
    fn train(&self, name: &str, sets: &[&str]) -> (Vec<(f64, bool)>, Vec<Vec<u32>>) {
        let out = self.folder.path().join(name);
        let mut train = slate();
        train.args(["train", "--steps", "20", "--slate-size", "4", "--device", "ndarray"]);
        train.args(["--set", "evaluation.count=4", "--set", "method.kind=lgp"]);
        train.arg("--data").arg(self.prepared.folder()).arg("--out").arg(&out);
        for set in sets {
            train.args(["--set", set]);
        }
        stdout(&mut train);
        let coverage = |row| match row {
            MetricsRow::Coverage { coverage, shared, .. } => Some((coverage, shared)),
            _ => None,
        };
        let rows = record(&out).into_iter().filter_map(coverage).collect();
        (rows, parameters(&self.prepared, &out))
    }
}

#[test]
fn while_candidates_cover_too_little_every_sample_is_searched_for() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let runs = Runs { folder, prepared };

    // The default: noise is small beside h, and every evaluation finds enough.
    let (covered, _) = runs.train("small-noise", &["method.candidates=60"]);
    assert_eq!(covered.len(), 5, "one at the start and one at each evaluation");
    assert!(covered.iter().all(|(coverage, shared)| *coverage >= 0.98 && *shared), "{covered:?}");

    // Noise far larger than h: the pool of the query says little about its samples.
    let noisy = "method.sigma=relative(10)";
    let (covered, fallen_back) = runs.train("noisy", &[noisy, "method.candidates=10"]);
    assert!(covered.iter().all(|(coverage, shared)| *coverage < 0.6 && !shared), "{covered:?}");
    let (none, searched) = runs.train("searched", &[noisy, "method.candidates=0"]);
    assert!(none.is_empty());
    assert!(fallen_back == searched, "the fall-back is a run without candidates, bit for bit");

    // Whoever asks for no coverage keeps sharing.
    let any = [noisy, "method.candidates=10", "method.coverage=0.0"];
    let (covered, kept) = runs.train("kept", &any);
    assert!(covered.iter().all(|(_, shared)| *shared), "{covered:?}");
    assert!(kept != searched);
}
