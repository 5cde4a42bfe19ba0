//! An axis and its values go in; its range and its ticks come out.

use super::Axis;

/// A difference of two larger values may overflow.
const LARGEST: f64 = 1e300;

/// About the most ticks of an axis.
const TICKS: f64 = 5.0;

/// Share of its length by which an axis goes beyond the values.
const MARGIN: f64 = 0.04;

/// The range and the ticks of an axis, in places: logarithms on a logarithmic axis.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    axis: Axis,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Places and their labels, by place.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The place of `value`, if it has one.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if self.logarithmic {
            (value > 0.0 && value <= LARGEST).then(|| value.log10())
        } else {
            (value.abs() <= LARGEST).then_some(value)
        }
    }
}

impl Scale {
    /// An axis for `values`; none if no value has a place on it.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let logarithmic = axis.logarithmic;
        let places = values.filter_map(|value| axis.place(value));
        let (low, high) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
            (low.min(place), high.max(place))
        });
        if low > high {
            return None;
        }
        let (low, high) = apart(low, high, logarithmic);
        let margin = MARGIN * (high - low);
        // An axis that begins or ends at 0 does so exactly.
        let beyond = |end: f64, by: f64| if end == 0.0 && !logarithmic { end } else { end + by };
        let (low, high) = (beyond(low, -margin), beyond(high, margin));
        let ticks =
            if logarithmic { logarithmic_ticks(low, high) } else { linear_ticks(low, high) };
        Some(Self { axis: axis.clone(), low, high, ticks })
    }

    /// The place of `value`, if it has one.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        self.axis.place(value)
    }

    /// The place of `value`, or the end of the axis that is nearest to it.
    pub(super) fn nearest(&self, value: f64) -> f64 {
        let end = if value > 0.0 { self.high } else { self.low };
        self.place(value).unwrap_or(end).clamp(self.low, self.high)
    }

    /// The share of the axis that lies below a place.
    pub(super) fn share(&self, place: f64) -> f64 {
        (place - self.low) / (self.high - self.low)
    }

    /// The label of the tick at a place.
    #[allow(clippy::float_cmp, reason = "the same number is found again")]
    pub(super) fn label(&self, place: f64) -> String {
        let at = self.ticks.iter().find(|(tick, _)| *tick == place);
        at.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// The ends of an axis, apart even for a single value.
fn apart(low: f64, high: f64, logarithmic: bool) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    if high - low > size * 1e-9 {
        return (low, high);
    }
    let around = match (logarithmic, size) {
        (true, _) => 0.5,
        (false, 0.0) => 1.0,
        (false, size) => size / 2.0,
    };
    (low - around, high + around)
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|of| of * power >= rough).unwrap_or(10.0);
    let step = step * power;
    let (first, last) = ((low / step).ceil(), (high / step).floor());
    let count = last - first + 1.0;
    if !(1.0..=4.0 * TICKS).contains(&count) {
        // Too small to be told apart in this precision.
        return Vec::new();
    }
    let largest = low.abs().max(high.abs());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 20")]
    let ticks = (0..count as usize).map(|at| (first + at as f64) * step);
    ticks.map(|value| (value, round(value, step, largest))).collect()
}

/// Powers of ten; on an axis too short for them, round numbers between.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let (first, last) = (low.ceil(), high.floor());
    #[allow(clippy::cast_possible_truncation, reason = "exponents of f64")]
    let exponents = first as i32..=last as i32;
    if last - first >= 1.0 {
        let every = ((last - first + 1.0) / (TICKS + 1.0)).ceil();
        #[allow(clippy::cast_possible_truncation, reason = "exponents of f64")]
        let shown = exponents.filter(|exponent| exponent.rem_euclid(every as i32) == 0);
        return shown.map(|exponent| (f64::from(exponent), power_of_ten(exponent))).collect();
    }
    #[allow(clippy::cast_possible_truncation, reason = "exponents of f64")]
    let around = low.floor() as i32..=high.floor() as i32;
    let round_ones =
        around.flat_map(|exponent| [1.0, 2.0, 5.0].map(|of| of * 10_f64.powi(exponent)));
    let within = |value: &f64| (low..=high).contains(&value.log10());
    let ticks: Vec<_> = round_ones
        .filter(within)
        .map(|value| (value.log10(), round(value, value, value)))
        .collect();
    if ticks.len() > 1 {
        return ticks;
    }
    let ticks = linear_ticks(10_f64.powf(low), 10_f64.powf(high)).into_iter();
    ticks.map(|(value, label)| (value.log10(), label)).collect()
}

/// 10 with a raised exponent.
fn power_of_ten(exponent: i32) -> String {
    let raised = |c: char| match c.to_digit(10) {
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
        None => '⁻',
    };
    format!("10{}", exponent.to_string().chars().map(raised).collect::<String>())
}

/// A multiple of `step`, in the unit of the `largest` value beside it: 20k for 20 000.
fn round(value: f64, step: f64, largest: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let unit = [(1e12, None), (1e9, Some("G")), (1e6, Some("M")), (1e4, Some("k"))]
        .into_iter()
        .find(|(from, _)| largest >= *from);
    let (size, unit) = match unit {
        Some((_, None)) => return format!("{value:.1e}"),
        Some((1e4, unit)) => (1e3, unit.unwrap_or_default()),
        Some((size, Some(unit))) => (size, unit),
        None if step < 1e-4 => {
            let digits = decimals(step / 10_f64.powf(value.abs().log10().floor()));
            return format!("{value:.digits$e}");
        }
        None => (1.0, ""),
    };
    format!("{:.*}{unit}", decimals(step / size), value / size)
}

/// Decimals that a multiple of `step` needs.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 17")]
fn decimals(step: f64) -> usize {
    // Rounding leaves the logarithm of a power of ten a little below the exponent.
    (-(step.log10() + 1e-9).floor()).clamp(0.0, 17.0) as usize
}

/// A measured value in four digits, or in as many as its error allows.
pub(super) fn measured(value: f64, error: f64) -> String {
    let known = error > 0.0 && error.is_finite();
    let size = match value.abs() {
        0.0 if known => 1.0,
        0.0 => return "0".to_owned(),
        size if (1e-4..1e6).contains(&size) => size,
        _ => return format!("{value:.2e}"),
    };
    let digits = decimals(10_f64.powf(size.log10().floor() - 3.0));
    if known {
        let digits = decimals(10_f64.powf(error.log10().floor() - 1.0)).min(digits + 1);
        return format!("{value:.digits$} ± {error:.digits$}");
    }
    format!("{value:.digits$}")
}

/// A measured value with the decimals that the `largest` value beside it needs for three digits.
pub(super) fn alike(value: f64, error: f64, largest: f64) -> String {
    if !(1e-4..1e6).contains(&largest) {
        return measured(value, error);
    }
    let digits = decimals(10_f64.powf(largest.log10().floor() - 2.0)).clamp(0, 6);
    if error > 0.0 && error.is_finite() {
        return format!("{value:.digits$} ± {error:.digits$}");
    }
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(logarithmic: bool, values: &[f64]) -> Vec<String> {
        let axis = Axis { name: String::new(), logarithmic };
        let scale = Scale::new(&axis, values.iter().copied()).unwrap();
        for (place, _) in &scale.ticks {
            assert!((scale.low..=scale.high).contains(place), "{scale:?}");
        }
        scale.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_written_short() {
        assert_eq!(labels(false, &[0.0, 2000.0]), ["0", "500", "1000", "1500", "2000"]);
        assert_eq!(labels(false, &[0.0, 80_000.0]), ["0", "20k", "40k", "60k", "80k"]);
        assert_eq!(labels(false, &[0.31, 0.382]), ["0.32", "0.34", "0.36", "0.38"]);
        assert_eq!(labels(false, &[-1.0, 1.0]), ["-1.0", "-0.5", "0", "0.5", "1.0"]);
        assert_eq!(labels(false, &[0.0, 3e-6]), ["0", "1e-6", "2e-6", "3e-6"]);
        assert_eq!(labels(true, &[1e-3, 20.0]), ["10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹"]);
        assert_eq!(labels(true, &[1e-30, 1e30]).len(), 5);
        assert_eq!(labels(true, &[3.0, 80.0]), ["5", "10", "20", "50"]);
        assert_eq!(labels(true, &[0.91, 0.97]), ["0.92", "0.94", "0.96"]);
    }

    #[test]
    fn an_axis_has_a_length_whatever_is_on_it() {
        for logarithmic in [false, true] {
            for values in
                [&[7.0][..], &[1e-320], &[1e300, 1e-300], &[2.0, 2.0 + f64::EPSILON], &[1e12; 3]]
            {
                let axis = Axis { name: String::new(), logarithmic };
                let scale = Scale::new(&axis, values.iter().copied()).unwrap();
                assert!(scale.high > scale.low, "{values:?} {scale:?}");
                assert!(scale.ticks.len() < 12, "{values:?} {scale:?}");
            }
            let axis = Axis { name: String::new(), logarithmic };
            let placeless = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            assert!(Scale::new(&axis, placeless.into_iter()).is_none());
        }
        assert_eq!(labels(true, &[0.0, -3.0, 1.0, 100.0]), ["10⁰", "10¹", "10²"]);
    }

    #[test]
    fn a_measured_value_has_the_digits_that_its_error_leaves() {
        assert_eq!(measured(0.352_149, 0.001_24), "0.3521 ± 0.0012");
        assert_eq!(measured(0.352_149, 0.0), "0.3521");
        assert_eq!(measured(12.345, 2.0), "12.3 ± 2.0");
        assert_eq!(measured(0.0, 0.1), "0.00 ± 0.10");
        assert_eq!(measured(0.0, 0.0), "0");
        assert_eq!(measured(3.1e-9, 0.0), "3.10e-9");
        assert_eq!(measured(0.5, 1e-30), "0.50000 ± 0.00000");
        assert_eq!(measured(f64::NAN, 0.0), "NaN");
        assert_eq!(alike(0.105, 0.0124, 0.38), "0.105 ± 0.012");
        assert_eq!(alike(0.307_03, 0.000_03, 0.38), "0.307 ± 0.000");
        assert_eq!(alike(0.0, 0.0, 0.0), "0");
    }
}
