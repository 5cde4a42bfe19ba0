//! An f32 in, the number that its shortest decimal names out: files say 0.9, not 0.8999999761581421. It is
//! read back as the same f32.

use serde::Serializer;

/// For `#[serde(serialize_with)]`.
///
/// # Errors
/// Fails where `serializer` does.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn shortest<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(number.to_string().parse().unwrap_or_else(|_| f64::from(*number)))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Settings {
        #[serde(serialize_with = "super::shortest")]
        number: f32,
    }

    #[test]
    fn a_number_is_written_as_it_was_given_and_read_back_to_the_bit() {
        for number in [0.9, 1e-8, 0.1, 3.0, -0.3, 1.0 / 3.0, f32::MIN_POSITIVE, f32::MAX] {
            let text = toml::to_string(&Settings { number }).unwrap();
            let back: Settings = toml::from_str(&text).unwrap();
            assert_eq!(back.number.to_bits(), number.to_bits(), "{text}");
        }
        assert_eq!(toml::to_string(&Settings { number: 0.9 }).unwrap(), "number = 0.9\n");
    }
}
