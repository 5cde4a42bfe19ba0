//! The learner step's gradient in θ, through each tower, against finite differences of the
//! surrogate loss `−⟨h(θ), g⟩ / B`.

use burn::module::Module as _;
use burn::optim::SgdConfig;
use burn::train::TrainStep as _;
use fast_slate::Result;
use fast_slate::device;
use fast_slate::estimator::{BatchRows, Estimator, Gradient, Samples};
use fast_slate::matrix::{Matrix, dot};
use fast_slate::model::{Model, SigmaFactor};
use fast_slate::seed::{Purpose, Seed};
use fast_slate::tower::{LinearTower, SigmoidMlp, Tower, to_host};
use fast_slate::training::{Batch, Learner};

const B: usize = 5;
const D: usize = 4;
const L: usize = 3;

/// The gradient in log σ that [`Fixed`] returns.
const LOG_SIGMA: f32 = 0.25;

/// Returns a fixed g, whatever h is.
#[derive(Debug)]
struct Fixed(Matrix);

impl Estimator for Fixed {
    fn sample(&self, _rows: BatchRows<'_>) -> Result<Samples> {
        Ok(Samples { rewards: vec![1.0; B], terms: self.0.clone(), sigma_terms: Vec::new() })
    }

    fn finish(&self, samples: Samples) -> Gradient {
        Gradient { h: samples.terms, log_sigma: Some(LOG_SIGMA) }
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
    }
}

fn check(build: impl Fn(&[Matrix]) -> Tower, theta: &[Matrix]) {
    let (inputs, g) = (normals(10, B, D), normals(11, B, L));
    let learner = Learner::new(build(theta).into(), Fixed(g.clone()).into());
    let batch = Batch { step: 0, contexts: vec![0; B], inputs: inputs.clone() };
    let output = learner.step(batch);
    let reward = output.item.reward.unwrap();
    assert!((reward - 1.0).abs() < 1e-6);
    let mut descent = SgdConfig::new().init();
    let stepped = learner.optimize(&mut descent, 1.0.into(), output.grads);
    let after = parameters(&stepped.model().valid().tower.unwrap());

    let loss = |theta: &[Matrix]| {
        let h = build(theta).latent(&inputs).unwrap();
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
    }
}

#[test]
fn a_learned_sigma_follows_its_gradient_and_keeps_its_floor() {
    let device = device::choose(Some(device::compiled()[0])).unwrap().device;
    let floor = 0.1;
    let tower = Tower::Linear(LinearTower::new(&normals(0, D, L), &device));
    let model = Model { sigma: Some(SigmaFactor::new(floor, &device)), ..tower.into() };
    let g = normals(11, B, L);
    let batch = Batch { step: 0, contexts: vec![0; B], inputs: normals(10, B, D) };
    let mut descent = SgdConfig::new().init();

    let learner = Learner::new(model, Fixed(g).into());
    assert!((learner.model().valid().sigma_factor().unwrap() - 1.0).abs() < 1e-6);
    let grads = learner.step(batch.clone()).grads;
    let stepped = learner.optimize(&mut descent, 1.0.into(), grads);
    // At ρ = 0 the factor is 1 and d log factor / dρ = 1 − floor: ρ rises by that share of the
    // gradient in log σ.
    let rho = LOG_SIGMA * (1.0 - floor);
    let expected = floor + (1.0 - floor) * rho.exp();
    assert!((stepped.model().valid().sigma_factor().unwrap() - expected).abs() < 1e-5);

    let grads = stepped.step(batch).grads;
    let fallen = stepped.optimize(&mut descent, (-1e3).into(), grads);
    let factor = fallen.model().valid().sigma_factor().unwrap();
    assert!((factor - floor).abs() < 1e-6, "{factor}");
}
