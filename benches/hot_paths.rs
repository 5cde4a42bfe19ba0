//! The hot paths, each alone: a training step, search, SVD, reward, the dense pass of PL-Rank. On
//! 3 000 users and 20 000 synthetic items, so that a change shows within a minute:
//! `cargo bench -- step`. `artifacts/performance` compares with other software, at other sizes.

#![allow(clippy::unwrap_used, reason = "a failing benchmark panics")]

use std::sync::{Arc, LazyLock};

use burn::train::TrainStep as _;
use divan::Bencher;
use divan::counter::ItemsCount;
use fast_slate::dataset::{Split, SyntheticSettings};
use fast_slate::device;
use fast_slate::embedding::{SessionPart, SvdOptions, training_matrix, truncated_svd};
use fast_slate::estimator::{BatchRows, Estimator as _, PlRank};
use fast_slate::matrix::Matrix;
use fast_slate::policy::{PlackettLuce, Sampling, SlateDraws};
use fast_slate::prepared::{EmbeddingSource, Input, PrepareSettings, Prepared};
use fast_slate::retrieval::{Queries, Retriever, Search};
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
    // Named, so that what is measured does not depend on how fast a league was.
    let embedding =
        EmbeddingSource::Svd { interactions: SessionPart::All, options: SvdOptions::default() };
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    let prepared = Prepared::create(&input, &settings, &out, false).unwrap();
    (folder, prepared)
});

fn main() {
    divan::main();
}

/// The default preset with `sets` over it, and its task.
fn task(sets: &[&str]) -> (Settings, Task) {
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

/// A step of training with S samples, for each way to search.
#[divan::bench(args = [1, 10, 100], consts = [0, 1, 2])]
fn step<const SEARCH: usize>(bencher: Bencher, samples: usize) {
    let search = [
        ["method.kind=lgp", "method.candidates=0"],
        ["method.kind=lgp-mips", "method.candidates=0"],
        ["method.kind=lgp-mips", "method.candidates=32"],
    ][SEARCH];
    let samples = format!("method.samples={samples}");
    let (settings, task) = task(&[search[0], search[1], &samples]);
    let contexts = task.sessions.contexts(Split::Train);
    let mut batches = Batches::new(vec![contexts], settings.optimizer.batch_size, settings.seed);
    let device = device::choose(None).unwrap().device;
    let model = task.initial_model(&settings, &device).unwrap();
    let estimator = task.estimator(&settings.method, settings.seed).unwrap();
    let mut learner = Learner::new(model, estimator);
    let mut adam = adam(&settings.optimizer);
    let mut step = 0;
    bencher.bench_local(|| {
        let output = learner.step(batches.at(step, &task.contexts));
        output.item.reward.unwrap();
        learner = learner.clone().optimize(&mut adam, 1e-3.into(), output.grads);
        step += 1;
    });
}

fn search(bencher: Bencher, count: usize, retriever: impl Fn(&Task) -> Arc<dyn Retriever>) {
    let (_, task) = task(&[]);
    let (_, latent) = queries(&task, count);
    let retriever = retriever(&task);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
        retriever.search(queries).unwrap()
    });
}

#[divan::bench(args = [320, 3200])]
fn search_exact(bencher: Bencher, count: usize) {
    search(bencher, count, |task| task.search(Search::Exact).unwrap());
}

#[divan::bench(args = [320, 3200])]
fn search_graph(bencher: Bencher, count: usize) {
    search(bencher, count, |task| task.search(Search::Hnsw).unwrap());
}

/// 100 components of a matrix with 20 000 columns.
#[divan::bench(sample_count = 10)]
fn svd(bencher: Bencher) {
    let matrix = training_matrix(&PREPARED.1.sessions, SessionPart::All);
    let num_actions = PREPARED.1.sessions.num_actions;
    bencher.bench_local(|| {
        truncated_svd(&matrix, num_actions, SvdOptions::default(), Seed(0)).unwrap()
    });
}

/// The rewards of 3 200 slates.
#[divan::bench]
fn reward(bencher: Bencher) {
    let (_, task) = task(&[]);
    let (users, latent) = queries(&task, 3200);
    let queries = Queries { latent: &latent, slate_size: 5, excluded: None };
    let slates = task.exact.search(queries).unwrap();
    bencher.bench_local(|| {
        let reward = |(at, user): (usize, &u32)| task.reward.reward(*user, slates.slate(at));
        users.iter().enumerate().map(reward).sum::<f32>()
    });
}

/// The pass over all actions and the S slates of 32 contexts.
#[divan::bench(args = [1, 100])]
fn pl_rank(bencher: Bencher, num_samples: usize) {
    let (_, task) = task(&[]);
    let (contexts, h) = queries(&task, 32);
    let reward = LinearReward::discounted(5, Arc::clone(&task.sessions));
    let sampling = Sampling { num_samples, slate_size: 5, excluded: None, seed: Seed(0) };
    let policy = PlackettLuce::new(Arc::clone(&task.actions), SlateDraws::default(), sampling);
    let estimator = PlRank::new(policy.unwrap(), &reward).unwrap();
    let rows = BatchRows { step: 0, contexts: &contexts, h: &h };
    bencher.bench_local(|| estimator.gradient(rows).unwrap());
}
