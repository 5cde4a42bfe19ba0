//! Where MovieLens is: in a folder, or at GroupLens.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use fast_slate::dataset::{Filters, Source, SyntheticSettings};
use fast_slate::prepared::Input;

/// A release of MovieLens.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Release {
    LatestSmall,
    #[value(name = "25m")]
    M25,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Self::LatestSmall => "ml-latest-small",
            Self::M25 => "ml-25m",
        }
    }
}

/// MovieLens from `data`, from GroupLens, or from where it is found; else synthetic sessions.
pub(crate) fn input(data: Option<PathBuf>, download: Option<Release>) -> Result<Input> {
    let data = match download {
        Some(release) => Some(fetch(release, Path::new("data"))?),
        None => data.or_else(find),
    };
    let Some(path) = data else {
        println!("no MovieLens here (see --data and --download): synthetic sessions instead");
        return Ok(Input::Synthetic(SyntheticSettings::default()));
    };
    println!("MovieLens in {}", path.display());
    Ok(Input::File(Source { path, ..Source::default() }, Filters::default()))
}

/// The first folder or archive called `ml-…` in `data/` or `$FAST_SLATE_DATA`, or the latter
/// itself if it holds ratings.
fn find() -> Option<PathBuf> {
    let from_environment = std::env::var_os("FAST_SLATE_DATA").map(PathBuf::from);
    for folder in [Some(PathBuf::from("data")), from_environment].into_iter().flatten() {
        if folder.join("ratings.csv").exists() || folder.join("ratings.dat").exists() {
            return Some(folder);
        }
        let Ok(entries) = fs_err::read_dir(&folder) else { continue };
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("ml-")))
            .collect();
        // Those with titles first, then by name.
        found.sort_by_key(|path| (!path.join("movies.csv").exists(), path.clone()));
        if let Some(first) = found.into_iter().next() {
            return Some(first);
        }
    }
    None
}

/// Downloads the release's archive into `folder` with curl, unless it is there, and says where it is.
fn fetch(release: Release, folder: &Path) -> Result<PathBuf> {
    let archive = folder.join(release.name()).with_extension("zip");
    if archive.exists() {
        return Ok(archive);
    }
    fs_err::create_dir_all(folder)?;
    let url = format!("https://files.grouplens.org/datasets/movielens/{}.zip", release.name());
    // What an interrupted download has left is gone on with.
    let partial = archive.with_extension("zip.partial");
    let status = Command::new("curl")
        .args(["--fail", "--location", "--progress-bar", "--continue-at", "-", "--output"])
        .arg(&partial)
        .arg(&url)
        .status()
        .with_context(|| format!("could not run curl; fetch {url} into {}", folder.display()))?;
    if !status.success() {
        bail!("curl could not fetch {url} ({status}): is there a network?");
    }
    fs_err::rename(&partial, &archive)?;
    Ok(archive)
}
