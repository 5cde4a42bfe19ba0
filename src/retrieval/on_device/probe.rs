//! Before it is used, a search on a GPU is tried with some actions as queries: how precise the products of
//! the device are, and how long a search takes.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use serde::Serialize;

use super::{ORDINARY, OnDevice, WHOLE, floats, product};
use crate::device::{Manner, rows_to_device};
use crate::error::{Error, Result};
use crate::matrix::{Matrix, dot, norm};
use crate::retrieval::{Queries, Retriever as _, Slates};

/// The queries whose products are looked at.
const PROBED: usize = 64;

/// The most queries of a trial, as many as a training step has; there is one to so many actions.
const TRIED: (usize, usize) = (1024, 16);

/// A trial is repeated so often, unless it has taken so long.
const REPETITIONS: (usize, Duration) = (3, Duration::from_secs(1));

/// The relative rounding of a number with ten bits after the point, as f16 and TF32 have.
const TEN_BITS: f32 = 1.0 / 1024.0;

/// The seconds of a search in each manner, the fastest of a few.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trials {
    /// N, the number of queries.
    pub queries: usize,
    /// By Burn's products.
    pub products: f64,
    /// By sweeps in f32; none where the device does not search so.
    pub sweep: Option<f64>,
    /// By sweeps in f16; none where the device does not search so.
    pub half: Option<f64>,
}

impl Trials {
    /// The manner of the fastest.
    pub(super) fn fastest(self) -> Manner {
        let others = [(Manner::Sweep, self.sweep), (Manner::Half, self.half)];
        let others = others.into_iter().filter_map(|(manner, seconds)| Some((manner, seconds?)));
        let fastest = others.min_by(|a, b| a.1.total_cmp(&b.1));
        fastest
            .filter(|(_, seconds)| *seconds < self.products)
            .map_or(Manner::Products, |(manner, _)| manner)
    }
}

impl OnDevice {
    /// A bound on the error of a product of the device, relative to the norms of the query and of the
    /// longest vector.
    ///
    /// # Errors
    /// [`Error::Device`] if the device multiplies with fewer digits than f16.
    pub(super) fn measured_precision(&self) -> Result<f32> {
        let error = self.blocks.attempt(|| self.error())?;
        // Roundings add up to the whole of the bound in theory and to its root in practice, where a
        // product of shorter numbers is far above.
        let dim = self.blocks.actions().latent_dim() as f32;
        let (bound, usual) = (dim * f32::EPSILON, 4.0 * dim.sqrt() * f32::EPSILON);
        let precision = if error <= usual { bound } else { bound + TEN_BITS };
        if error <= precision {
            return Ok(precision + self.blocks.rounding());
        }
        let problem = format!("its products are off by {error} of the norms; use another device");
        Err(Error::Device { device: self.blocks.name().to_owned(), problem })
    }

    /// At most so many of the actions of the first block, `[N, L]`.
    fn probes(&self, most: usize) -> Matrix {
        let count = self.blocks.range(0).len();
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let probed: Vec<u32> = (0..count as u32).step_by(count.div_ceil(most).max(1)).collect();
        self.blocks.actions().beta().select(&probed)
    }

    /// The greatest error of Burn's products of the probes with some actions in f32, relative to the norms
    /// of the factors; a NaN is the greatest.
    fn error(&self) -> Result<f32> {
        let (beta, device) = (self.blocks.actions().beta(), self.blocks.device());
        let (latent, count) = (self.probes(PROBED), self.blocks.range(0).len().min(WHOLE));
        let up = |rows: &[f32]| rows_to_device(rows, beta.cols(), device);
        let rows = up(&beta.as_slice()[..count * beta.cols()]);
        let products = floats(product(&up(latent.as_slice()), &rows, &(0..count)))?;
        let greater = |a: f32, b: f32| if b <= a { a } else { b };
        let errors = latent.par_rows().zip(products.par_chunks(count)).map(|(query, products)| {
            let error = |(at, product): (usize, &f32)| {
                let row = beta.row(at);
                let norms = norm(query) * norm(row);
                if ORDINARY.contains(&norms) {
                    (product - dot(query, row)).abs() / norms
                } else {
                    0.0
                }
            };
            products.iter().enumerate().map(error).fold(0.0, greater)
        });
        Ok(errors.reduce(|| 0.0, greater))
    }

    /// The seconds of a search for some of the actions, and what it finds.
    pub(super) fn trial(&self) -> Result<(f64, Slates)> {
        let num_actions = self.blocks.actions().num_actions();
        let (most, each) = TRIED;
        let latent = self.probes((num_actions / each).clamp(PROBED, most));
        let slate_size = num_actions.min(10);
        let queries = Queries { latent: &latent, slate_size, excluded: None };
        // Once for kernels that are compiled when they are first used.
        let found = self.search(queries)?;
        let (mut fastest, begun) = (f64::INFINITY, Instant::now());
        let (repetitions, long) = REPETITIONS;
        for _ in 0..repetitions {
            let started = Instant::now();
            self.search(queries)?;
            fastest = fastest.min(started.elapsed().as_secs_f64());
            if begun.elapsed() > long {
                break;
            }
        }
        Ok((fastest, found))
    }
}
