//! `slate info`: a bundle, a run or a prepared folder in, its description out; or the devices here.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::report::Report;
use crate::bundle::{MANIFEST, Manifest};
use crate::device;

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// A bundle, a run or a prepared folder; `devices` for what there is to compute on; without one, this
    /// build is described.
    #[arg(value_hint = ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// The features of this build.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    devices: Vec<&'static str>,
    train: bool,
}

/// A bundle.
#[derive(Debug, Serialize)]
struct Described {
    digest: String,
    #[serde(flatten)]
    bundle: Manifest,
}

pub(super) fn run(args: &InfoArgs) -> Result<Report> {
    let Some(folder) = &args.folder else { return build() };
    if folder.as_os_str() == "devices" {
        return devices();
    }
    #[cfg(feature = "train")]
    if !folder.join(MANIFEST).exists() {
        return super::workshop::describe(folder);
    }
    let (bundle, digest) = Manifest::read(folder)?;
    let text = format!("bundle {digest}\n\n{}", toml::to_string(&bundle)?);
    Report::new(&Described { digest, bundle }, text)
}

fn build() -> Result<Report> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        devices: device::compiled(),
        train: cfg!(feature = "train"),
    };
    let text = format!(
        "slate {}\ndevices  {}\ntrain    {}",
        build.version,
        build.devices.join(", "),
        if build.train { "yes" } else { "no, this build only serves" }
    );
    Report::new(&build, text)
}

/// What there is to compute on.
#[derive(Debug, Serialize)]
struct Devices {
    devices: Vec<device::Listed>,
}

/// Every backend of this build, and what it finds here.
fn devices() -> Result<Report> {
    let devices = Devices { devices: device::list() };
    let mut text = String::new();
    for device::Listed { name, found, largest_tensor } in &devices.devices {
        let found = found.as_deref().unwrap_or("nothing found");
        let tensor = largest_tensor
            .map(|bytes| format!(", tensors of {} MiB at most", bytes >> 20))
            .unwrap_or_default();
        text += &format!("{name:<8} {found}{tensor}\n");
    }
    Report::new(&devices, text)
}
