//! A log and settings → a prepared folder.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::folds;
use super::phase::{Phase, Work, is_ours, write_manifest};
use super::source::{Choice, Choose, Chosen, EmbeddingSource, HeldOut, Judge};
use super::{
    AuditedSearch, EMBEDDINGS, FEATURE_TABLE, FEATURES, FEATURES_TENSOR, MANIFEST, Manifest,
    Prepared,
};
use crate::dataset::{
    self, FeatureSource, Filters, Frames, Given, Interactions, Sessions, Source, Split, SplitKind,
    SplitSettings, Statistics, SyntheticSettings, Times, UserFeatures, UserTable, assemble,
    read_item_ids, read_user_ids, tables,
};
use crate::embedding::{Import, SvdOptions, import, tensors};
use crate::error::{Error, Result};
use crate::files::{
    StagedFolder, digest_bytes, digest_file, replaceable, require_only, write_toml,
};
use crate::settings::Preset;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The interactions to prepare.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file of interactions.
    File(Source, Filters),
    /// Interactions in memory.
    Table(Frames, Filters),
    /// Files that are split already.
    Given(Given, Filters),
    /// Synthetic interactions.
    Synthetic(SyntheticSettings),
}

impl Input {
    /// SHA-256 of the files or tables, in hex; empty for synthetic sessions.
    fn digest(&self) -> Result<String> {
        match self {
            Self::File(source, _) => dataset::digest(source),
            Self::Table(frames, filters) => frames.digest(filters),
            Self::Given(given, _) => given.digests(),
            Self::Synthetic(_) => Ok(String::new()),
        }
    }

    /// Reads the interactions; a split by time counts what is repeated from the first time on.
    fn read(&self, split: &SplitSettings) -> Result<Interactions> {
        let timed = |source: &Source| Source {
            first_times: source.first_times || split.kind.is_by_time(),
            ..source.clone()
        };
        match self {
            Self::File(source, filters) => dataset::read(&timed(source), filters),
            Self::Table(Frames { tables, columns }, filters) => {
                let frames = Frames { tables: tables.clone(), columns: timed(columns) };
                dataset::read_frames(&frames, filters)
            }
            Self::Given(given, filters) => dataset::read_given(given, filters),
            Self::Synthetic(synthetic) => dataset::synthetic(synthetic),
        }
    }
}

impl Filters {
    /// The filters of a preset: by FOPO's procedure, which the paper follows, users have at least 20 items.
    #[must_use]
    pub fn of(preset: Preset) -> Self {
        let default = Self::default();
        match preset {
            Preset::Paper => Self { min_user_interactions: 20, ..default },
            Preset::Default => default,
        }
    }
}

impl SplitSettings {
    /// The split of a preset: the paper's has no test users; by time a fifth of each user's items is tested.
    #[must_use]
    pub fn of(preset: Preset, kind: SplitKind) -> Self {
        let default = Self { kind, ..Self::default() };
        match (preset, kind) {
            (Preset::Paper, _) => Self { test_share: 0.0, ..default },
            (Preset::Default, SplitKind::Temporal) => Self { test_share: 0.2, ..default },
            (Preset::Default, _) => default,
        }
    }
}

impl SvdOptions {
    /// The options of a preset: the paper decomposes the interactions as they are.
    #[must_use]
    pub fn of(preset: Preset) -> Self {
        let default = Self::default();
        match preset {
            Preset::Paper => Self { normalization: 0.0, ..default },
            Preset::Default => default,
        }
    }
}

/// The settings of a preparation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareSettings {
    /// The split into sessions; its seed also starts the embeddings.
    pub split: SplitSettings,
    /// The source of the action vectors V.
    pub embedding: EmbeddingSource,
    /// A table of users, for contexts that hold more than the user's actions.
    pub features: Option<FeatureSource>,
}

impl Default for PrepareSettings {
    /// FOPO's procedure, with a tenth of the users each for validation and test, and the
    /// embeddings that earn the most.
    fn default() -> Self {
        Self {
            split: SplitSettings::default(),
            embedding: EmbeddingSource::Auto(Judge::default()),
            features: None,
        }
    }
}

/// The time of each part of a preparation, in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phases {
    /// Reading, filtering and splitting the log.
    pub sessions: f64,
    /// Computing or reading the embeddings, while the sessions are written.
    pub embeddings: f64,
    /// Reading the table of users and joining it to the sessions.
    pub features: f64,
    /// Writing the rest of the folder.
    pub written: f64,
    /// The phases that were taken over from an earlier preparation.
    #[serde(skip)]
    pub reused: Vec<Phase>,
}

impl Prepared {
    /// Records `search` in the folder, for the settings of its preset.
    ///
    /// # Errors
    /// An I/O error naming the file.
    pub fn keep_search(&mut self, search: AuditedSearch) -> Result<()> {
        self.manifest.search = Some(search);
        write_manifest(&self.folder, &self.manifest)
    }
}

/// Prepares `input` into the folder `out`; with `replace`, in the place of another prepared folder.
/// Phases that this folder, or a killed preparation, has finished with the same input and settings
/// are not done again. `choose` is asked where the source of the embeddings is
/// [`EmbeddingSource::Auto`]. The time of each part is reported.
///
/// # Errors
/// An error naming the file and row at fault; [`Error::File`] if `out` exists already or is a
/// mount point, or another process is preparing it. Nothing is left under its name then.
pub fn prepare(
    input: &Input,
    settings: &PrepareSettings,
    choose: &Choose<'_>,
    out: &Path,
    replace: bool,
) -> Result<(Prepared, Phases)> {
    settings.split.check()?;
    require_free(out, replace)?;
    let input_digest = input.digest()?;
    // An error in it is reported before hours of other work.
    let started = Instant::now();
    let read = |source| Ok::<_, Error>((source, UserTable::read(source)?));
    let users = settings.features.as_ref().map(read).transpose()?;
    let features_read = started.elapsed().as_secs_f64();
    let staged = StagedFolder::resume(out)?;
    // Another process may have finished it in the meantime.
    require_free(out, replace)?;
    let mut work = Work::new(staged.path(), out);
    let mut phases = Phases::default();

    let key = sessions_key(input, &input_digest, &settings.split);
    let started = Instant::now();
    let (sessions, chosen) = if work.reuse(Phase::Sessions, &key)? {
        let sessions = tables::read_sessions(staged.path())?;
        phases.sessions = started.elapsed().as_secs_f64();
        (sessions, None)
    } else {
        let dataset = assemble(input.read(&settings.split)?, &settings.split)?;
        phases.sessions = started.elapsed().as_secs_f64();
        // The tables are written by one thread while others make the embeddings.
        let started = Instant::now();
        let chosen = thread::scope(|scope| {
            let written = scope.spawn(|| {
                tables::write(&dataset, staged.path())?;
                work.finish(Phase::Sessions, &key)
            });
            let ids = || dataset.item_ids();
            let chosen = embed(&dataset.sessions, dataset.times.as_ref(), ids, settings, choose);
            written.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            chosen
        })?;
        phases.embeddings = started.elapsed().as_secs_f64();
        (dataset.sessions, Some(chosen))
    };

    let started = Instant::now();
    let key = embeddings_key(&work, settings)?;
    if chosen.is_none() && work.reuse(Phase::Embeddings, &key)? {
        phases.embeddings = started.elapsed().as_secs_f64();
    } else {
        let Chosen { choice, embeddings, folds } = if let Some(chosen) = chosen {
            chosen
        } else {
            let times = tables::read_times(staged.path(), &sessions)?;
            let ids = || read_item_ids(staged.path());
            embed(&sessions, times.as_ref(), ids, settings, choose)?
        };
        phases.embeddings += started.elapsed().as_secs_f64();
        let started = Instant::now();
        embeddings.save(&staged.path().join(EMBEDDINGS))?;
        choice.save(staged.path())?;
        if let Some((folds, of_folds)) = &folds {
            folds::save(staged.path(), &choice.source, folds, of_folds)?;
        }
        work.finish(Phase::Embeddings, &key)?;
        phases.written += started.elapsed().as_secs_f64();
    }

    if let Some((source, users)) = users {
        let started = Instant::now();
        let key = features_key(&work, source)?;
        if !work.reuse(Phase::Features, &key)? {
            let ids = read_user_ids(staged.path())?;
            save_features(&users.features(&ids, &sessions.split)?, staged.path())?;
            work.finish(Phase::Features, &key)?;
        }
        phases.features = features_read + started.elapsed().as_secs_f64();
    } else {
        work.remove(Phase::Features)?;
    }

    let started = Instant::now();
    let statistics = Statistics::of_users(&sessions, &read_user_ids(staged.path())?);
    let mut manifest = manifest(input, input_digest, settings, &work, statistics)?;
    if work.changes_nothing() {
        // So its indexes stay, and what they were searched with.
        manifest.search = Manifest::read(out).ok().and_then(|before| before.search);
        write_manifest(out, &manifest)?;
    } else {
        write_manifest(staged.path(), &manifest)?;
        staged.commit()?;
    }
    phases.written += started.elapsed().as_secs_f64();
    phases.reused = work.reused;
    Ok((Prepared::new(out, manifest, sessions)?, phases))
}

fn require_free(out: &Path, replace: bool) -> Result<()> {
    replaceable(out)?;
    let taken = out.exists() && fs_err::read_dir(out)?.next().is_some();
    let problem = match replace {
        _ if !taken => return Ok(()),
        true if out.join(MANIFEST).exists() => return require_only(out, is_ours),
        true => "is not a prepared folder, so it is not replaced",
        false => "is there already; give another --out, or replace it with --force",
    };
    Err(Error::file(out, problem))
}

fn embed(
    sessions: &Sessions,
    times: Option<&Times>,
    item_ids: impl FnOnce() -> Result<Vec<String>>,
    settings: &PrepareSettings,
    choose: &Choose<'_>,
) -> Result<Chosen> {
    let seed = settings.split.seed;
    let choice = match &settings.embedding {
        EmbeddingSource::Auto(judge) => {
            let held_out = match (settings.split.kind, times) {
                (SplitKind::Random, _) => HeldOut::Users,
                (kind, Some(times)) if kind.is_by_time() => HeldOut::Latest(times),
                _ => HeldOut::Items,
            };
            return choose(sessions, held_out, judge, seed);
        }
        EmbeddingSource::Again { choice, .. } => {
            let Choice { source, settings } = Choice::clone(choice);
            if settings.as_ref().is_some_and(|chosen| chosen.recency > 0.0) && times.is_none() {
                let problem = "what was chosen counts recent actions more (ρ), and these interactions have no times: \
                               give --time-column, and the split that it was chosen for";
                return Err(Error::setting("embeddings", problem));
            }
            // The interactions may have become too few for the length that was chosen.
            let users = sessions.contexts(Split::Train).len();
            let most = users.min(sessions.num_actions).saturating_sub(1);
            Choice { source: source.at_most(most), settings }
        }
        source => Choice { source: source.clone(), settings: None },
    };
    let embeddings = match &choice.source {
        EmbeddingSource::Import(file) => import(file, &item_ids()?)?,
        fitted => {
            let embeddings = fitted.fit(sessions, &sessions.contexts(Split::Train), seed)?;
            // Weights beyond all measure; they would be refused by whatever reads the file.
            embeddings.v.require_finite("embeddings fitted with these settings")?;
            embeddings
        }
    };
    Ok(Chosen { choice, embeddings, folds: None })
}

/// Digest of everything that decides the sessions.
fn sessions_key(input: &Input, input_digest: &str, split: &SplitSettings) -> String {
    let input = match input {
        Input::File(source, filters) | Input::Table(Frames { columns: source, .. }, filters) => {
            // The bytes decide, not where they are.
            let columns = Source { path: PathBuf::new(), ..source.clone() };
            format!("{:?}", (input_digest, columns, filters))
        }
        Input::Given(Given { train, validation, .. }, filters) => {
            let columns = Source { path: PathBuf::new(), ..train.clone() };
            format!("{:?}", (input_digest, columns, validation.is_some(), filters))
        }
        Input::Synthetic(synthetic) => format!("{synthetic:?}"),
    };
    digest_bytes(format!("{:?}", (VERSION, input, split)).as_bytes())
}

/// Digest of everything that decides the embeddings of the sessions in `work`.
fn embeddings_key(work: &Work, settings: &PrepareSettings) -> Result<String> {
    let source = match &settings.embedding {
        EmbeddingSource::Import(Import { path, id_column, ids, missing }) => {
            let ids = ids.as_deref().map(digest_file).transpose()?;
            format!("{:?}", (digest_file(path)?, id_column, ids, missing))
        }
        computed => format!("{computed:?}"),
    };
    let sessions = work.digests(Phase::Sessions);
    let all = format!("{:?}", (VERSION, sessions, source, settings.split.seed));
    Ok(digest_bytes(all.as_bytes()))
}

/// Digest of everything that decides the features of the users in `work`.
fn features_key(work: &Work, source: &FeatureSource) -> Result<String> {
    let FeatureSource { path, id_column, columns } = source;
    let all = (VERSION, work.digests(Phase::Sessions), digest_file(path)?, id_column, columns);
    Ok(digest_bytes(format!("{all:?}").as_bytes()))
}

pub(super) fn save_features(features: &UserFeatures, folder: &Path) -> Result<()> {
    let UserFeatures { values, table } = features;
    let shape = vec![values.rows(), values.cols()];
    tensors::write(&folder.join(FEATURES), &[(FEATURES_TENSOR, shape, values.as_slice())])?;
    write_toml(&folder.join(FEATURE_TABLE), table)
}

fn manifest(
    input: &Input,
    input_digest: String,
    settings: &PrepareSettings,
    work: &Work,
    statistics: Statistics,
) -> Result<Manifest> {
    let table = |result: Result<toml::Table, toml::ser::Error>| {
        result.map_err(|error| Error::library(MANIFEST, error))
    };
    let mut all = table(toml::Table::try_from(settings))?;
    let input = match input {
        Input::File(source, filters) | Input::Table(Frames { columns: source, .. }, filters) => {
            all.insert("filters".into(), table(toml::Table::try_from(filters))?.into());
            source.path.display().to_string()
        }
        Input::Given(given, filters) => {
            all.insert("filters".into(), table(toml::Table::try_from(filters))?.into());
            let files = given.files().into_iter();
            let names = files.map(|(split, file)| format!("{split}: {}", file.path.display()));
            names.collect::<Vec<_>>().join(", ")
        }
        Input::Synthetic(synthetic) => {
            all.insert("synthetic".into(), table(toml::Table::try_from(synthetic))?.into());
            "synthetic sessions".to_owned()
        }
    };
    Ok(Manifest {
        choice: Some(Choice::read(work.folder())?),
        version: VERSION.to_owned(),
        input,
        input_digest,
        files: work.made.files.clone(),
        keys: work.made.keys.clone(),
        settings: all,
        statistics,
        search: None,
    })
}
