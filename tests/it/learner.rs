//! The learner step's gradient in θ, through each tower, against finite differences of the
//! surrogate loss `−⟨h(θ), g⟩ / B`; what the residual tower promises of its start and scale;
//! and what the optimiser's settings do to a step.

use burn::module::{Module as _, Param};
use burn::optim::SgdConfig;
use burn::train::TrainStep as _;
use fast_slate::Result;
use fast_slate::device;
use fast_slate::encoder::EncoderKind;
use fast_slate::estimator::{BatchRows, Estimator, Gradient};

use fast_slate::facade::{Policy, Which};
use fast_slate::matrix::{Matrix, dot, norm};
use fast_slate::reward::RewardKind;
use fast_slate::seed::{Purpose, Seed};
use fast_slate::settings::Preset;
use fast_slate::tower::{
    Activation, LinearTower, ResidualMlp, SigmoidMlp, Tower, TowerKind, TowerSettings, to_device,
    to_host,
};
use fast_slate::training::{Batch, Learner, adam};

use crate::common::{devices, small};

const B: usize = 5;
const D: usize = 4;
const L: usize = 3;

/// Returns a fixed g, whatever h is.
#[derive(Debug)]
struct Fixed(Matrix);

impl Estimator for Fixed {
    fn gradient(&self, _rows: BatchRows<'_>) -> Result<Gradient> {
        Ok(Gradient { h: self.0.clone(), rewards: vec![1.0; B] })
    }
}

fn normals(position: u64, rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Seed(1).stream(Purpose::Synthetic, 0, position).fill_normals(matrix.as_mut_slice());
    matrix
}

/// θ after one plain gradient step of length 1, and θ before, as flat matrices.
fn parameters(tower: &Tower) -> Vec<Matrix> {
    match tower {
        Tower::Linear(tower) => vec![to_host(tower.theta.val()).unwrap()],
        Tower::SigmoidMlp(tower) => {
            vec![to_host(tower.theta_1.val()).unwrap(), to_host(tower.theta_2.val()).unwrap()]
        }
        Tower::ResidualMlp(tower) => {
            let layers = tower.hidden.iter().chain([&tower.output]).chain(&tower.balance);
            layers.map(|weights| to_host(weights.val()).unwrap()).collect()
        }
    }
}

fn check(build: impl Fn(&[Matrix]) -> Tower, theta: &[Matrix]) {
    check_of(&normals(10, B, D), build, theta);
}

fn check_of(inputs: &Matrix, build: impl Fn(&[Matrix]) -> Tower, theta: &[Matrix]) {
    let g = normals(11, B, L);
    let learner = Learner::new(build(theta).into(), Fixed(g.clone()).into());
    let batch = Batch { step: 0, contexts: vec![0; B], inputs: inputs.clone() };
    let output = learner.step(batch);
    let reward = output.item.reward.unwrap();
    assert!((reward - 1.0).abs() < 1e-6);
    let mut descent = SgdConfig::new().init();
    let stepped = learner.optimize(&mut descent, 1.0.into(), output.grads);
    let after = parameters(&stepped.model().valid().tower.unwrap());

    let loss = |theta: &[Matrix]| {
        let h = build(theta).latent(inputs).unwrap();
        -f64::from(dot(h.as_slice(), g.as_slice())) / B as f64
    };
    let step = 1e-2;
    for (which, before) in theta.iter().enumerate() {
        for at in 0..before.as_slice().len() {
            let moved = |by: f32| {
                let mut theta = theta.to_vec();
                theta[which].as_mut_slice()[at] += by;
                loss(&theta)
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * f64::from(step));
            let found = f64::from(before.as_slice()[at] - after[which].as_slice()[at]);
            assert!(
                (found - expected).abs() < 2e-3,
                "parameter {which}, entry {at}: {found}, finite differences {expected}"
            );
        }
    }
}

#[test]
fn the_gradient_through_each_tower_is_that_of_finite_differences() {
    for name in device::compiled().into_iter().filter(|name| ["ndarray", "flex"].contains(name)) {
        let device = device::choose(Some(name)).unwrap().device;
        check(|theta| Tower::Linear(LinearTower::new(&theta[0], &device)), &[normals(0, D, L)]);
        check(
            |theta| Tower::SigmoidMlp(SigmoidMlp::new(&theta[0], &theta[1], &device)),
            &[normals(0, D, L), normals(1, L, L)],
        );
        let build = |settings: &TowerSettings, theta: &[Matrix]| {
            let tower = settings.init(&normals(10, B, D), L, Seed(0), &device).unwrap();
            let Tower::ResidualMlp(mut tower) = tower else { panic!("another tower") };
            let layers = tower.hidden.iter_mut().chain([&mut tower.output]);
            for (layer, theta) in layers.zip(theta) {
                *layer = Param::from_tensor(to_device(theta, &device));
            }
            Tower::ResidualMlp(tower)
        };
        for activation in [Activation::Gelu, Activation::Tanh, Activation::Sigmoid] {
            let settings = TowerSettings { activation, ..residual(&[6, 5]) };
            let theta = [normals(0, D, 6), normals(1, 6, 5), normals(2, 5, L)];
            check(|theta| build(&settings, theta), &theta);
        }
        let settings = fixed(&[6]);
        check(|theta| build(&settings, theta), &[normals(0, D - 1, 6), normals(1, 6, L - 1)]);
        // Two means and one more number.
        let inputs = normals(10, B, 2 * L + 1);
        let build = |theta: &[Matrix]| {
            let tower = balanced(&[]).init(&inputs, L, Seed(0), &device).unwrap();
            let Tower::ResidualMlp(mut tower) = tower else { panic!("another tower") };
            tower.output = Param::from_tensor(to_device(&theta[0], &device));
            tower.balance = Some(Param::from_tensor(to_device(&theta[1], &device)));
            Tower::ResidualMlp(tower)
        };
        check_of(&inputs, build, &[normals(0, L + 1, L), normals(1, 1, 1)]);
    }
}

fn residual(hidden: &[usize]) -> TowerSettings {
    TowerSettings {
        kind: TowerKind::ResidualMlp,
        hidden: hidden.to_vec(),
        ..TowerSettings::default()
    }
}

fn balanced(hidden: &[usize]) -> TowerSettings {
    TowerSettings { balance: true, ..residual(hidden) }
}

/// Leaves the first number alone.
fn fixed(hidden: &[usize]) -> TowerSettings {
    TowerSettings { fixed: 1, activation: Activation::Tanh, ..residual(hidden) }
}

fn bits(matrices: &[Matrix]) -> Vec<u32> {
    matrices.iter().flat_map(Matrix::as_slice).map(|value| value.to_bits()).collect()
}

#[test]
fn a_residual_tower_starts_as_the_linear_one_at_the_identity() {
    for device in devices() {
        let chosen = device::choose(Some(device)).unwrap();
        for (hidden, size) in [(&[][..], 1.0), (&[9], 0.03), (&[9, 7], 30.0)] {
            let mut contexts = normals(10, 40, D);
            contexts.as_mut_slice().iter_mut().for_each(|value| *value *= size);
            let latent = |settings: TowerSettings| {
                let tower = settings.init(&contexts, L, Seed(4), &chosen.device).unwrap();
                bits(&[tower.latent(&contexts).unwrap()])
            };
            let expected = latent(TowerSettings::default());
            for activation in
                [Activation::Relu, Activation::Gelu, Activation::Tanh, Activation::Sigmoid]
            {
                let settings = TowerSettings { activation, ..residual(hidden) };
                assert_eq!(latent(settings), expected, "{hidden:?} {activation:?} on {device}");
            }
        }
    }
}

#[test]
fn a_tower_that_balances_starts_with_the_first_mean_and_goes_towards_the_second() {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let contexts = normals(10, 40, 2 * L + 1);
    let tower = balanced(&[6]).init(&contexts, L, Seed(4), &device).unwrap();
    let first = TowerSettings::default().init(&contexts, L, Seed(4), &device).unwrap();
    let start = tower.latent(&contexts).unwrap();
    assert_eq!(bits(std::slice::from_ref(&start)), bits(&[first.latent(&contexts).unwrap()]));
    // What the second mean is says nothing about the scale of the layers.
    let mut others = contexts.clone();
    (0..40).for_each(|row| others.row_mut(row)[L..2 * L].fill(100.0));
    let Tower::ResidualMlp(mut tower) = tower else { panic!("another tower") };
    let form = |tower: &ResidualMlp| Tower::ResidualMlp(tower.clone()).form().unwrap();
    let same = balanced(&[6]).init(&others, L, Seed(4), &device).unwrap();
    assert_eq!(same.form().unwrap(), form(&tower));

    let mut moved = Matrix::zeros(1, 1);
    moved.as_mut_slice()[0] = 2.0;
    tower.balance = Some(Param::from_tensor(to_device(&moved, &device)));
    let share = tower.share().unwrap().unwrap();
    let h = Tower::ResidualMlp(tower).latent(&contexts).unwrap();
    for (context, h) in contexts.iter_rows().zip(h.iter_rows()) {
        for at in 0..L {
            let expected = context[at] + share * (context[L + at] - context[at]);
            assert!((h[at] - expected).abs() < 1e-5, "{} {expected}", h[at]);
        }
    }
}

#[test]
fn a_tower_leaves_fixed_numbers_alone_and_its_layers_say_so() {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let contexts = normals(10, B, D);
    for hidden in [&[][..], &[6], &[6, 5]] {
        let tower = after_steps(&fixed(hidden), &contexts, &normals(11, B, L), 5);
        let h = tower.latent(&contexts).unwrap();
        for (context, h) in contexts.iter_rows().zip(h.iter_rows()) {
            assert_eq!(context[0].to_bits(), h[0].to_bits());
            assert!((1..L).all(|at| context[at].to_bits() != h[at].to_bits()));
        }
        let layers = tower.layers().unwrap();
        let (first, last) = (&layers[0], layers.last().unwrap());
        assert_eq!((first.rows(), last.cols()), (D, L));
        assert!(first.row(0).iter().all(|&weight| weight == 0.0));
        assert!(last.iter_rows().all(|weights| weights[0] == 0.0));
        let again = tower.form().unwrap().tower(&layers, [D, L], &device).unwrap();
        for (h, again) in h.as_slice().iter().zip(again.latent(&contexts).unwrap().as_slice()) {
            assert!((h - again).abs() < 1e-5, "{h} {again}");
        }
    }
    let all = TowerSettings { fixed: L, ..residual(&[]) };
    let error = all.init(&contexts, L, Seed(0), &device).unwrap_err().to_string();
    assert!(error.contains("tower.fixed") && error.contains("leaves none of L = 3"), "{error}");
}

#[test]
fn tastes_are_balanced_under_a_reward_of_whole_slates_alone() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = small(&folder.path().join("data"));
    let share = |kind: RewardKind, encoder| {
        let mut settings = Preset::Default.settings();
        settings.reward.kind = kind;
        settings.context.encoders = vec![encoder];
        (settings.budget.amount, settings.evaluation.count) = (20, 1);
        let run = tempfile::tempdir().unwrap();
        let run = run.path().join("run");
        prepared.train(&settings, &run).unwrap();
        let policy = Policy::open(&run, Which::Last, None).unwrap();
        let Some(Tower::ResidualMlp(tower)) = policy.model.tower else { panic!("another tower") };
        tower.share().unwrap()
    };
    let mean = EncoderKind::WeightedMean;
    assert!(share(RewardKind::DiverseAnyHit, mean).is_some_and(|share| share != 0.0));
    assert_eq!(share(RewardKind::Dcg, mean), Some(0.0));
    // The user vector of ALS is no mean.
    assert_eq!(share(RewardKind::DiverseAnyHit, EncoderKind::FoldIn), None);
}

/// The tower of `settings` after some steps of Adam, and its queries.
fn trained(settings: &TowerSettings, size: f32, steps: u64) -> (Vec<Matrix>, Matrix) {
    let (mut inputs, mut g) = (normals(10, B, D), normals(11, B, L));
    inputs.as_mut_slice().iter_mut().for_each(|value| *value *= size);
    g.as_mut_slice().iter_mut().for_each(|value| *value /= size);
    let tower = after_steps(settings, &inputs, &g, steps);
    (parameters(&tower), tower.latent(&inputs).unwrap())
}

/// The tower of `settings` after some steps of Adam on `inputs` `[B, D]` with g `[B, L]`.
fn after_steps(settings: &TowerSettings, inputs: &Matrix, g: &Matrix, steps: u64) -> Tower {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let tower = settings.init(inputs, L, Seed(4), &device).unwrap();
    let mut learner = Learner::new(tower.into(), Fixed(g.clone()).into());
    let mut adam = adam(&Preset::Default.settings().optimizer);
    for step in 0..steps {
        let batch = Batch { step, contexts: vec![0; B], inputs: inputs.clone() };
        let grads = learner.step(batch).grads;
        learner = learner.optimize(&mut adam, 0.01.into(), grads);
    }
    learner.model().valid().tower.unwrap()
}

#[test]
fn a_residual_tower_learns_the_same_whatever_the_embeddings_are_multiplied_with() {
    // A gradient of the decision's reward in h falls as h grows.
    let settings = residual(&[9, 7]);
    let (expected, mut h) = trained(&settings, 1.0, 5);
    let (found, larger) = trained(&settings, 64.0, 5);
    assert_eq!(bits(&found), bits(&expected));
    h.as_mut_slice().iter_mut().for_each(|value| *value *= 64.0);
    assert_eq!(bits(&[larger]), bits(&[h]));
    assert_ne!(bits(&found), bits(&trained(&settings, 1.0, 0).0));
}

#[test]
fn clipping_shortens_the_gradient_of_all_parameters_together() {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let theta = [normals(0, D, L), normals(1, L, L)];
    let step = |clipping: f32| -> Vec<f32> {
        let tower = Tower::SigmoidMlp(SigmoidMlp::new(&theta[0], &theta[1], &device));
        let learner = Learner::new(tower.into(), Fixed(normals(11, B, L)).into());
        let learner = learner.with_clipping(clipping);
        let batch = Batch { step: 0, contexts: vec![0; B], inputs: normals(10, B, D) };
        let grads = learner.step(batch).grads;
        let stepped = learner.optimize(&mut SgdConfig::new().init(), 1.0.into(), grads);
        let after = parameters(&stepped.model().valid().tower.unwrap());
        let pairs = theta.iter().zip(&after);
        pairs
            .flat_map(|(before, after)| before.as_slice().iter().zip(after.as_slice()))
            .map(|(before, after)| before - after)
            .collect()
    };
    let whole = step(0.0);
    let length = norm(&whole);
    assert_eq!(step(2.0 * length), whole);
    let clipped = step(length / 4.0);
    let expected = whole.iter().map(|value| value / 4.0);
    assert!(clipped.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5));
}

#[test]
fn decay_takes_its_share_of_theta() {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let theta = normals(0, D, L);
    let step = |weight_decay| {
        let mut settings = Preset::Default.settings().optimizer;
        settings.weight_decay = weight_decay;
        let tower = Tower::Linear(LinearTower::new(&theta, &device));
        // A gradient of 0 in h: only decay moves θ.
        let mut learner = Learner::new(tower.into(), Fixed(Matrix::zeros(B, L)).into());
        let mut adam = adam(&settings);
        for step in 0..2 {
            let batch = Batch { step, contexts: vec![0; B], inputs: normals(10, B, D) };
            let grads = learner.step(batch).grads;
            learner = learner.optimize(&mut adam, 0.5.into(), grads);
        }
        parameters(&learner.model().valid().tower.unwrap()).remove(0)
    };
    assert_eq!(step(0.0), theta);
    let decayed = step(0.2);
    let pairs = decayed.as_slice().iter().zip(theta.as_slice());
    let mut off = pairs.map(|(after, before)| (after - 0.9 * 0.9 * before).abs());
    assert!(off.all(|off| off < 1e-6));
}
