//! Flags that verbs of every build share.

use clap::Args;

use crate::dataset::Split;

#[derive(Debug, Default, Args)]
pub(crate) struct DeviceArgs {
    /// The backend: ndarray, flex, wgpu or cuda [default: a real GPU if there is one, otherwise the
    /// CPU].
    #[arg(long)]
    pub(crate) device: Option<String>,
}

/// Reads the value of `--split`.
pub(super) fn split(text: &str) -> Result<Split, String> {
    match text {
        "train" => Ok(Split::Train),
        "validation" => Ok(Split::Validation),
        "test" => Ok(Split::Test),
        _ => Err("expected train, validation or test".into()),
    }
}
