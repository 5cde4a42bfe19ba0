//! β in, β on a GPU out, cut into blocks of actions. A block and its products with the queries of a batch are
//! tensors that the device can hold; what does not fit into the budget stays on the host and is uploaded whenever
//! it is asked for.

mod format;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use burn::tensor::{DType, Device, Tensor};

pub use self::format::RowFormat;
use super::ActionEmbeddings;
use crate::device::{Chosen, Memory, data};
use crate::error::{Error, Result};

/// The most and the fewest queries whose products with a block fit into a tensor.
const QUERIES: (usize, usize) = (4096, 64);

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
    chosen: Chosen,
    format: RowFormat,
    /// Actions in a block; the last one may have fewer.
    size: usize,
    queries: usize,
    /// The first blocks. The others are uploaded when they are asked for.
    resident: Vec<Tensor<2>>,
    /// β in f32 and in order beside this, once it has been asked for.
    beside: OnceLock<Arc<Blocks>>,
}

impl Blocks {
    /// β on the `chosen` GPU. Smaller tensors are tried as long as the device refuses them.
    ///
    /// # Errors
    /// [`Error::Device`] for a CPU, and when the device has too little memory.
    pub fn new(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        Self::with(actions, chosen, RowFormat::in_order(actions.latent_dim()))
    }

    /// β on the `chosen` GPU, the actions of each block [shuffled](RowFormat::stride): any part of it is like the
    /// whole, whatever the order of the catalogue.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn shuffled(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        Self::with(actions, chosen, RowFormat::shuffled(actions.latent_dim()))
    }

    /// β on the `chosen` GPU shuffled and in f16, times a power of two that takes the longest vector near the middle of
    /// f16: half the memory, and a [`precision`](RowFormat::precision) of fewer digits.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Device`] if the device has no f16, or the longest vector no ordinary
    /// length.
    pub fn in_half(actions: &Arc<ActionEmbeddings>, chosen: &Chosen) -> Result<Self> {
        let refused =
            |problem: &str| Error::Device { device: chosen.name.into(), problem: problem.into() };
        if !chosen.device.supports_dtype(DType::F16) {
            return Err(refused("has no f16"));
        }
        let format = RowFormat::in_half(actions.beta());
        let format = format.ok_or_else(|| refused("f16 does not hold vectors so short or long"))?;
        Self::with(actions, chosen, format)
    }

    /// These blocks if they are in f32 and in order, else such blocks beside them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_order(self: &Arc<Self>) -> Result<Arc<Self>> {
        if self.format.is_in_order() {
            return Ok(Arc::clone(self));
        }
        if let Some(beside) = self.beside.get() {
            return Ok(Arc::clone(beside));
        }
        let numbers = self.resident.iter().map(|block| block.shape().num_elements());
        let taken = (self.format.number() * numbers.sum::<usize>()) as u64;
        let left = |memory: Memory| Memory {
            budget: memory.budget.map(|budget| budget.saturating_sub(taken)),
            ..memory
        };
        let memory = self.chosen.memory.map(left);
        let beside = Self::new(&self.actions, &Chosen { memory, ..self.chosen.clone() })?;
        Ok(Arc::clone(self.beside.get_or_init(|| Arc::new(beside))))
    }

    fn with(actions: &Arc<ActionEmbeddings>, chosen: &Chosen, format: RowFormat) -> Result<Self> {
        let refused = |problem: String| Error::Device { device: chosen.name.to_owned(), problem };
        let Some(memory) = chosen.memory else {
            return Err(refused("is no GPU, so β stays on the host".into()));
        };
        let mut tensor =
            memory.tensor.min(memory.budget.map_or(u64::MAX, |all| all / (2 * AT_WORK)));
        loop {
            let Some((size, queries)) = sizes(tensor, actions.num_actions(), format.width()) else {
                let problem = format!(
                    "a tensor of {tensor} bytes does not hold a few vectors of {} numbers; give it \
                     more memory (--device-memory)",
                    actions.latent_dim()
                );
                return Err(refused(problem));
            };
            let mut blocks = Self {
                actions: Arc::clone(actions),
                chosen: chosen.clone(),
                format,
                size,
                queries,
                resident: Vec::new(),
                beside: OnceLock::new(),
            };
            if blocks.upload(memory, tensor) {
                return Ok(blocks);
            }
            tensor /= 2;
            if tensor < LEAST_TENSOR {
                let problem = "has no memory left; close what else uses it, or keep less there \
                               (--device-memory)";
                return Err(refused(problem.into()));
            }
            tracing::warn!(
                "{} has no memory for more: its tensors get {tensor} bytes",
                chosen.name
            );
        }
    }

    /// Uploads as many blocks as the budget has room for. False if the device cannot even work.
    fn upload(&mut self, memory: Memory, tensor: u64) -> bool {
        let budget = memory.budget.unwrap_or(u64::MAX).saturating_sub(AT_WORK * tensor);
        let bytes = (self.format.number() * self.size * self.format.width()) as u64;
        let fits = usize::try_from(budget / bytes).unwrap_or(usize::MAX).min(self.count());
        for at in 0..fits {
            let Ok(block) = self.attempt(|| there(self.uploaded(at))) else {
                // A part is given back: the passes over β need room, too.
                self.resident.truncate(at - at.div_ceil(4));
                break;
            };
            self.resident.push(block);
        }
        if self.resident.len() < self.count() {
            let (there, all) = (self.resident.len(), self.count());
            tracing::info!(
                "{} keeps {there} of {all} blocks of β; others are uploaded",
                self.chosen.name
            );
        }
        let products = || {
            #[cfg(test)]
            tests::allocated(self.products());
            there(Tensor::<2>::zeros([self.queries, self.size], &self.chosen.device))
        };
        self.attempt(|| Ok((products()?, products()?))).is_ok()
    }

    /// What `work` makes of the device; it ends with reading what it has made, so the device has done it by then.
    /// A panic of the driver is its failure.
    ///
    /// # Errors
    /// [`Error::Device`], which names the setting of the memory; fails as `work` does.
    pub fn attempt<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let failed = |problem: &str| Error::Device {
            device: self.chosen.name.to_owned(),
            problem: format!(
                "{problem}; if that was its memory, keep less there (--device-memory)"
            ),
        };
        let worked = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            failed(text.unwrap_or("the driver failed"))
        })?;
        worked.map_err(|error| match error {
            Error::Library { .. } => failed(&error.to_string()),
            other => other,
        })
    }

    /// β on the host.
    #[must_use]
    pub fn actions(&self) -> &Arc<ActionEmbeddings> {
        &self.actions
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.chosen.device
    }

    /// The name of the device, as `--device` takes it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.chosen.name
    }

    /// How vectors lie there.
    #[must_use]
    pub fn format(&self) -> &RowFormat {
        &self.format
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

    /// The blocks that hold so many actions one after the other, each with those of its rows.
    pub fn pieces(&self, actions: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        (actions.start / self.size..actions.end.div_ceil(self.size)).map(move |at| {
            let Range { start, end } = self.range(at);
            (at, actions.start.max(start) - start..actions.end.min(end) - start)
        })
    }

    /// True if a block stays on the device; another is uploaded whenever it is asked for.
    #[must_use]
    pub fn is_resident(&self, at: usize) -> bool {
        at < self.resident.len()
    }

    /// β of a block in its [`format`](Self::format), `[actions, width]`.
    #[must_use]
    pub fn block(&self, at: usize) -> Tensor<2> {
        self.resident.get(at).cloned().unwrap_or_else(|| self.uploaded(at))
    }

    fn uploaded(&self, at: usize) -> Tensor<2> {
        let (rows, dim) = (self.range(at), self.actions.latent_dim());
        let numbers = &self.actions.beta().as_slice()[rows.start * dim..rows.end * dim];
        #[cfg(test)]
        tests::allocated(numbers.len());
        self.format.actions(numbers, &self.chosen.device)
    }
}

/// A tensor that has its memory. The device notes that it has none left and goes on; to read a number of
/// the tensor is what fails then.
fn there(tensor: Tensor<2>) -> Result<Tensor<2>> {
    data(tensor.clone().slice([0..1, 0..1])).map(|_| tensor)
}

/// The actions of a block and the queries that meet it, so that neither a block nor their products are
/// larger than `tensor` bytes; none where not even one action fits.
fn sizes(tensor: u64, num_actions: usize, width: usize) -> Option<(usize, usize)> {
    let numbers = usize::try_from(tensor / 4).unwrap_or(usize::MAX);
    let (most, fewest) = QUERIES;
    let size = numbers / width.max(fewest);
    let size = if size > TILE { size / TILE * TILE } else { size };
    let size = size.min(num_actions.next_multiple_of(TILE));
    (size > 0).then(|| (size, most.min(numbers / size)))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::device;
    use crate::matrix::Matrix;

    /// What a device answers that is asked for memory for so many numbers: false fails the allocation.
    type Answer = Box<dyn FnMut(usize) -> bool>;

    thread_local! {
        static ANSWER: RefCell<Option<Answer>> = const { RefCell::new(None) };
    }

    /// Fails as a driver does if the test wants it to.
    pub(super) fn allocated(numbers: usize) {
        let answer = ANSWER.with_borrow_mut(|answer| answer.as_mut().map(|answer| answer(numbers)));
        assert!(answer != Some(false), "out of memory");
    }

    /// 1000 vectors of 300 numbers on a CPU in the place of a GPU that answers so.
    fn blocks(tensor: u64, answer: impl FnMut(usize) -> bool + 'static) -> Result<Blocks> {
        let chosen = device::choose(Some(device::compiled()[0])).unwrap();
        let memory = Some(Memory { tensor, budget: None });
        let beta = Matrix::new((0..300_000).map(|at| at as f32).collect(), 300).unwrap();
        let actions = Arc::new(ActionEmbeddings::new(beta).unwrap());
        ANSWER.set(Some(Box::new(answer)));
        let blocks = Blocks::new(&actions, &Chosen { memory, ..chosen });
        ANSWER.set(None);
        blocks
    }

    #[test]
    fn blocks_and_products_fit_and_cover_all_actions() {
        for (num_actions, latent_dim) in [(1, 1), (5000, 3), (70_001, 100), (3000, 1024)] {
            for tensor in [1 << 14, 1 << 20, 1 << 27, 1 << 30] {
                let (size, queries) = sizes(tensor, num_actions, latent_dim).unwrap();
                let most = usize::try_from(tensor / 4).unwrap();
                assert!(size * latent_dim <= most && size * queries <= most, "{size} × {queries}");
                assert!(size < TILE || size.is_multiple_of(TILE), "{size}");
                assert!(queries >= 64, "{queries}");
            }
            assert!(sizes(3, num_actions, latent_dim).is_none());
        }
    }

    #[test]
    fn pieces_are_all_of_the_actions_asked_for_once() {
        let blocks = blocks(1 << 17, |_| true).unwrap();
        assert_eq!(blocks.count(), 10);
        for actions in [0..1000, 0..1, 99..101, 109..110, 333..334, 500..1000, 7..7] {
            let of = |(at, rows): (usize, Range<usize>)| {
                let first = blocks.range(at).start;
                assert!(rows.end <= blocks.range(at).len(), "{actions:?}");
                rows.map(move |row| first + row)
            };
            let found: Vec<usize> = blocks.pieces(actions.clone()).flat_map(of).collect();
            assert_eq!(found, actions.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_device_that_refuses_memory_gets_smaller_tensors() {
        // The largest tensor that it takes: two blocks, not one.
        let smaller = blocks(1 << 23, |numbers| numbers <= 270_000).unwrap();
        assert_eq!((smaller.count(), smaller.resident.len()), (2, 2));
        assert!(smaller.products() <= 270_000);

        let error = blocks(1 << 23, |_| false).unwrap_err().to_string();
        assert!(error.contains("no memory left") && error.contains("--device-memory"), "{error}");
    }

    #[test]
    fn a_device_that_fails_at_work_says_which_setting_gives_it_room() {
        let blocks = blocks(1 << 23, |_| true).unwrap();
        let refused: [fn() -> Result<()>; 2] =
            [|| panic!("out of memory"), || Err(device::failed(&"out of memory"))];
        for work in refused {
            let error = blocks.attempt(work).unwrap_err().to_string();
            assert!(
                error.contains("out of memory") && error.contains("--device-memory"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_a_device_has_no_memory_for_is_uploaded_when_it_is_asked_for() {
        let mut uploads = 0;
        let refuses_the_seventh = move |_| {
            uploads += 1;
            uploads != 7
        };
        let blocks = blocks(1 << 17, refuses_the_seventh).unwrap();
        // Two of six that fit have made room for products.
        assert_eq!((blocks.count(), blocks.resident.len()), (10, 4));
        for at in 0..blocks.count() {
            let rows = blocks.range(at);
            let numbers: Vec<f32> = blocks.block(at).into_data().try_into_vec().unwrap();
            assert_eq!(
                numbers,
                blocks.actions().beta().as_slice()[rows.start * 300..rows.end * 300]
            );
        }
    }
}
