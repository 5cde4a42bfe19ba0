//! Exact search on a GPU, here a software adapter, gives the answers of the host's, whatever the sizes.

use std::sync::Arc;

use assert_cmd::Command;
use fast_slate::dataset::Split;
use fast_slate::device::{self, Chosen, Memory};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::matrix::Matrix;
use fast_slate::policy::{BatchRows, PlackettLuce, Sampling, SlateDraws, SlatePolicy as _};
use fast_slate::retrieval::{Candidates, Exact, Manner, OnDevice, Queries, Retriever};
use fast_slate::seed::{Purpose, Seed, Stream};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use serde_json::Value;

use crate::common::{devices, refused, slate, small, stdout};

/// The adapter with tensors of at most so many bytes, if this build and this machine have one.
fn adapter(tensor: u64) -> Option<Chosen> {
    let wgpu = devices().find(|name| *name == "wgpu")?;
    let memory = Some(Memory { tensor, budget: None });
    Some(Chosen { memory, ..device::choose(Some(wgpu)).unwrap() })
}

fn normals(stream: &mut Stream, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    stream.fill_normals(matrix.as_mut_slice());
    matrix
}

/// Small integers: every product is exact, and ties abound.
fn rounded(mut matrix: Matrix) -> Matrix {
    matrix.as_mut_slice().iter_mut().for_each(|value| *value = value.round());
    matrix
}

/// Both ways to search on the device, and the host's.
fn searches(beta: Matrix, chosen: &Chosen) -> (Exact, [OnDevice; 2]) {
    let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
    let by = |manner| OnDevice::by(manner, &actions, chosen).unwrap();
    let on_device = [Manner::Products, Manner::Sweep].map(by);
    (Exact::new(actions), on_device)
}

/// At random sizes, none of them whole tiles, with small tensors so that there are many blocks.
#[test]
fn every_size_gives_the_answer_of_the_host() {
    let Some(mut chosen) = adapter(0) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 0);
    for case in 0..10 {
        let mut between = |low: u32, high: u32| (low + stream.below(high - low)) as usize;
        let (num_actions, latent_dim) = (between(101, 3000), between(1, 70));
        let (rows, spread) = (between(1, 150), between(2, 12));
        let tensor = 1 << between(17, 21);
        chosen.memory = Some(Memory { tensor, budget: None });
        let mut beta = normals(&mut stream, num_actions, latent_dim);
        let mut latent = normals(&mut stream, rows, latent_dim);
        if case % 2 == 0 {
            (beta, latent) = (rounded(beta), rounded(latent));
        }
        let excluded: Vec<Vec<u32>> = (0..rows)
            .map(|row| {
                let step = spread + row % 5;
                (0..u32::try_from(num_actions).unwrap()).skip(row % 3).step_by(step).collect()
            })
            .collect();
        let lists: Vec<&[u32]> = excluded.iter().map(Vec::as_slice).collect();
        let (host, on_device) = searches(beta, &chosen);
        for slate_size in [1, 5, 32, 33, 100] {
            for excluded in [None, Some(lists.as_slice())] {
                let queries = Queries { latent: &latent, slate_size, excluded };
                let Ok(expected) = host.search(queries) else {
                    assert!(on_device.iter().all(|search| search.search(queries).is_err()));
                    continue;
                };
                for (search, manner) in on_device.iter().zip(["products", "sweeps"]) {
                    let found = search.search(queries).unwrap();
                    let row = (0..rows).find(|row| found.slate(*row) != expected.slate(*row));
                    let row = row.map(|row| (row, found.slate(row), expected.slate(row)));
                    let sizes = [num_actions, latent_dim, rows, slate_size, tensor as usize];
                    assert_eq!(row, None, "{manner}, P, L, N, K, bytes: {sizes:?}");
                    assert_eq!(found, expected);
                }
            }
        }
    }
}

/// Tensors of a megabyte put P = 12 345 actions into many blocks; half of them is uploaded again for
/// every search.
#[test]
fn a_megabyte_is_enough() {
    let Some(mut chosen) = adapter(1 << 20) else { return };
    chosen.memory = Some(Memory { tensor: 1 << 20, budget: Some(1 << 23) });
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 1);
    let beta = normals(&mut stream, 12_345, 100);
    let latent = normals(&mut stream, 600, 100);
    let (host, on_device) = searches(beta, &chosen);
    for slate_size in [5, 100, 300] {
        let queries = Queries { latent: &latent, slate_size, excluded: None };
        let expected = host.search(queries).unwrap();
        for search in &on_device {
            assert_eq!(search.search(queries).unwrap(), expected);
        }
    }
}

/// Actions that get better and better pass every threshold, more than there is room for.
#[test]
fn a_catalogue_in_the_worst_order_is_searched_all_the_same() {
    let Some(chosen) = adapter(1 << 20) else { return };
    let beta = Matrix::new((1..=20_000).map(|action| action as f32).collect(), 1).unwrap();
    let (host, on_device) = searches(beta, &chosen);
    let latent = Matrix::new(vec![1.0, -1.0, 0.0, 0.5], 1).unwrap();
    let queries = Queries { latent: &latent, slate_size: 20, excluded: None };
    for search in &on_device {
        assert_eq!(search.search(queries).unwrap(), host.search(queries).unwrap());
    }
}

#[test]
fn shared_candidates_come_from_the_device() {
    let Some(chosen) = adapter(1 << 20) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 2);
    let (beta, centres) = (normals(&mut stream, 2000, 16), normals(&mut stream, 8, 16));
    let queries =
        Matrix::new(centres.iter_rows().flat_map(|centre| [centre, centre].concat()).collect(), 16)
            .unwrap();
    let (host, on_device) = searches(beta, &chosen);
    let actions = Arc::clone(host.actions());
    let search = |retriever: Arc<dyn Retriever>| {
        let candidates = Candidates::new(retriever, Arc::clone(&actions), 100);
        let asked = Queries { latent: &centres, slate_size: 5, excluded: None };
        candidates.search(asked, &queries).unwrap()
    };
    let expected = search(Arc::new(host.clone()));
    for on_device in on_device {
        let found = search(Arc::new(on_device));
        assert_eq!(found.actions(), expected.actions());
        for row in 0..found.len() {
            let pairs = found.scores(row).iter().zip(expected.scores(row));
            assert!(pairs.into_iter().all(|(found, expected)| (found - expected).abs() < 1e-4));
        }
    }
}

/// The same scores but for rounding lead to the same slates, and to gradients that differ by rounding.
#[test]
fn plackett_luce_draws_the_same_with_products_of_the_device() {
    let Some(chosen) = adapter(1 << 17) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 3);
    let (beta, h) = (normals(&mut stream, 3000, 12), normals(&mut stream, 11, 12));
    let (host, [search, _]) = searches(beta, &chosen);
    let sampling = Sampling { num_samples: 5, slate_size: 4, excluded: None, seed: Seed(1) };
    let actions = Arc::clone(host.actions());
    let on_host = PlackettLuce::new(actions, SlateDraws::PrefixSums, sampling).unwrap();
    let on_device = on_host.clone().on(search.blocks());
    let contexts: Vec<u32> = (0..11).collect();
    let rows = BatchRows { step: 3, contexts: &contexts, h: &h };
    let (expected, found) = (on_host.sample(rows).unwrap(), on_device.sample(rows).unwrap());
    assert_eq!(found.slates.actions(), expected.slates.actions());
    let pairs = found.scores.as_slice().iter().zip(expected.scores.as_slice());
    for (found, expected) in pairs {
        assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
    }
    assert_ne!(found.scores, expected.scores, "these are the host's");
}

/// Users of the folds are searched for in the vectors of their fold, others in β.
#[test]
fn a_task_decides_on_the_device_as_on_the_host() {
    let Some(chosen) = adapter(1 << 20) else { return };
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let settings = Preset::Default.settings();
    let host = Task::load(&prepared, &settings).unwrap();
    assert!(host.training_groups().len() > 1, "these settings have folds");
    let device = host.clone().on(&chosen).unwrap();
    assert!(device.exact.blocks().is_some() && host.exact.blocks().is_none());
    let model = host.initial_model(&settings, &chosen.device).unwrap();
    for split in [Split::Train, Split::Test] {
        let contexts = host.sessions.contexts(split);
        let decided = |task: &Task| task.decide(&model, &contexts, task.exact.as_ref()).unwrap();
        assert_eq!(decided(&device), decided(&host));
    }
}

#[test]
fn the_command_line_searches_on_the_device() {
    if adapter(1 << 20).is_none() {
        return;
    }
    let json = |command: &mut Command| -> Value { serde_json::from_str(&stdout(command)).unwrap() };
    let listed = json(slate().args(["info", "devices", "--json"]));
    let wgpu = listed["devices"].as_array().unwrap().iter().find(|row| row["name"] == "wgpu");
    assert!(wgpu.unwrap()["largest_tensor"].as_u64().unwrap() >= 1 << 20, "{listed}");

    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    small(&data);
    let mut train = slate();
    train.arg("train").arg("--data").arg(&data).arg("--out").arg(&run);
    stdout(train.args(["--steps", "3", "--device", "wgpu", "--device-memory", "64MB"]));
    let bundle = folder.path().join("bundle");
    stdout(slate().arg("export").arg(&run).arg("--out").arg(&bundle).arg("--histories"));
    let slates = |device: &str| {
        stdout(slate().arg("recommend").arg(&bundle).args(["--user", "3", "--device", device]))
    };
    assert_eq!(slates("wgpu"), slates(device::compiled()[0]));

    let mut bench = slate();
    bench.args(["bench", "search", "--device", "wgpu", "--actions", "5000", "--queries", "20"]);
    bench.args([
        "--slate-size",
        "5",
        "--repetitions",
        "1",
        "--product",
        "64",
        "--excluded",
        "3",
        "--json",
    ]);
    let measured = json(&mut bench);
    assert_eq!(
        (&measured["device"], &measured["searches"][0]["actions"]),
        (&"wgpu".into(), &5000.into())
    );
    bench.args(["--device-memory", "1KB"]);
    assert!(refused(&mut bench).contains("--device-memory"));
}
