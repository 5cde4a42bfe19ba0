//! Exact search on a GPU, here a software adapter, gives the answers of the host's, whatever the sizes.

use std::sync::Arc;

use assert_cmd::Command;
use burn::tensor::DType;
use fast_slate::dataset::{ActionSets, Sessions, Split};
use fast_slate::device::{self, Chosen, Manner, Memory};
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::estimator::{Estimator as _, PlRank};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{
    BatchRows, Distribution, PlackettLuce, Sampling, SlateDraws, SlatePolicy as _,
};
use fast_slate::retrieval::{Candidates, Exact, OnDevice, Queries, Retriever};
use fast_slate::reward::LinearReward;
use fast_slate::seed::{Purpose, Seed, Stream};
use fast_slate::settings::Preset;
use fast_slate::task::Task;
use serde_json::Value;

use crate::common::{devices, refused, skipped, slate, small, stdout};

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

/// The host's search, and those of the device in every manner that it has.
fn searches(beta: Matrix, chosen: &Chosen) -> (Exact, Vec<OnDevice>) {
    let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
    let mut manners = vec![Manner::Sweep];
    if chosen.device.supports_dtype(DType::F16) {
        manners.push(Manner::Half);
    } else {
        skipped("the adapter has no f16");
    }
    let by = |manner| OnDevice::by(manner, &actions, chosen).unwrap();
    let on_device = manners.into_iter().map(by).collect();
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
                for (search, manner) in on_device.iter().zip(["in f32", "in f16"]) {
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

/// Many blocks make a share of the catalogue, and ties lie across them: more of them than lists have room for.
#[test]
fn shares_of_many_blocks_keep_ties_and_leave_the_excluded_out() {
    let Some(chosen) = adapter(1 << 18) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 5);
    let beta = rounded(normals(&mut stream, 30_000, 8));
    let latent = rounded(normals(&mut stream, 170, 8));
    let excluded: Vec<Vec<u32>> =
        (0..170).map(|row| (row % 7..30_000).step_by(3 + row as usize % 5).collect()).collect();
    let (host, on_device) = searches(beta, &chosen);
    for search in &on_device {
        assert!(search.blocks().count() > 20);
        for (rows, slate_size) in [(3, 40), (170, 70)] {
            let first: Vec<u32> = (0..rows).collect();
            let latent = latent.select(&first);
            let lists: Vec<&[u32]> = excluded[..rows as usize].iter().map(Vec::as_slice).collect();
            let queries = Queries { latent: &latent, slate_size, excluded: Some(&lists) };
            assert_eq!(search.search(queries).unwrap(), host.search(queries).unwrap());
        }
    }
}

/// Actions that get better and better pass every threshold, and of those that are all alike more lie within
/// rounding of the best than there is room for.
#[test]
fn a_catalogue_in_the_worst_order_is_searched_all_the_same() {
    let Some(chosen) = adapter(1 << 20) else { return };
    let latent = Matrix::new(vec![1.0, -1.0, 0.0, 0.5, 1e-24], 1).unwrap();
    for better in [1.0, 0.0] {
        let beta = (1..=20_000).map(|action| 1.0 + better * action as f32);
        let (host, on_device) = searches(Matrix::new(beta.collect(), 1).unwrap(), &chosen);
        let queries = Queries { latent: &latent, slate_size: 20, excluded: None };
        for search in &on_device {
            assert_eq!(search.search(queries).unwrap(), host.search(queries).unwrap());
        }
    }
}

/// Vectors of any length, and of very different lengths, which f16 does not hold as they are.
#[test]
fn numbers_beyond_f16_are_searched_all_the_same() {
    let Some(chosen) = adapter(1 << 20) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 4);
    let (beta, latent) = (normals(&mut stream, 9000, 30), normals(&mut stream, 40, 30));
    let scaled = |factor: &dyn Fn(usize) -> f32| {
        let mut beta = beta.clone();
        for row in 0..beta.rows() {
            beta.row_mut(row).iter_mut().for_each(|number| *number *= factor(row));
        }
        beta
    };
    let alike = [1e-12, 1e-5, 1e7, 1e15].map(|factor| scaled(&|_| factor));
    // Numbers of f16 end at 65 504 and lose digits below 0.00006, whatever the scale: here half of the
    // vectors are zeros there, and the answers of queries that the others point away from.
    let mixed = scaled(&|row| if row % 2 == 0 { -1e6 } else { 1e-3 });
    let mut away = mixed.clone();
    away.as_mut_slice().iter_mut().for_each(|number| *number = number.abs());
    for row in (0..9000).step_by(2) {
        away.row_mut(row).iter_mut().for_each(|number| *number = -*number);
    }
    let mut positive = latent.clone();
    positive.as_mut_slice().iter_mut().for_each(|number| *number = number.abs());
    for (beta, latent) in
        alike.into_iter().chain([mixed]).map(|beta| (beta, &latent)).chain([(away, &positive)])
    {
        let (host, on_device) = searches(beta, &chosen);
        let queries = Queries { latent, slate_size: 7, excluded: None };
        let expected = host.search(queries).unwrap();
        for search in &on_device {
            assert_eq!(search.search(queries).unwrap(), expected);
        }
    }
    let actions = Arc::new(ActionEmbeddings::new(scaled(&|_| 1e-37)).unwrap());
    let error = OnDevice::by(Manner::Half, &actions, &chosen).unwrap_err().to_string();
    assert!(error.contains("f16"), "{error}");
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
        candidates.rank(&candidates.pools(asked).unwrap(), &queries, asked.slate_size).unwrap()
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

/// The same scores but for rounding lead to the same slates, and to gradients that differ by rounding: in
/// blocks smaller than a panel, in blocks of one panel, and in one block of all actions. Contexts range
/// from one whose actions are all alike to one that shows little else than its head.
#[test]
fn plackett_luce_draws_the_same_on_the_device() {
    const P: u32 = 10_000;
    let Some(mut chosen) = adapter(0) else { return };
    let mut stream = Seed(21).stream(Purpose::Synthetic, 3, 3);
    let (beta, mut h) = (normals(&mut stream, P as usize, 12), normals(&mut stream, 11, 12));
    for row in 0..11 {
        h.row_mut(row).iter_mut().for_each(|h| *h *= 0.2 * row as f32);
    }
    let pairs = |step: usize| {
        let of = |context: u32| (context..P).step_by(step).map(move |action| (context, action));
        ActionSets::from_pairs(11, (0..11).flat_map(of))
    };
    let (observed, hidden) = (pairs(97), pairs(101));
    let split = vec![Split::Train; 11];
    let sessions = Arc::new(Sessions { observed, hidden, split, num_actions: P as usize });
    let reward = LinearReward::dcg(4, Arc::clone(&sessions));
    let contexts: Vec<u32> = (0..11).collect();
    let rows = BatchRows { step: 3, contexts: &contexts, h: &h };
    let close = |found: &[f32], expected: &[f32]| {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
        }
    };
    for tensor in [1 << 13, 1 << 17, 1 << 24] {
        chosen.memory = Some(Memory { tensor, budget: None });
        let (host, mut on_device) = searches(beta.clone(), &chosen);
        // Where a search lies there in f16, β lies there in f32, too.
        let search: Arc<dyn Retriever> = Arc::new(on_device.pop().unwrap());
        for draws in [SlateDraws::PrefixSums, SlateDraws::Gumbel] {
            let excluded = (draws == SlateDraws::PrefixSums).then(|| Arc::clone(&sessions));
            let sampling = Sampling { num_samples: 5, slate_size: 4, excluded, seed: Seed(1) };
            let actions = Arc::clone(host.actions());
            let on_host = PlackettLuce::new(actions, draws, sampling).unwrap();
            let on_device = on_host.clone().on(&search).unwrap();
            let (expected, found) =
                (on_host.sample(rows).unwrap(), on_device.sample(rows).unwrap());
            assert_eq!(found.slates.actions(), expected.slates.actions(), "{draws:?}, {tensor}");
            close(found.scores.as_slice(), expected.scores.as_slice());
            assert_ne!(found.scores, expected.scores, "these are the host's");

            let gradient = |policy: &PlackettLuce| {
                PlRank::new(policy.clone(), &reward).unwrap().gradient(rows).unwrap()
            };
            let (expected, found) = (gradient(&on_host), gradient(&on_device));
            assert_eq!(found.rewards, expected.rewards);
            close(found.h.as_slice(), expected.h.as_slice());

            let log_probs = |policy: &PlackettLuce| {
                let beta = host.actions().beta();
                let of = |_, of: &Distribution| Ok(of.log_prob(&[of.head()[3], 7777, 8888]) as f32);
                policy.visit(beta, rows, of).unwrap()
            };
            close(&log_probs(&on_device), &log_probs(&on_host));
        }
    }
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
    let row = &measured["searches"][0];
    assert!(row["same"] == true && row["trials"]["sweep"].as_f64().unwrap() > 0.0, "{row}");
    assert!(
        row["trials"]["queries"].as_u64() > Some(200)
            && row["hardware"].as_str().unwrap().ends_with(')')
    );

    let mut step = slate();
    step.arg("bench").arg("step").arg(&data).args(["--steps", "1", "--device", "wgpu", "--json"]);
    let row = &json(slate().args(bench.get_args()).args(["--manner", "sweep"]))["searches"][0];
    assert_eq!((&row["manner"], &row["numbers"]), (&"sweep".into(), &"f32".into()));
    assert!(row["same"] == true && row["trials"].is_null(), "{row}");
    let measured = json(step.args(["--manner", "sweep"]));
    assert_eq!((&measured["manner"], &measured["numbers"]), (&"sweep".into(), &"f32".into()));
    let mut on_host = slate();
    on_host.args(["bench", "search", "--device", device::compiled()[0], "--manner", "half"]);
    assert!(refused(&mut on_host).contains("--manner"));
    bench.args(["--device-memory", "1KB"]);
    assert!(refused(&mut bench).contains("--device-memory"));
}
