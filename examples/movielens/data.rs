//! Where MovieLens is: in a folder, or at GroupLens.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use fast_slate::dataset::{Filters, Source, SyntheticSettings};
use fast_slate::files::write_atomic;
use fast_slate::prepared::Input;
use indicatif::{ProgressBar, ProgressStyle};

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

/// Downloads the release's archive into `folder`, unless it is there, and says where it is.
fn fetch(release: Release, folder: &Path) -> Result<PathBuf> {
    let archive = folder.join(release.name()).with_extension("zip");
    if archive.exists() {
        return Ok(archive);
    }
    fs_err::create_dir_all(folder)?;
    let url = format!("https://files.grouplens.org/datasets/movielens/{}.zip", release.name());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bytes = runtime
        .block_on(get(&url))
        .with_context(|| format!("could not download {url}: is there a network?"))?;
    write_atomic(&archive, |file| Ok(file.write_all(&bytes)?))?;
    Ok(archive)
}

async fn get(url: &str) -> reqwest::Result<Vec<u8>> {
    let mut response = reqwest::get(url).await?.error_for_status()?;
    let style = ProgressStyle::with_template("{bar:24} {bytes}/{total_bytes}  ETA {eta}");
    let bar = ProgressBar::new(response.content_length().unwrap_or(0))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        bar.set_position(bytes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(bytes)
}
