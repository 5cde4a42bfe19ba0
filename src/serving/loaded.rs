//! A folder in, a bundle that answers out: opened, checked and warmed before anybody asks it. What is
//! mapped is checked while it answers, where no other bundle answers in its place.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use super::titles::Titles;
use crate::bundle::{
    Answer, Manifest, Options, Recommender, Request, Unchecked, VectorScalar, Who,
};
use crate::device::{Chosen, available_memory};
use crate::error::{Error, Result};
use crate::retrieval::Search;

/// A bundle that answers.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) recommender: Recommender,
    pub(super) titles: Titles,
    /// What was in the folder before it was read.
    pub(super) version: Option<Version>,
    /// The bundle's digest.
    pub(super) digest: String,
    /// The index's digest with its ef, if there is an index.
    index: Option<String>,
    /// The type of the vectors that are searched.
    scalar: VectorScalar,
    /// What the index finds of the true top K; known some time after loading.
    pub(super) recall: OnceLock<f64>,
    /// The files that were mapped.
    unchecked: Option<Unchecked>,
    /// What is wrong with them; known some time after loading.
    pub(super) damage: OnceLock<String>,
}

/// The requests that warm a bundle up, and those that its index is audited with.
const WARMING: u32 = 64;
const AUDITED: u32 = 200;

impl Loaded {
    /// Refuses a policy that cannot draw the `share` of the slates that explore.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(super) fn require_exploration(&self, share: f32) -> Result<()> {
        if share > 0.0 && self.recommender.bundle().sigma.is_none() {
            let problem = "the policy of this bundle does not draw by Gaussian noise on its query";
            return Err(Error::setting("explore-share", problem));
        }
        Ok(())
    }

    /// Opens the bundle in `folder`; with `map`, its large files stay on disk.
    ///
    /// # Errors
    /// [`Error::File`] for a bundle that is damaged, or larger than the memory that is left.
    pub(super) fn open(folder: &Path, chosen: &Chosen, map: bool) -> Result<Self> {
        let version = Version::of(folder);
        // A link may lead elsewhere before all of it is read, or checked.
        let place = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let folder = place.as_path();
        let (manifest, _) = Manifest::read(folder)?;
        let bytes: f64 = manifest.files.values().map(|file| file.bytes as f64).sum();
        if let Some(available) = available_memory().filter(|_| !map)
            && available < bytes
        {
            let problem = format!(
                "needs {:.1} GB of memory, of which {:.1} GB are left",
                bytes / 1e9,
                available / 1e9
            );
            return Err(Error::file(folder, problem));
        }
        let (recommender, unchecked) = if map {
            let (recommender, unchecked) = Recommender::map(folder, &chosen.device)?;
            (recommender, Some(unchecked))
        } else {
            (Recommender::open(folder, &chosen.device)?, None)
        };
        let recommender = recommender.on(chosen)?;
        let index = manifest.files.get("index.usearch").and_then(|file| file.blake3.get(..16));
        let ef = manifest.index.map(|options| options.ef_search);
        let index = index.zip(ef).map(|(index, ef)| format!("hnsw {index} ef {ef}"));
        let scalar = manifest.vectors.scalar;
        let titles = Titles::new(&recommender.bundle().items);
        let digest = recommender.digest().unwrap_or_default().to_owned();
        let (recall, damage) = Default::default();
        Ok(Self { recommender, titles, version, digest, index, scalar, recall, unchecked, damage })
    }

    /// Answers some requests, so that the first of a client takes no longer than others.
    ///
    /// # Errors
    /// As [`Recommender::recommend`].
    pub(super) fn warm(&self) -> Result<()> {
        self.recommender.recommend(&self.somebody(WARMING), &self.options()).map(drop)
    }

    /// Compares the files that were mapped with what was written.
    ///
    /// # Errors
    /// [`Error::File`] for one that differs.
    pub(super) fn check(&self) -> Result<()> {
        self.unchecked.as_ref().map_or(Ok(()), Unchecked::check)
    }

    /// What fixes a search beside the trained vectors: `exact`, or the index and its ef, and the
    /// rounding of the vectors.
    pub(super) fn retrieval(&self, exact: bool) -> String {
        let index = self.index.as_deref().filter(|_| !exact);
        let rounding = if self.scalar == VectorScalar::F16 { " f16" } else { "" };
        format!("{}{rounding}", index.unwrap_or("exact"))
    }

    /// Slates as long as the run's, or of all items of a shard that holds fewer.
    fn options(&self) -> Options {
        let bundle = self.recommender.bundle();
        let slate_size = bundle.trained.slate_size.min(bundle.actions.num_actions());
        Options { slate_size: Some(slate_size), ..Options::default() }
    }

    /// Requests of up to `count` people: of known users where there are any, otherwise of somebody who
    /// has one item.
    fn somebody(&self, count: u32) -> Vec<Request> {
        let bundle = self.recommender.bundle();
        let spread = |all: usize| {
            let step = all.div_ceil(count as usize).max(1);
            (0..all).step_by(step)
        };
        #[allow(clippy::cast_possible_truncation, reason = "numbered by u32")]
        let who: Vec<Who> = match &bundle.users {
            Some(users) if !users.ids.is_empty() => spread(users.ids.len())
                .map(|user| users.ids.id(user as u32).to_owned())
                .map(|id| Who::User { id, newer: Vec::new() })
                .collect(),
            _ => spread(bundle.items.ids.len())
                .map(|action| Who::Items(vec![bundle.items.ids.id(action as u32).to_owned()]))
                .collect(),
        };
        who.into_iter().map(Request::from).collect()
    }

    /// Compares the files that were mapped with what was written, and the index with exact search.
    ///
    /// # Errors
    /// As [`Recommender::recommend`].
    pub(super) fn audit(&self) -> Result<()> {
        if let Err(error) = self.check() {
            tracing::error!("{error}");
            let _ = self.damage.set(error.to_string());
            return Ok(());
        }
        if self.recommender.bundle().index.is_none() {
            return Ok(());
        }
        let requests = self.somebody(AUDITED);
        let by = |search| {
            let options = Options { search: Some(search), ..self.options() };
            self.recommender.recommend(&requests, &options)
        };
        let (found, wanted) = (by(Search::Hnsw)?, by(Search::Exact)?);
        let _ = self.recall.set(Answer::recall(&found, &wanted));
        Ok(())
    }
}

/// Where a bundle is, and whether it is still the one that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    folder: PathBuf,
    manifest: Option<SystemTime>,
}

impl Version {
    /// What `folder`, which may be a link, leads to now.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let folder = fs_err::canonicalize(folder).ok()?;
        let manifest = fs_err::metadata(folder.join(crate::bundle::MANIFEST)).ok()?;
        Some(Self { manifest: manifest.modified().ok(), folder })
    }
}
