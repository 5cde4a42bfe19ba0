//! Counter-based randomness. A draw is addressed by (seed, purpose, step, position), never by what
//! was drawn before it, so a resumed run, and a run whose batch is split over several workers,
//! draw what one uninterrupted run draws. Nothing in this crate uses a global generator.

use rand::Rng as _;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What a stream is drawn for; streams of different purposes are independent.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Purpose {
    /// Which users go to which split.
    Split = 1,
    /// Which of a user's interactions are hidden.
    Hide = 2,
    /// The tower's initial parameters.
    Initial = 3,
    /// The order of the training contexts in an epoch.
    Order = 4,
    /// Latent perturbations.
    Noise = 5,
    /// The contexts on which recall is audited.
    Audit = 6,
    /// Synthetic sessions.
    Synthetic = 7,
    /// The start of the randomised SVD.
    Sketch = 8,
    /// The training contexts on which the training reward is reported.
    Report = 9,
    /// Slates drawn action by action.
    Slates = 10,
}

/// A run's seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream for `purpose` at `step`, `position` (a row of the global batch, a user, …).
    #[must_use]
    pub fn stream(self, purpose: Purpose, step: u64, position: u64) -> Stream {
        let mut key = [0_u8; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
        key[16..24].copy_from_slice(&step.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(position);
        Stream(generator)
    }
}

/// One addressed stream of draws.
#[derive(Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// Standard normals by Box–Muller: the i-th uses the i-th pair's two 32-bit words whatever
    /// their values, unlike a rejection method, so each has a fixed offset in the stream.
    pub fn fill_normals(&mut self, out: &mut [f32]) {
        for pair in out.chunks_mut(2) {
            // (0, 1]: the logarithm is finite.
            let radius_word = f64::from(self.0.next_u32()) + 1.0;
            let angle_word = self.0.next_u32();
            #[allow(clippy::cast_possible_truncation, reason = "f32 is the precision of the draw")]
            let radius = (-2.0 * (radius_word / 4_294_967_296.0).ln()).sqrt() as f32;
            #[allow(clippy::cast_precision_loss, reason = "24 bits of angle are plenty")]
            let angle = (angle_word >> 8) as f32 * (std::f32::consts::TAU / 16_777_216.0);
            let (sine, cosine) = angle.sin_cos();
            pair[0] = radius * cosine;
            if let Some(second) = pair.get_mut(1) {
                *second = radius * sine;
            }
        }
    }

    /// Uniform on `[0, 1)`, 53 bits.
    pub fn uniform(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit an f64 exactly")]
        let bits = (self.0.next_u64() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// Uniform on `(0, 1)`: the middle of one of 2⁵² equal parts.
    pub fn open_uniform(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "52 bits and a half fit an f64 exactly")]
        let part = (self.0.next_u64() >> 12) as f64;
        (part + 0.5) / 4_503_599_627_370_496.0
    }

    /// Uniform on `0..bound` (Lemire's multiplication with rejection).
    ///
    /// # Panics
    /// On a `bound` of 0, which is a programming error.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "no number is below 0");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u64::from(self.0.next_u32()) * u64::from(bound);
            #[allow(clippy::cast_possible_truncation, reason = "the low and the high word")]
            let (low, high) = (product as u32, (product >> 32) as u32);
            if low >= threshold {
                return high;
            }
        }
    }

    /// Fisher–Yates.
    ///
    /// # Panics
    /// On 2³² items or more, which nothing here can number.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u32::try_from(last + 1).expect("fewer than 2^32 items");
            items.swap(last, self.below(bound) as usize);
        }
    }
}
