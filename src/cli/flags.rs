//! Flags that verbs of every build share.

use clap::Args;

use crate::device;

#[derive(Debug, Default, Args)]
pub(crate) struct DeviceArgs {
    /// The backend: ndarray, flex, wgpu or cuda [default: a real GPU if there is one, otherwise the
    /// CPU].
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// The most memory that action vectors and searches take on a GPU, such as 8GB; what does not fit is
    /// uploaded for each search [default: as much as there is].
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    device_memory: Option<u64>,
}

impl DeviceArgs {
    /// The name of the device, if one was given. The limit of its memory is in force from here on.
    pub(crate) fn name(&self) -> Option<&str> {
        if let Some(bytes) = self.device_memory {
            device::limit_memory(bytes);
        }
        self.device.as_deref()
    }
}

/// Reads a size such as `512MB` or `8GB`: units of 1000, or with an `i`, as in `8GiB`, of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let (base, unit) = match unit.strip_suffix("IB") {
        Some(unit) => (1024_u64, unit),
        None => (1000, unit.strip_suffix('B').unwrap_or(&unit)),
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == unit);
    let power = power.and_then(|power| base.checked_pow(u32::try_from(power).ok()?));
    let bytes =
        power.zip(number.parse::<u64>().ok()).and_then(|(unit, number)| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size such as 512MB or 8GiB".into())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        let sizes = [("7", 7), ("512MB", 512_000_000), ("8 GiB", 8 << 30), ("3k", 3000)];
        for (text, size) in sizes {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "GB", "0GB", "1.5GB", "8XB", "99999999999TB", "-1"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
