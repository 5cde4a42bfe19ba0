//! Hands out usearch's thread slots, one to each thread that searches.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A fixed number of slots. usearch fails a search that finds no free one, so threads beyond the number
/// wait here.
pub(super) struct Slots {
    pub(super) count: usize,
    pub(super) taken: AtomicUsize,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { count: 4 * rayon::current_num_threads().max(16), taken: AtomicUsize::new(0) }
    }

    pub(super) fn take(&self) -> Slot<'_> {
        let free = |taken| (taken < self.count).then_some(taken + 1);
        // A search takes microseconds: waiting by yielding is enough.
        while self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_err() {
            std::thread::yield_now();
        }
        Slot(self)
    }
}

pub(super) struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
