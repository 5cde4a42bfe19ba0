//! Numbers go in; text as a report writes it comes out.

/// Decimals that leave three digits of numbers up to `largest`, and no fewer than three decimals.
fn decimals(largest: f64) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped; of 0 and NaN it is 3"
    )]
    let decimals = (2.0 - largest.log10().floor()).clamp(3.0, 9.0) as usize;
    if largest > 0.0 { decimals } else { 3 }
}

/// `0.834 ± 0.003`, as precise as numbers up to `largest` need.
pub(super) fn mean_and_error(mean: f64, error: Option<f64>, largest: f64) -> String {
    let decimals = decimals(largest.abs());
    match error {
        Some(error) => format!("{mean:.decimals$} ± {error:.decimals$}"),
        None => format!("{mean:.decimals$}"),
    }
}

/// Three digits, or the whole part if it has more.
pub(super) fn significant(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let decimals = (2.0 - number.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{number:.decimals$}")
}

/// Bytes in MiB.
pub(super) fn mebibytes(bytes: u64) -> String {
    significant(bytes as f64 / f64::from(1 << 20))
}

/// `2,230,000`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let starts = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let grouped = digits.char_indices().flat_map(|(at, digit)| {
        let comma = starts(at).then_some(',');
        comma.into_iter().chain([digit])
    });
    grouped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(mean_and_error(0.8344, Some(0.0031), 0.9), "0.834 ± 0.003");
        assert_eq!(mean_and_error(0.00123, None, 0.0042), "0.00123");
        assert_eq!(mean_and_error(12.5, Some(0.25), 20.0), "12.500 ± 0.250");
        assert_eq!(mean_and_error(f64::NAN, Some(f64::NAN), 0.0), "NaN ± NaN");
        assert_eq!(
            [0.001_234, 0.0, 12.34, 123_456.7].map(significant),
            ["0.00123", "0", "12.3", "123457"]
        );
        assert_eq!([0, 999, 1000, 2_230_000].map(count), ["0", "999", "1,000", "2,230,000"]);
    }
}
