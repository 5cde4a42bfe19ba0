//! Before it is used, a search on a GPU is tried with some made-up users as queries: whether it finds what the
//! host finds, and how long it takes.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::OnDevice;
use crate::device::Manner;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::retrieval::{Queries, Retriever as _, Slates};

/// The queries whose slates are compared with the host's, which takes a while for them.
const COMPARED: usize = 4;

/// The most queries of a trial, as many as a training step has; there is one to so many actions.
const TRIED: (usize, usize) = (1024, 16);

/// Actions in the history of a made-up user. An action by itself would be a query unlike others: those with the
/// same users are its equals.
const HISTORY: usize = 8;

/// A trial is repeated so often, unless it has taken so long.
const REPETITIONS: (usize, Duration) = (3, Duration::from_secs(1));

/// The seconds of a search in each manner, the fastest of a few.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trials {
    /// N, the number of queries.
    pub queries: usize,
    /// In f32.
    pub sweep: f64,
    /// In f16; none where the device does not search so.
    pub half: Option<f64>,
}

impl Trials {
    /// The manner of the fastest.
    pub(super) fn fastest(self) -> Manner {
        if self.half.is_some_and(|half| half < self.sweep) { Manner::Half } else { Manner::Sweep }
    }
}

impl OnDevice {
    /// Compares some slates with the host's.
    ///
    /// # Errors
    /// [`Error::Device`] if the device finds others; fails if the device fails.
    pub(super) fn compared(self) -> Result<Self> {
        let latent = self.probes(COMPARED);
        let slate_size = self.blocks.actions().num_actions().min(10);
        let queries = Queries { latent: &latent, slate_size, excluded: None };
        if self.search(queries)? == self.host.search(queries)? {
            return Ok(self);
        }
        let problem = "finds other slates than the host; use another device".to_owned();
        Err(Error::Device { device: self.blocks.name().to_owned(), problem })
    }

    /// So many made-up users, the means of their actions, `[N, L]`. Actions are numbered by popularity, and the
    /// popular ones are in more histories.
    fn probes(&self, users: usize) -> Matrix {
        let beta = self.blocks.actions().beta();
        let mut latent = Matrix::zeros(users, beta.cols());
        for user in 0..users {
            for at in 0..HISTORY {
                let place = (at * users + user) as f64 / (users * HISTORY) as f64;
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "below the number of actions"
                )]
                let action = (place * place * beta.rows() as f64) as usize;
                for (sum, number) in latent.row_mut(user).iter_mut().zip(beta.row(action)) {
                    *sum += number / HISTORY as f32;
                }
            }
        }
        latent
    }

    /// The seconds of a search for made-up users, and what it finds.
    pub(super) fn trial(&self) -> Result<(f64, Slates)> {
        let num_actions = self.blocks.actions().num_actions();
        let (most, each) = TRIED;
        let latent = self.probes((num_actions / each).clamp(64, most));
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
