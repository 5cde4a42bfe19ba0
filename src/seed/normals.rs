//! Box–Muller turns blocks of random words into standard normals. It uses elementary operations of
//! IEEE 754 on each element alone, so the compiler can use vector registers of any size and the bits
//! are the same on every machine; the logarithm, sine and cosine of a libm guarantee neither.

use std::f32::consts::{FRAC_PI_2, SQRT_2};

use pulp::{Arch, Simd, WithSimd};

/// One pair of normals for each pair of little-endian words v, w: `r cos φ` and `r sin φ` with
/// `r² = −2 ln((v + 1) / 2³²)` and `φ = 2π w / 2³²`, to 3·10⁻⁷ of r.
pub(super) fn box_muller(words: &[[[u8; 4]; 2]], out: &mut [[f32; 2]]) {
    Arch::new().dispatch(BoxMuller { words, out });
}

struct BoxMuller<'a> {
    words: &'a [[[u8; 4]; 2]],
    out: &'a mut [[f32; 2]],
}

// Inlined to the end: a call would leave the registers that the processor was found to have.
#[allow(clippy::inline_always, reason = "see above")]
impl WithSimd for BoxMuller<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (&[radius, angle], out) in self.words.iter().zip(self.out) {
            let radius = (-2.0 * ln_share(u32::from_le_bytes(radius))).sqrt();
            let (sine, cosine) = sin_cos_turn(u32::from_le_bytes(angle));
            *out = [radius * cosine, radius * sine];
        }
    }
}

/// `ln((word + 1) / 2³²)`.
#[allow(clippy::inline_always, reason = "as for BoxMuller")]
#[inline(always)]
fn ln_share(word: u32) -> f32 {
    /// The bits of √½, the lowest mantissa of a reduced argument.
    const LOWEST: u32 = (SQRT_2 / 2.0).to_bits();
    // Near 1 the rounded share would lose the digits of its distance to 1, so above √½ this counts
    // the words to the end instead.
    let is_upper = word >= 0xB504_F333;
    let count = if is_upper { !word } else { word.wrapping_add(1) } as f32;
    // count = 2^exponent (1 + x) with 1 + x in [√½, √2).
    let bits = count.to_bits().wrapping_add(1.0_f32.to_bits() - LOWEST);
    let mantissa = f32::from_bits((bits & 0x007F_FFFF) + LOWEST);
    let exponent = (bits >> 23).cast_signed() - 127 - 32;
    let exponent = if is_upper { 0.0 } else { exponent as f32 };
    let x = if is_upper { -count / 4_294_967_296.0 } else { mantissa - 1.0 };
    // ln(1 + x) as in Cephes' logf, and ln 2 as a short number plus the rest.
    let mut tail = 7.037_683_6e-2;
    for coefficient in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        tail = tail * x + coefficient;
    }
    let square = x * x;
    let tail = tail * x * square + exponent * -2.121_944_4e-4 - 0.5 * square;
    (x + tail) + exponent * (355.0 / 512.0)
}

/// Sine and cosine of `2π word / 2³²`, as in Cephes' sinf and cosf.
#[allow(clippy::inline_always, reason = "as for BoxMuller")]
#[inline(always)]
fn sin_cos_turn(word: u32) -> (f32, f32) {
    // The nearest multiple of a quarter turn, and the rest, within an eighth of a turn.
    let quarters = word.wrapping_add(1 << 29) >> 30;
    let x = (word << 2).cast_signed() as f32 * (FRAC_PI_2 / 4_294_967_296.0);
    let square = x * x;
    let tail = (-1.951_529_6e-4 * square + 8.332_161e-3) * square - 1.666_665_5e-1;
    let sine = tail * square * x + x;
    let tail = (2.443_315_7e-5 * square - 1.388_731_6e-3) * square + 4.166_664_6e-2;
    let cosine = tail * square * square - 0.5 * square + 1.0;
    let is_odd = quarters & 1 != 0;
    let (across, up) = if is_odd { (sine, cosine) } else { (cosine, sine) };
    // Cosine is negative in the second and third quarter, sine in the third and fourth.
    let negated = |value: f32, sign: u32| f32::from_bits(value.to_bits() ^ (sign & 2) << 30);
    (negated(up, quarters), negated(across, quarters + 1))
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use pulp::Scalar;

    use super::*;
    use crate::seed::{Purpose, Seed};

    /// Pairs of words: the ends of the range and of every case, and random ones.
    fn words() -> Vec<[u32; 2]> {
        let ends: Vec<u32> = (0..32)
            .map(|bit| 1 << bit)
            .chain((0..8).map(|eighth| eighth << 29))
            .chain([0xB504_F333])
            .flat_map(|end: u32| [end.wrapping_sub(1), end, end + 1])
            .flat_map(|end| [end, !end])
            .collect();
        let pairs = ends.iter().flat_map(|&v| ends.iter().map(move |&w| [v, w]));
        let mut stream = Seed(1).stream(Purpose::Noise, 0, 0);
        let random = std::iter::repeat_with(|| [(); 2].map(|()| stream.below(u32::MAX)));
        pairs.chain(random.take(1_000_000)).collect()
    }

    fn bytes(words: &[[u32; 2]]) -> Vec<[[u8; 4]; 2]> {
        words.iter().map(|pair| pair.map(u32::to_le_bytes)).collect()
    }

    #[test]
    fn pairs_are_those_of_the_formula() {
        let words = words();
        let mut pairs = vec![[0.0; 2]; words.len()];
        box_muller(&bytes(&words), &mut pairs);
        for ([v, w], pair) in words.into_iter().zip(pairs) {
            // In u64: near 1 a share has lost its distance to 1.
            let left = (u64::from(u32::MAX) - u64::from(v)) as f64 / 4_294_967_296.0;
            let radius = (-2.0 * (-left).ln_1p()).sqrt();
            let (sine, cosine) = (TAU * f64::from(w) / 4_294_967_296.0).sin_cos();
            let off = (f64::from(pair[0]) - radius * cosine)
                .abs()
                .max((f64::from(pair[1]) - radius * sine).abs());
            assert!(off <= 3e-7 * radius, "{v:x} {w:x}: {pair:?} is off by {off} of {radius}");
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_registers() {
        let words = bytes(&words());
        let bits = |pairs: Vec<[f32; 2]>| -> Vec<[u32; 2]> {
            pairs.into_iter().map(|pair| pair.map(f32::to_bits)).collect()
        };
        let (mut wide, mut narrow) = (vec![[0.0; 2]; words.len()], vec![[0.0; 2]; words.len()]);
        box_muller(&words, &mut wide);
        BoxMuller { words: &words, out: &mut narrow }.with_simd(Scalar::new());
        let mut alone = vec![[0.0; 2]; words.len()];
        for (word, out) in words.iter().zip(&mut alone) {
            box_muller(std::slice::from_ref(word), std::slice::from_mut(out));
        }
        assert_eq!(bits(wide.clone()), bits(narrow));
        assert_eq!(bits(wide), bits(alone));
    }
}
