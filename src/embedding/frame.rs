//! P and m go in; a vector of m numbers for each of P actions comes out, of length one and nearly orthogonal to the others:
//! the rows of a harmonic tight frame (Xia, Zhou & Giannakis, *Achieving the Welch bound with difference sets*, 2005), whose
//! frequencies are drawn.
//!
//! The squares of a row's inner products with all others add up to P/m − 1, which is the least that P vectors of m numbers
//! can have (Welch 1974), and less than the P/m of random signs: nothing where m = P, and half of it at m = P/2.

use std::f64::consts::TAU;

use crate::seed::{Purpose, Seed};

/// The rows `[P, m]`, made one by one.
#[derive(Debug)]
pub(super) struct Frame {
    /// Different ones of 1 … (P − 1)/2, of m/2 rounded down; none where m ≥ P.
    frequencies: Vec<usize>,
    /// Cosine and sine of 2πt/P, `[P]`.
    circle: Vec<(f32, f32)>,
}

impl Frame {
    pub(super) fn new(num_actions: usize, dims: usize, seed: Seed) -> Self {
        if dims >= num_actions {
            return Self { frequencies: Vec::new(), circle: Vec::new() };
        }
        let mut frequencies: Vec<usize> = (1..=(num_actions - 1) / 2).collect();
        seed.stream(Purpose::Sketch, 2, 0).shuffle(&mut frequencies);
        frequencies.truncate(dims / 2);
        let angles = (0..num_actions).map(|at| TAU * at as f64 / num_actions as f64);
        #[allow(clippy::cast_possible_truncation, reason = "at most 1")]
        let circle = angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).collect();
        Self { frequencies, circle }
    }

    /// Writes an action's row, of this length, into m zeros: that of a unit vector where m ≥ P. With odd m the last
    /// number stays 0.
    pub(super) fn write(&self, action: usize, length: f32, row: &mut [f32]) {
        if self.circle.is_empty() {
            row[action] = length;
            return;
        }
        let each = length / (self.frequencies.len() as f32).sqrt();
        for (pair, frequency) in row.chunks_exact_mut(2).zip(&self.frequencies) {
            let (cosine, sine) = self.circle[action * frequency % self.circle.len()];
            pair.copy_from_slice(&[each * cosine, each * sine]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Matrix, dot};

    #[test]
    fn no_frame_has_rows_closer_to_orthogonal() {
        for (num_actions, dims) in [(97, 24), (60, 58), (60, 31), (40, 40), (40, 50)] {
            let frame = Frame::new(num_actions, dims, Seed(3));
            let mut rows = Matrix::zeros(num_actions, dims);
            for action in 0..num_actions {
                frame.write(action, 2.0, rows.row_mut(action));
            }
            // The last of an odd number is of no use.
            let used = if dims < num_actions { dims / 2 * 2 } else { num_actions };
            let bound = num_actions as f64 / used as f64 - 1.0;
            for (action, row) in rows.iter_rows().enumerate() {
                assert!((dot(row, row) - 4.0).abs() < 1e-4);
                let others = rows.iter_rows().enumerate().filter(|(other, _)| *other != action);
                let squares = others.map(|(_, other)| (f64::from(dot(row, other)) / 4.0).powi(2));
                let found: f64 = squares.sum();
                assert!((found - bound).abs() < 1e-4, "{num_actions} {dims}: {found} {bound}");
            }
        }
    }
}
