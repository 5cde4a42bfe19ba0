//! Weights, their gradient and their moments in, weights and moments after a step of AdamW out: Burn's
//! step, to the last bit, in one pass over the numbers. Burn takes a dozen, which is a quarter of a
//! training step where L is 2 048. On a GPU it is Burn's own.

use burn::optim::{AdamW, AdamWConfig, AdamWState, AdaptiveMomentumState, LearningRate, Optimizer};
use burn::tensor::{Device, Tensor, TensorData};
use pulp::Arch;
use rayon::prelude::*;

use crate::device::is_host;
use crate::settings::OptimizerSettings;

/// Numbers that a thread takes at a time.
const PART: usize = 1 << 14;

/// AdamW with decoupled decay.
#[derive(Clone)]
pub(super) struct OnePass {
    burn: AdamW,
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    weight_decay: f32,
}

impl OnePass {
    pub(super) fn new(settings: &OptimizerSettings) -> Self {
        let OptimizerSettings { beta_1, beta_2, epsilon, weight_decay, .. } = *settings;
        let burn = AdamWConfig::new()
            .with_beta_1(beta_1)
            .with_beta_2(beta_2)
            .with_epsilon(epsilon)
            .with_weight_decay(weight_decay)
            .build();
        Self { burn, beta_1, beta_2, epsilon, weight_decay }
    }

    /// A step after the first.
    fn on_host<const D: usize>(
        &self,
        rate: LearningRate,
        weights: Tensor<D>,
        gradient: Tensor<D>,
        state: AdamWState<D>,
    ) -> (Tensor<D>, AdamWState<D>) {
        let (shape, device) = (weights.shape(), weights.device());
        let AdaptiveMomentumState { time, moment_1, moment_2, .. } = state.momentum;
        let [mut weights, gradient, mut first, mut second] =
            [weights, gradient, moment_1, moment_2].map(numbers);

        #[allow(
            clippy::cast_possible_truncation,
            reason = "Burn's scalars are of the weights' type"
        )]
        let (kept, rate) = ((1.0 - rate * f64::from(self.weight_decay)) as f32, rate as f32);
        let steps = i32::try_from(time + 1).unwrap_or(i32::MAX);
        let Self { beta_1, beta_2, epsilon, .. } = *self;
        let corrections = [1.0 - beta_1.powi(steps), 1.0 - beta_2.powi(steps)];
        let arch = Arch::new();
        weights
            .par_chunks_mut(PART)
            .zip(gradient.par_chunks(PART))
            .zip(first.par_chunks_mut(PART).zip(second.par_chunks_mut(PART)))
            .for_each(|((weights, gradient), (first, second))| {
                arch.dispatch(
                    #[inline(always)]
                    || {
                        let moments = first.iter_mut().zip(second);
                        for ((w, &g), (m, v)) in weights.iter_mut().zip(gradient).zip(moments) {
                            *m = *m * beta_1 + g * (1.0 - beta_1);
                            *v = *v * beta_2 + g * g * (1.0 - beta_2);
                            let step = *m / corrections[0];
                            let step = step / ((*v / corrections[1]).sqrt() + epsilon);
                            *w = *w * kept - step * rate;
                        }
                    },
                );
            });

        let tensor = |numbers| Tensor::from_data(TensorData::new(numbers, shape.clone()), &device);
        let moments = AdaptiveMomentumState::new(time + 1, tensor(first), tensor(second));
        (tensor(weights), AdamWState::new(moments))
    }
}

impl Optimizer for OnePass {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        weights: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamWState<D>>,
    ) -> (Tensor<D>, Option<AdamWState<D>>) {
        match state {
            Some(state) if is_host(&weights.device()) => {
                let (weights, state) = self.on_host(rate, weights, gradient, state);
                (weights, Some(state))
            }
            // The first step makes the moments.
            state => self.burn.step(rate, weights, gradient, state),
        }
    }

    fn to_device<const D: usize>(state: AdamWState<D>, device: &Device) -> AdamWState<D> {
        AdamW::to_device(state, device)
    }
}

/// The numbers of a tensor, which are not copied where nobody else holds it.
fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().expect("weights are of f32")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device;
    use crate::seed::{Purpose, Seed};
    use crate::settings::Preset;

    #[test]
    fn one_pass_gives_what_burn_gives_to_the_last_bit() {
        let settings = Preset::Default.settings().optimizer;
        let one_pass = OnePass::new(&settings);
        // More numbers than one part has.
        let shape = [150, 130];
        for name in ["ndarray", "flex"].into_iter().filter(|name| device::compiled().contains(name))
        {
            let device = device::choose(Some(name)).unwrap().device;
            assert!(is_host(&device), "{name}");
            let random = |position| {
                let mut numbers = vec![0.0; shape[0] * shape[1]];
                Seed(3).stream(Purpose::Initial, 0, position).fill_normals(&mut numbers);
                Tensor::<2>::from_data(TensorData::new(numbers, shape), &device)
            };
            let (mut found, mut expected) = ((random(0), None), (random(0), None));
            for step in 1..6 {
                let rate = 0.01 / step as f64;
                // As a gradient may be that is a product.
                let gradient = || random(step).reshape([shape[1], shape[0]]).transpose();
                found = one_pass.step(rate, found.0, gradient(), found.1);
                expected = one_pass.burn.step(rate, expected.0, gradient(), expected.1);
            }
            let bits = |(weights, state): (Tensor<2>, Option<AdamWState<2>>)| {
                let moments = state.unwrap().momentum;
                assert_eq!(moments.time, 5);
                [weights, moments.moment_1, moments.moment_2]
                    .map(|tensor| numbers(tensor).into_iter().map(f32::to_bits).collect::<Vec<_>>())
            };
            assert!(bits(found) == bits(expected), "{name}");
        }
    }
}
