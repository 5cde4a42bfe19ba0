//! Embeddings that were fitted without a fold of the training users, `folds/KEY/0.safetensors` and
//! so on. They join the folder when first needed, as indexes do.

use std::path::{Path, PathBuf};

use fs_err as fs;
use rayon::prelude::*;

use super::{EmbeddingSource, Prepared};
use crate::dataset::{Folds, Split};
use crate::embedding::{EmbeddingFile, StoredEmbeddings};
use crate::error::{Error, Result};
use crate::files::{StagedFolder, digest_bytes, digest_file, read_text};
use crate::settings::Settings;

pub(super) const FOLDS: &str = "folds";
/// The file beside a fold's that has its SHA-256, after the number of the fold.
const DIGEST: &str = "weights.sha256";

impl Prepared {
    /// The folds of the training users in so many `parts`, the same for every run on this folder.
    #[must_use]
    pub fn folds(&self, parts: u16) -> Folds {
        Folds::new(&self.sessions, parts, self.manifest.seed())
    }

    /// The users that a run with `settings` is taught by, ascending.
    #[must_use]
    pub fn taught_by(&self, settings: &Settings) -> Vec<u32> {
        match settings.folds() {
            0 => self.sessions.contexts(Split::Train),
            parts => self.folds(parts).all(),
        }
    }

    /// This folder's embeddings, fitted again without each of the `folds`. They are fitted if no run
    /// has needed them before.
    ///
    /// # Errors
    /// [`Error::Setting`] if the embeddings were not fitted here; [`Error::File`] for a damaged
    /// file; fails if the factorisation fails.
    pub fn fold_embeddings(&self, folds: &Folds) -> Result<Vec<EmbeddingFile>> {
        let Some(source) = self.manifest.source().filter(EmbeddingSource::is_fitted) else {
            let problem = "needs embeddings that are fitted to this log, not a file; set it to 0";
            return Err(Error::setting("context.folds", problem));
        };
        let folder = place(&self.folder, &source, folds);
        let fit = |fold| -> Result<StoredEmbeddings> {
            tracing::info!("fitting embeddings without fold {} of {}", fold + 1, folds.count());
            let users = folds.without(fold);
            let most = users.len().min(self.sessions.num_actions).saturating_sub(1);
            let fitted =
                source.clone().at_most(most).fit(&self.sessions, &users, self.manifest.seed())?;
            Ok(fitted.resized(self.embeddings.latent_dim()))
        };
        // One after the other: a fit has all cores, and memory for itself.
        stage(&folder, |staged| {
            (0..folds.count()).try_for_each(|fold| write(staged, fold, &fit(fold)?))
        })?;
        let open = |fold| {
            let path = folder.join(format!("{fold}.safetensors"));
            let digest = folder.join(format!("{fold}.{DIGEST}"));
            if digest_file(&path)? != read_text(&digest)? {
                let problem = "is damaged; delete its folder to have it made again";
                return Err(Error::file(path, problem));
            }
            EmbeddingFile::open(&path)
        };
        (0..folds.count()).into_par_iter().map(open).collect()
    }
}

/// Writes the embeddings of `source` without each fold into a prepared folder.
pub(super) fn save(
    prepared: &Path,
    source: &EmbeddingSource,
    folds: &Folds,
    of_folds: &[StoredEmbeddings],
) -> Result<()> {
    stage(&place(prepared, source, folds), |staged| {
        let each = (0..folds.count()).into_par_iter().zip(of_folds);
        each.try_for_each(|(fold, of)| write(staged, fold, of))
    })
}

fn place(prepared: &Path, source: &EmbeddingSource, folds: &Folds) -> PathBuf {
    let key = digest_bytes(format!("{source:?}").as_bytes());
    let folds = match (folds.count(), folds.parts()) {
        (count, parts) if count < parts => format!("{count}-of-{parts}"),
        (_, parts) => parts.to_string(),
    };
    prepared.join(FOLDS).join(format!("{folds}-{}", &key[..16]))
}

/// Has `write` fill the folder, unless it is there.
fn stage(folder: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let staged = StagedFolder::new(folder)?;
    write(staged.path())?;
    staged.commit()
}

/// Writes the embeddings of a fold, and their digest.
fn write(folder: &Path, fold: u16, embeddings: &StoredEmbeddings) -> Result<()> {
    let path = folder.join(format!("{fold}.safetensors"));
    embeddings.save(&path)?;
    Ok(fs::write(folder.join(format!("{fold}.{DIGEST}")), digest_file(&path)?)?)
}
