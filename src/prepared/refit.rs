//! A prepared folder → the same interactions, all of them to train on.

use std::path::Path;

use super::create::{VERSION, save_features};
use super::phase::{Phase, Work, write_manifest};
use super::source::{Choice, EmbeddingSource};
use super::{EMBEDDINGS, Manifest, Prepared};
use crate::dataset::{
    Catalogue, Interactions, Sessions, Split, SplitKind, SplitSettings, Statistics, UserFeatures,
    assemble, tables,
};
use crate::embedding::StoredEmbeddings;
use crate::error::{Error, Result};
use crate::files::{StagedFolder, digest_bytes};

impl Prepared {
    /// Prepares everything in this folder, whoever was held out, to train on, into the folder `out`. Embeddings
    /// that were fitted are fitted again on all of it, with the settings that were chosen; those of a file, and
    /// the features of users, stay what they are. If `out` holds that already, it is only opened.
    ///
    /// # Errors
    /// [`Error::File`] if nothing is held out here, or `out` holds something else; fails if the factorisation
    /// fails.
    pub fn refit(&self, out: &Path) -> Result<Self> {
        self.require_held_out()?;
        if out.exists() {
            let there = Self::open(out)?;
            if there.manifest.input_digest == self.digest {
                return Ok(there);
            }
            let problem = "is there already, and is of other data; give another --out";
            return Err(Error::file(out, problem));
        }
        let split = self.split_of_all()?;
        let staged = StagedFolder::new(out)?;
        let folder = staged.path();
        let dataset = assemble(Interactions::of_folder(&self.folder)?, &split)?;
        tables::write(&dataset, folder)?;
        let mut work = Work::new(folder, out);
        let key = digest_bytes(format!("refit of {}", self.digest).as_bytes());
        work.finish(Phase::Sessions, &key)?;

        let source = self.manifest.source().ok_or_else(|| {
            Error::file(&self.folder, "does not say how its vectors were made; prepare it again")
        })?;
        self.embeddings_of_all(&source, &dataset.sessions, &dataset.item_ids()?)?
            .save(&folder.join(EMBEDDINGS))?;
        let choice = self.manifest.choice.clone().unwrap_or(Choice { source, settings: None });
        choice.save(folder)?;
        work.finish(Phase::Embeddings, &key)?;
        if let Some((values, table)) = self.features()?.zip(self.feature_table()?) {
            // One context of each user, where there may have been several.
            let values = values.select(&Catalogue::read(&self.folder)?.contexts);
            save_features(&UserFeatures { values, table }, folder)?;
            work.finish(Phase::Features, &key)?;
        }

        let mut settings = self.manifest.settings.clone();
        let table = toml::Value::try_from(&split);
        settings.insert("split".into(), table.map_err(|error| Error::library("split", error))?);
        let users: Vec<u32> = dataset.sessions.observed.contexts().collect();
        let manifest = Manifest {
            version: VERSION.to_owned(),
            input: format!("all of {}", self.folder.display()),
            input_digest: self.digest.clone(),
            files: work.made.files.clone(),
            keys: work.made.keys.clone(),
            settings,
            statistics: Statistics::of_users(&dataset.sessions, &users),
            choice: Some(choice),
            search: None,
        };
        write_manifest(folder, &manifest)?;
        staged.commit()?;
        let there = Self::new(out, manifest, dataset.sessions)?;
        Ok(there.with_observer(std::sync::Arc::clone(&self.observer)))
    }

    /// # Errors
    /// [`Error::File`] if nothing is held out.
    pub(crate) fn require_held_out(&self) -> Result<()> {
        if self.sessions.split.iter().any(|split| *split != Split::Train) {
            return Ok(());
        }
        Err(Error::file(&self.folder, "holds nothing out: all of it is trained on already"))
    }

    /// The split of this folder with nothing held out. What decided who hides what decides it still.
    fn split_of_all(&self) -> Result<SplitSettings> {
        let split = self.manifest.settings.get("split").cloned();
        let split: SplitSettings = split.map_or(Ok(SplitSettings::default()), |split| {
            split.try_into().map_err(|error| Error::library("the split of the folder", error))
        })?;
        let kind = if split.kind.is_by_time() { SplitKind::Temporal } else { SplitKind::Random };
        Ok(SplitSettings { kind, validation_share: 0.0, test_share: 0.0, ..split })
    }

    fn embeddings_of_all(
        &self,
        source: &EmbeddingSource,
        sessions: &Sessions,
        item_ids: &[String],
    ) -> Result<StoredEmbeddings> {
        if source.is_fitted() {
            let users = sessions.contexts(Split::Train);
            tracing::info!("fitting embeddings on all {} users", users.len());
            let embeddings = source.fit(sessions, &users, self.manifest.seed())?;
            embeddings.v.require_finite("embeddings fitted on all users")?;
            return Ok(embeddings);
        }
        // More training users make another order of the actions.
        let stored = self.embeddings.load()?;
        let before = Catalogue::read(&self.folder)?.items.ids;
        let rows: Vec<u32> = item_ids.iter().map(|id| before.number(id)).collect::<Result<_>>()?;
        Ok(StoredEmbeddings {
            v: stored.v.select(&rows),
            inputs: stored.inputs.map(|inputs| inputs.select(&rows)),
            ..stored
        })
    }
}
