//! β in, β on a GPU out, cut into blocks of actions. A block and its products with the queries of a
//! batch are tensors that the device can hold; what does not fit into the budget stays on the host and
//! is uploaded whenever it is asked for.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::ActionEmbeddings;
use crate::device::{Chosen, Memory, rows_to_device};
use crate::error::{Error, Result};

/// The most queries that meet a block at once.
const QUERIES: usize = 4096;

/// The number of actions in a block is a multiple of this, which is one of every tile of a product,
/// except in blocks that are smaller.
const TILE: usize = 256;

/// The least that a tensor is cut down to when the device has no memory left.
const LEAST_TENSOR: u64 = 1 << 20;

/// Tensors of the largest size that a pass over β needs beside β itself: two blocks on their way, and
/// the products of both.
const AT_WORK: u64 = 4;

/// β `[P, L]` on a GPU.
#[derive(Clone, Debug)]
pub struct Blocks {
    actions: Arc<ActionEmbeddings>,
    device: Device,
    name: &'static str,
    /// Actions in a block; the last one may have fewer.
    size: usize,
    queries: usize,
    /// The first blocks. The others are uploaded when they are asked for.
    resident: Vec<Tensor<2>>,
}

impl Blocks {
    /// β on the `chosen` GPU. Smaller tensors are tried as long as the device refuses them.
    ///
    /// # Errors
    /// [`Error::Device`] for a CPU, and when the device has too little memory.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        let refused = |problem: String| Error::Device { device: chosen.name.to_owned(), problem };
        let Some(memory) = chosen.memory else {
            return Err(refused("is no GPU, so β stays on the host".into()));
        };
        let mut tensor =
            memory.tensor.min(memory.budget.map_or(u64::MAX, |all| all / (2 * AT_WORK)));
        loop {
            let Some((size, queries)) = sizes(tensor, actions) else {
                let problem = format!(
                    "a tensor of {tensor} bytes does not hold a few vectors of {} numbers; give it \
                     more memory (--device-memory)",
                    actions.latent_dim()
                );
                return Err(refused(problem));
            };
            let Chosen { device, name, .. } = chosen.clone();
            let resident = Vec::new();
            let mut blocks =
                Self { actions: Arc::clone(actions), device, name, size, queries, resident };
            if blocks.upload(memory, tensor) {
                return Ok(blocks);
            }
            tensor /= 2;
            if tensor < LEAST_TENSOR {
                let problem = "has no memory left; close what else uses it, or keep less there \
                               (--device-memory)";
                return Err(refused(problem.into()));
            }
            tracing::warn!("{name} has no memory for more: its tensors get {tensor} bytes");
        }
    }

    /// Uploads as many blocks as the budget has room for. False if the device cannot even work.
    fn upload(&mut self, memory: Memory, tensor: u64) -> bool {
        let budget = memory.budget.unwrap_or(u64::MAX).saturating_sub(AT_WORK * tensor);
        let bytes = (4 * self.size * self.actions.latent_dim()) as u64;
        let fits = usize::try_from(budget / bytes).unwrap_or(usize::MAX).min(self.count());
        for at in 0..fits {
            let Ok(block) = self.attempt(|| Ok(self.uploaded(at))) else {
                // A part is given back: the passes over β need room, too.
                self.resident.truncate(at - at.div_ceil(4));
                break;
            };
            self.resident.push(block);
        }
        if self.resident.len() < self.count() {
            let (there, all) = (self.resident.len(), self.count());
            tracing::info!("{} keeps {there} of {all} blocks of β; others are uploaded", self.name);
        }
        let products = || Tensor::<2>::zeros([self.queries, self.size], &self.device);
        self.attempt(|| Ok((products(), products()))).is_ok()
    }

    /// What `work` makes of the device, once the device has done it. A panic of the driver is its
    /// failure.
    ///
    /// # Errors
    /// [`Error::Device`], which names the setting of the memory; fails as `work` does.
    pub fn attempt<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let failed = |problem: &dyn std::fmt::Debug| Error::Device {
            device: self.name.to_owned(),
            problem: format!(
                "{problem:?}; if that was its memory, keep less there (--device-memory)"
            ),
        };
        let made = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            failed(&text.unwrap_or("the driver failed"))
        })??;
        self.device.sync().map_err(|error| failed(&error))?;
        Ok(made)
    }

    /// β on the host.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The name of the device, as `--device` takes it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The most queries whose products with a block fit.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// The most products of queries and a block, the numbers of the largest tensor.
    #[must_use]
    pub fn products(&self) -> usize {
        self.queries * self.size
    }

    /// Number of blocks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.actions.num_actions().div_ceil(self.size)
    }

    /// The actions of a block.
    #[must_use]
    pub fn range(&self, at: usize) -> Range<usize> {
        at * self.size..((at + 1) * self.size).min(self.actions.num_actions())
    }

    /// β of a block, `[actions, L]`.
    #[must_use]
    pub fn block(&self, at: usize) -> Tensor<2> {
        self.resident.get(at).cloned().unwrap_or_else(|| self.uploaded(at))
    }

    fn uploaded(&self, at: usize) -> Tensor<2> {
        let (rows, dim) = (self.range(at), self.actions.latent_dim());
        let numbers = &self.actions.beta().as_slice()[rows.start * dim..rows.end * dim];
        rows_to_device(numbers, dim, &self.device)
    }
}

/// The actions of a block and the queries that meet it, so that neither a block nor their products are
/// larger than `tensor` bytes; none where not even one action fits.
fn sizes(tensor: u64, actions: &ActionEmbeddings) -> Option<(usize, usize)> {
    let numbers = usize::try_from(tensor / 4).unwrap_or(usize::MAX);
    // Not more queries than actions: every block is read once for so many queries.
    let queries = QUERIES.min(1 << (numbers.max(1).ilog2() / 2));
    let size = numbers / queries.max(actions.latent_dim());
    let size = if size > TILE { size / TILE * TILE } else { size };
    let size = size.min(actions.num_actions().next_multiple_of(TILE));
    (size > 0).then_some((size, queries))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn blocks_and_products_fit_and_cover_all_actions() {
        for (num_actions, latent_dim) in [(1, 1), (5000, 3), (70_001, 100), (3000, 1024)] {
            let beta = Matrix::new(vec![0.5; num_actions * latent_dim], latent_dim).unwrap();
            let actions = ActionEmbeddings::new(beta).unwrap();
            for tensor in [1 << 14, 1 << 20, 1 << 27, 1 << 30] {
                let (size, queries) = sizes(tensor, &actions).unwrap();
                let most = usize::try_from(tensor / 4).unwrap();
                assert!(size * latent_dim <= most && size * queries <= most, "{size} × {queries}");
                assert!(size < TILE || size.is_multiple_of(TILE), "{size}");
                assert!(queries >= 64, "{queries}");
            }
            assert!(sizes(3, &actions).is_none());
        }
    }
}
