//! Fixtures.

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use fast_slate::dataset::SyntheticSettings;
use fast_slate::embedding::{Interactions, SvdOptions};
use fast_slate::prepared::{EmbeddingSource, Input, PrepareSettings, Prepared};

/// The binary, quiet about the device, with no colours and no inherited settings.
pub(crate) fn slate() -> Command {
    let mut command = Command::cargo_bin("slate").unwrap();
    command.env_remove("SLATE_LOG").env("NO_COLOR", "1");
    command
}

/// Synthetic sessions that train in a second: 400 users, 300 actions, L = 16.
pub(crate) fn small(folder: &Path) -> Prepared {
    let synthetic =
        SyntheticSettings { users: 400, actions: 300, topics: 12, ..SyntheticSettings::default() };
    let embedding = EmbeddingSource::Svd {
        interactions: Interactions::All,
        options: SvdOptions { latent_dim: 16, ..SvdOptions::default() },
    };
    let settings = PrepareSettings { embedding, ..PrepareSettings::default() };
    Prepared::create(&Input::Synthetic(synthetic), &settings, folder, false).unwrap()
}

/// A file of the shared data, or nothing, saying so: tests on it are skipped then.
pub(crate) fn real_data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FAST_SLATE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"),
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there (set FAST_SLATE_DATA)", path.display());
    None
}
