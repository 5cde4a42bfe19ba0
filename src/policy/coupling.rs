//! Draws the noise of the S samples of a query together. Each sample alone has the noise's
//! distribution, so a coupling changes the variance of the plain estimate and adds no bias. A baseline
//! made of the other samples needs more than that ([`Coupling::check_leave_one_out`]).

use serde::{Deserialize, Serialize};
use sobol_burley::NUM_DIMENSIONS;

use super::Noise;
use crate::error::{Error, Result};
use crate::matrix::{dot, norm};
use crate::seed::Stream;

/// The dependence between the S samples of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coupling {
    /// None, as in the paper.
    #[default]
    Independent,
    /// Sample s + S/2 uses −ε of sample s.
    Antithetic,
    /// Blocks of L samples have orthogonal directions, uniform on the sphere; each sample keeps the
    /// length that was drawn for it. Spherical noise only, where direction and length are
    /// independent.
    Orthogonal,
    /// Sample s is point s of a Sobol sequence, scrambled anew for each context and step (Owen;
    /// Burley, "Practical hash-based Owen scrambling", JCGT 2020), through the noise's quantiles.
    QuasiRandom,
}

/// The points of a scrambled Sobol sequence.
const SOBOL_POINTS: usize = 1 << 16;

impl Coupling {
    /// Checks that the coupling fits `noise` and S.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason where it does not.
    pub fn validate(self, noise: &dyn Noise, num_samples: usize) -> Result<()> {
        let refuse = |problem: String| Err(Error::setting("method.coupling", problem));
        match self {
            Self::Antithetic if !noise.is_symmetric() => refuse(format!(
                "antithetic pairs need a symmetric noise: −ε of {noise:?} has another distribution"
            )),
            Self::Antithetic if !num_samples.is_multiple_of(2) => {
                refuse(format!("pairs need an even method.samples, found {num_samples}"))
            }
            Self::Orthogonal if !noise.is_spherical() => refuse(format!(
                "orthogonal samples need a noise that no rotation changes, which is the Gaussian \
                 alone: turned, {noise:?} has another distribution"
            )),
            Self::QuasiRandom if num_samples > SOBOL_POINTS => refuse(format!(
                "a quasi-random sequence has {SOBOL_POINTS} points, found method.samples = \
                 {num_samples}"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that a sample's score has mean zero given the other samples, as a leave-one-out
    /// baseline needs. Orthogonal samples pass: given the others, ε is as likely as −ε, and the score
    /// of spherical noise is odd. An antithetic sample is known from its mirror image, and a
    /// quasi-random one lies in the cells that the other points leave free.
    ///
    /// # Errors
    /// [`Error::Setting`] with the reason.
    pub fn check_leave_one_out(self, num_samples: usize) -> Result<()> {
        let reason = match self {
            Self::Antithetic if num_samples > 1 => {
                "sees the mirrored sample, so the gradient would be off by S/(S − 1)"
            }
            Self::QuasiRandom if num_samples > 1 => {
                "sees the points that leave this one its place, so the gradient would be off by up \
                 to S/(S − 1)"
            }
            _ => return Ok(()),
        };
        Err(Error::setting(
            "method.coupling",
            format!(
                "a leave-one-out baseline {reason}; set method.baseline = \"none\" or \
                 method.coupling = \"independent\""
            ),
        ))
    }

    /// Fills `out` `[S, L]` with the noise of one query's samples.
    pub fn fill(self, noise: &dyn Noise, stream: &mut Stream, latent_dim: usize, out: &mut [f32]) {
        match self {
            Self::Independent => noise.fill(stream, out),
            Self::Antithetic => {
                let (first, mirrored) = out.split_at_mut(out.len() / 2 / latent_dim * latent_dim);
                noise.fill(stream, first);
                mirrored.iter_mut().zip(first).for_each(|(mirrored, drawn)| *mirrored = -*drawn);
            }
            Self::Orthogonal => {
                noise.fill(stream, out);
                for block in out.chunks_mut(latent_dim * latent_dim) {
                    orthogonalise(block, latent_dim);
                }
            }
            Self::QuasiRandom => fill_quasi_random(noise, stream, latent_dim, out),
        }
    }
}

/// Turns the rows of `block` `[at most L, L]` until they are orthogonal; their lengths stay.
/// Gram–Schmidt's Q is uniform and independent of R, whose columns have the lengths that were drawn.
fn orthogonalise(block: &mut [f32], latent_dim: usize) {
    let lengths: Vec<f32> = block.chunks_exact(latent_dim).map(norm).collect();
    for at in 0..lengths.len() {
        let (directions, rest) = block.split_at_mut(at * latent_dim);
        let sample = &mut rest[..latent_dim];
        // The second pass removes what rounding left in the first.
        for _ in 0..2 {
            for direction in directions.chunks_exact(latent_dim) {
                let along = dot(direction, sample);
                sample.iter_mut().zip(direction).for_each(|(x, unit)| *x -= along * unit);
            }
            let left = norm(sample);
            if left > f32::MIN_POSITIVE {
                scale(sample, 1.0 / left);
            }
        }
    }
    for (sample, length) in block.chunks_exact_mut(latent_dim).zip(lengths) {
        scale(sample, length);
    }
}

fn scale(sample: &mut [f32], factor: f32) {
    for value in sample {
        *value *= factor;
    }
}

/// Fills `out` `[S, L]` with point s of a scrambled Sobol sequence in its row s.
#[allow(clippy::cast_possible_truncation, reason = "S ≤ 2^16, and queries are f32")]
fn fill_quasi_random(noise: &dyn Noise, stream: &mut Stream, latent_dim: usize, out: &mut [f32]) {
    // A point is the start of one of 2²³ equal parts of [0, 1); the middle of the part is never 0.
    const HALF_A_PART: f64 = 1.0 / 16_777_216.0;
    // Dimensions beyond the end of the sequence come from another, independent sequence.
    let width = NUM_DIMENSIONS as usize;
    let seeds: Vec<u32> = (0..latent_dim.div_ceil(width)).map(|_| stream.below(u32::MAX)).collect();
    for (s, sample) in out.chunks_exact_mut(latent_dim).enumerate() {
        for (block, &seed) in sample.chunks_mut(width).zip(&seeds) {
            for (value, dimension) in block.iter_mut().zip(0..) {
                let point = f64::from(sobol_burley::sample(s as u32, dimension, seed));
                *value = noise.quantile(point + HALF_A_PART) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoiseKind;
    use crate::policy::noise::{Gaussian, Gumbel, Laplace};
    use crate::seed::{Purpose, Seed};

    /// ε `[S, L]` of the row at `position`.
    fn drawn(coupling: Coupling, s: usize, l: usize, position: u64) -> Vec<f32> {
        let mut out = vec![0.0; s * l];
        let mut stream = Seed(5).stream(Purpose::Noise, 2, position);
        coupling.fill(&Gaussian, &mut stream, l, &mut out);
        out
    }

    #[test]
    fn couplings_are_named_in_kebab_case() {
        for (coupling, name) in [
            (Coupling::Independent, "\"independent\""),
            (Coupling::Antithetic, "\"antithetic\""),
            (Coupling::Orthogonal, "\"orthogonal\""),
            (Coupling::QuasiRandom, "\"quasi-random\""),
        ] {
            assert_eq!(serde_json::to_string(&coupling).unwrap(), name);
        }
    }

    #[test]
    fn a_coupling_that_would_change_the_distribution_is_refused() {
        for (coupling, noise, num_samples, reason) in [
            (Coupling::Antithetic, &Gumbel as &dyn Noise, 4, "symmetric"),
            (Coupling::Antithetic, &Laplace, 3, "even"),
            (Coupling::Orthogonal, &Laplace, 4, "rotation"),
            (Coupling::QuasiRandom, &Gumbel, 65_537, "65536"),
        ] {
            let error = coupling.validate(noise, num_samples).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        for coupling in [Coupling::Antithetic, Coupling::Orthogonal, Coupling::QuasiRandom] {
            coupling.validate(&Gaussian, 4).unwrap();
        }
    }

    #[test]
    fn only_samples_whose_score_the_others_do_not_tell_may_leave_one_out() {
        Coupling::Independent.check_leave_one_out(8).unwrap();
        Coupling::Orthogonal.check_leave_one_out(8).unwrap();
        for coupling in [Coupling::Antithetic, Coupling::QuasiRandom] {
            coupling.check_leave_one_out(8).unwrap_err();
            coupling.check_leave_one_out(1).unwrap();
        }
    }

    #[test]
    fn orthogonal_samples_keep_their_lengths_and_are_orthogonal_within_their_block() {
        let (s, l) = (13, 5);
        let plain = drawn(Coupling::Independent, s, l, 0);
        let turned = drawn(Coupling::Orthogonal, s, l, 0);
        for (at, (plain, sample)) in plain.chunks(l).zip(turned.chunks(l)).enumerate() {
            let length = norm(plain);
            assert!((norm(sample) - length).abs() < 1e-5 * length);
            for other in turned.chunks(l).take(at).skip(at / l * l) {
                let cosine = dot(sample, other) / (norm(sample) * norm(other));
                assert!(cosine.abs() < 1e-6, "{cosine}");
            }
        }
    }

    /// Each sample alone: its components are normal, and uncorrelated with each other.
    #[test]
    fn each_coupled_sample_is_standard_normal() {
        let (rows, s, l) = (20_000_u32, 4, 3);
        for coupling in [Coupling::Antithetic, Coupling::Orthogonal, Coupling::QuasiRandom] {
            let draws: Vec<f32> =
                (0..rows).flat_map(|row| drawn(coupling, s, l, row.into())).collect();
            for at in 0..s {
                let samples = || draws.chunks(s * l).map(|row| &row[at * l..(at + 1) * l]);
                let share = |inside: &dyn Fn(&[f32]) -> bool| {
                    samples().filter(|sample| inside(sample)).count() as f64 / f64::from(rows)
                };
                let close = 4.0 * (0.25 / f64::from(rows)).sqrt();
                for i in 0..l {
                    for (level, expected) in [(-1.0, 0.158_655), (0.0, 0.5), (1.5, 0.933_193)] {
                        let found = share(&|sample| sample[i] < level);
                        assert!((found - expected).abs() < close, "{coupling:?} {at} {i}: {found}");
                    }
                    let quadrant = share(&|sample| sample[i] > 0.0 && sample[(i + 1) % l] > 0.0);
                    assert!((quadrant - 0.25).abs() < close, "{coupling:?} {at} {i}: {quadrant}");
                }
            }
        }
    }

    #[test]
    fn quasi_random_samples_fill_every_part_of_each_dimension_once() {
        // Of 16 points each sixteenth of each dimension holds one; 300 dimensions need two seeds.
        let (s, l) = (16, 300);
        let points = drawn(Coupling::QuasiRandom, s, l, 0);
        for i in 0..l {
            let edges: Vec<f64> =
                (1..s).map(|part| Gaussian.quantile(part as f64 / s as f64)).collect();
            let mut parts: Vec<usize> = (0..s)
                .map(|at| edges.partition_point(|edge| *edge < f64::from(points[at * l + i])))
                .collect();
            parts.sort_unstable();
            assert_eq!(parts, (0..s).collect::<Vec<_>>(), "dimension {i}");
        }
        let first_and_another: Vec<[f32; 2]> =
            points.chunks(l).map(|point| [point[0], point[256]]).collect();
        assert!(first_and_another.iter().any(|[a, b]| a != b), "a seed was used twice");
    }

    #[test]
    fn every_context_has_a_scramble_of_its_own() {
        let noise = "logistic".parse::<NoiseKind>().unwrap().init();
        let of = |position| {
            let mut out = vec![0.0; 8];
            let mut stream = Seed(5).stream(Purpose::Noise, 2, position);
            Coupling::QuasiRandom.fill(noise.as_ref(), &mut stream, 2, &mut out);
            out
        };
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
    }
}
