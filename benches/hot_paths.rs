//! The hot paths, each alone: a training step, search, SVD, reward, the dense pass of PL-Rank. On
//! 3 000 users and 20 000 made-up items, so that a change shows within a minute:
//! `cargo bench -p fast-slate-benches -- step`. Against other software, and at other sizes, see
//! `artifacts/performance`.

#![allow(clippy::unwrap_used, reason = "a failing benchmark panics")]

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use burn::train::TrainStep as _;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::embedding::{SessionPart, SvdOptions, training_matrix, truncated_svd};
use fast_slate::estimator::{BatchRows, Estimator as _, PlRank};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{PlackettLuce, Sampling, SlateDraws};
use fast_slate::prepared::{Input, PrepareSettings, Prepared};
use fast_slate::retrieval::{Queries, Retriever};
use fast_slate::reward::LinearReward;
use fast_slate::seed::Seed;
use fast_slate::settings::{Preset, Settings, SettingsBuilder};
use fast_slate::task::Task;
use fast_slate::training::{Batches, Learner, adam};

static PREPARED: LazyLock<(tempfile::TempDir, Prepared)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let sessions =
        SyntheticSettings { actions: 20_000, topics: 200, ..SyntheticSettings::default() };
    let input = Input::Synthetic(sessions);
    let out = folder.path().join("data");
    let prepared = Prepared::create(&input, &PrepareSettings::default(), &out, false).unwrap();
    (folder, prepared)
});

/// The default preset with `sets` over it, and its task.
fn task(sets: &[String]) -> (Settings, Task) {
    let builder = SettingsBuilder::new(&Preset::Default.settings()).unwrap();
    let builder = sets.iter().fold(builder, |builder, set| builder.assignment(set).unwrap());
    let settings = builder.build().unwrap();
    let task = Task::load(&PREPARED.1, &settings).unwrap();
    (settings, task)
}

/// The queries of the first `count` training users.
fn queries(task: &Task, count: usize) -> (Vec<u32>, Matrix) {
    let users = task.sessions.contexts(Split::Train);
    let users: Vec<u32> = users.into_iter().cycle().take(count).collect();
    let h = task.contexts.select(&users);
    (users, h)
}

fn step(criterion: &mut Criterion) {
    let device = device::choose(None).unwrap().device;
    let mut group = criterion.benchmark_group("step");
    for (search, sets) in [
        ("exact", ["method.kind=lgp", "method.candidates=0"]),
        ("hnsw", ["method.kind=lgp-mips", "method.candidates=0"]),
        ("shared candidates", ["method.kind=lgp-mips", "method.candidates=32"]),
    ] {
        for samples in [1, 10, 100] {
            let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
            let (settings, task) =
                task(&[sets, vec![format!("method.samples={samples}")]].concat());
            let contexts = task.sessions.contexts(Split::Train);
            let mut batches = Batches::new(contexts, settings.optimizer.batch_size, settings.seed);
            let model = task.initial_model(&settings, &device).unwrap();
            let mut learner =
                Learner::new(model, task.estimator(&settings.method, settings.seed).unwrap());
            let mut adam = adam(&settings.optimizer);
            let mut step = 0;
            group.bench_function(BenchmarkId::new(search, samples), |bencher| {
                bencher.iter(|| {
                    let output = learner.step(batches.at(step, &task.contexts));
                    output.item.reward.unwrap();
                    learner = learner.clone().optimize(&mut adam, 1e-3.into(), output.grads);
                    step += 1;
                });
            });
        }
    }
}

fn search(criterion: &mut Criterion) {
    let (_, task) = task(&["method.kind=lgp-mips".to_owned()]);
    let mut group = criterion.benchmark_group("search");
    let searches: [(&str, &Arc<dyn Retriever>); 2] =
        [("exact", &task.exact), ("hnsw", task.graph.as_ref().unwrap())];
    for (name, retriever) in searches {
        for count in [320, 3200] {
            let (_, latent) = queries(&task, count);
            group.throughput(Throughput::Elements(count as u64));
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
                bencher.iter(|| retriever.search(queries).unwrap());
            });
        }
    }
}

fn svd(criterion: &mut Criterion) {
    let matrix = training_matrix(&PREPARED.1.sessions, SessionPart::All);
    let num_actions = PREPARED.1.sessions.num_actions;
    let mut group = criterion.benchmark_group("svd");
    group.sample_size(10).bench_function("100 of 20 000", |bencher| {
        bencher
            .iter(|| truncated_svd(&matrix, num_actions, SvdOptions::default(), Seed(0)).unwrap());
    });
}

fn reward(criterion: &mut Criterion) {
    let (_, task) = task(&[]);
    let (users, latent) = queries(&task, 3200);
    let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
    let slates = task.exact.search(queries).unwrap();
    criterion.bench_function("reward/3200 slates", |bencher| {
        bencher.iter(|| {
            let reward = |(at, user): (usize, &u32)| task.reward.reward(*user, slates.slate(at));
            black_box(users.iter().enumerate().map(reward).sum::<f32>())
        });
    });
}

fn pl_rank(criterion: &mut Criterion) {
    let (_, task) = task(&[]);
    let (contexts, h) = queries(&task, 32);
    let reward = LinearReward::discounted(5, Arc::clone(&task.sessions));
    let mut group = criterion.benchmark_group("pl-rank");
    for num_samples in [1, 100] {
        let sampling = Sampling { num_samples, slate_size: 5, excluded: None, seed: Seed(0) };
        let policy = PlackettLuce::new(Arc::clone(&task.actions), SlateDraws::default(), sampling);
        let estimator = PlRank::new(policy.unwrap(), &reward).unwrap();
        let rows = BatchRows { step: 0, contexts: &contexts, h: &h, sigma_factor: 1.0 };
        group.bench_function(BenchmarkId::new("dense pass", num_samples), |bencher| {
            bencher.iter(|| estimator.gradient(rows).unwrap());
        });
    }
}

criterion_group!(benches, step, search, svd, reward, pl_rank);
criterion_main!(benches);
