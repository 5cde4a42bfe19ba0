//! How noisy a gradient estimate is: `E‖G − E G‖²` over the policy's draws, contexts given, and the
//! signal `‖E G‖²` beside it. G is the gradient of a batch in all parameters that are trained.

use burn::module::{Module as _, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::learner::{Batch, Learner};
use crate::error::{Error, Result};
use crate::seed::Purpose;
use crate::settings::Settings;
use crate::task::Task;

/// Variance and signal of a batch's gradient, averaged over batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientStatistics {
    /// `E‖G − E G‖²`.
    pub variance: f64,
    /// `‖E G‖²`, without the share of it that is the variance of the mean; may come out negative
    /// where the noise drowns it.
    pub signal: f64,
    /// Signal over variance.
    pub signal_to_noise: f64,
    /// Gradients drawn for each batch.
    pub draws: u64,
    /// Contexts in a batch.
    pub batch_size: usize,
    /// Batches averaged over.
    pub batches: usize,
}

/// Draws are addressed by steps that no training gets to.
const FIRST_STEP: u64 = 1 << 62;

/// Batches that a run's report averages over.
const BATCHES: usize = 4;

/// The batches on which a run reports its gradient: a fixed sample of its training contexts.
#[must_use]
pub fn batches(task: &Task, settings: &Settings) -> Vec<Batch> {
    // One group, as a batch of training is.
    let mut contexts = task.training_groups().swap_remove(0);
    settings.seed.stream(Purpose::Report, 1, 0).shuffle(&mut contexts);
    let batches = contexts.chunks_exact(settings.optimizer.batch_size.min(contexts.len()).max(1));
    let batch = |contexts: &[u32]| Batch {
        step: 0,
        inputs: task.contexts.select(contexts),
        contexts: contexts.to_vec(),
    };
    batches.take(BATCHES).map(batch).collect()
}

/// Estimates the gradient of each batch `draws` times, in the memory of two gradients.
///
/// # Errors
/// [`Error::Setting`] for fewer than two draws; those of the estimator.
pub fn gradient_statistics(
    learner: &Learner,
    batches: &[Batch],
    draws: u64,
) -> Result<GradientStatistics> {
    if draws < 2 {
        let problem = format!("a variance needs at least 2 draws, found {draws}");
        return Err(Error::setting("evaluation.gradient_draws", problem));
    }
    let (mut variance, mut signal) = (0.0, 0.0);
    for (at, batch) in batches.iter().enumerate() {
        let mut moments = Moments::default();
        for draw in 0..draws {
            let step = FIRST_STEP + at as u64 * draws + draw;
            let (gradients, _) = learner.gradient(&Batch { step, ..batch.clone() })?;
            moments.add(&flatten(learner, &gradients)?);
        }
        variance += moments.variance() / batches.len() as f64;
        signal += moments.signal() / batches.len() as f64;
    }
    Ok(GradientStatistics {
        variance,
        signal,
        signal_to_noise: if variance > 0.0 { signal / variance } else { 0.0 },
        draws,
        batch_size: batches.first().map_or(0, |batch| batch.contexts.len()),
        batches: batches.len(),
    })
}

/// Welford's running mean of vectors, and the sum of squared distances to it.
#[derive(Debug, Default)]
struct Moments {
    count: u64,
    mean: Vec<f64>,
    squares: f64,
}

impl Moments {
    fn add(&mut self, gradient: &[f32]) {
        self.count += 1;
        self.mean.resize(gradient.len(), 0.0);
        for (mean, value) in self.mean.iter_mut().zip(gradient) {
            let before = f64::from(*value) - *mean;
            *mean += before / self.count as f64;
            self.squares += before * (f64::from(*value) - *mean);
        }
    }

    fn variance(&self) -> f64 {
        self.squares / (self.count - 1) as f64
    }

    fn signal(&self) -> f64 {
        let squared: f64 = self.mean.iter().map(|mean| mean * mean).sum();
        squared - self.variance() / self.count as f64
    }
}

/// All gradients of a learner's parameters, one after the other.
fn flatten(learner: &Learner, gradients: &GradientsParams) -> Result<Vec<f32>> {
    struct Flatten<'a> {
        gradients: &'a GradientsParams,
        values: Vec<f32>,
        failed: Option<String>,
    }
    impl ModuleVisitor for Flatten<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let Some(gradient) = self.gradients.get::<D>(param.id) else { return };
            match gradient.try_into_data().map(TensorData::try_into_vec::<f32>) {
                Ok(Ok(values)) => self.values.extend(values),
                problem => self.failed = Some(format!("{problem:?}")),
            }
        }
    }
    let mut visitor = Flatten { gradients, values: Vec::new(), failed: None };
    learner.visit(&mut visitor);
    match visitor.failed {
        None => Ok(visitor.values),
        Some(problem) => Err(Error::library("reading a gradient", problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn moments_are_those_of_two_passes() {
        let mut stream = Seed(3).stream(Purpose::Synthetic, 0, 0);
        let mut draws = vec![[0.0_f32; 7]; 50];
        for draw in &mut draws {
            stream.fill_normals(draw);
            for value in draw.iter_mut() {
                *value += 2.0;
            }
        }
        let mut moments = Moments::default();
        for draw in &draws {
            moments.add(draw);
        }
        let mean = |i: usize| draws.iter().map(|draw| f64::from(draw[i])).sum::<f64>() / 50.0;
        let squares: f64 = (0..7)
            .flat_map(|i| draws.iter().map(move |draw| (f64::from(draw[i]) - mean(i)).powi(2)))
            .sum();
        assert!((moments.variance() - squares / 49.0).abs() < 1e-9);
        let length: f64 = (0..7).map(|i| mean(i).powi(2)).sum();
        assert!((moments.signal() - (length - squares / 49.0 / 50.0)).abs() < 1e-9);
    }
}
