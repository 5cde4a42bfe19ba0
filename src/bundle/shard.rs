//! A bundle → bundles of its catalogue's parts, for a catalogue that one process does not hold. A shard
//! has some of the items with their vectors, and no tower: a context of its own is the query itself. So
//! whatever opens a bundle opens a shard.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Bundle, Manifest, Recommender, VectorScalar};
use crate::dataset::Items;
use crate::embedding::{ActionEmbeddings, Vectors};
use crate::encoder::{Encoding, Fitted};
use crate::error::Result;
use crate::model::Model;
use crate::retrieval::{Hnsw, Search, Shard};

/// Which part of which catalogue a bundle is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartOf {
    /// Digest of the bundle of the whole.
    pub whole: String,
    /// P of the whole.
    pub num_actions: usize,
    /// The number in the whole of the first action here.
    pub first: u32,
    /// The part's place, from 1.
    pub index: usize,
    /// How many parts there are.
    pub of: usize,
}

impl PartOf {
    /// True if a part of so many actions is within the whole.
    pub(super) fn holds(&self, num_actions: usize) -> bool {
        let end = (self.first as usize).checked_add(num_actions);
        u32::try_from(self.num_actions).is_ok() && end.is_some_and(|end| end <= self.num_actions)
    }
}

/// Where the shards of the bundle at `out` are written: beside it, as `bundle-1-of-4`.
#[must_use]
pub fn shard_folders(out: &Path, count: usize) -> Vec<PathBuf> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    (1..=count).map(|index| out.with_file_name(format!("{name}-{index}-of-{count}"))).collect()
}

impl Bundle {
    /// [`write`](Self::write)s `count` shards of the bundle to [`shard_folders`], and then the bundle to
    /// `out`: where it is, all of them are. Each shard of a bundle with an index has a graph of its own with
    /// the same options.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for more shards than items, or none; the errors of [`write`](Self::write),
    /// before anything is written if one of the folders may not be.
    pub fn write_sharded(
        &self,
        out: &Path,
        count: usize,
        scalar: VectorScalar,
        replace: bool,
    ) -> Result<Manifest> {
        self.check_out(out, Some(count), replace)?;
        let num_actions = self.actions.num_actions();
        let (staged, manifest) = self.stage(out, scalar)?;
        let whole = manifest.digest()?;
        for (at, folder) in shard_folders(out, count).iter().enumerate() {
            #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
            let [start, end] = [at, at + 1].map(|at| (num_actions * at / count) as u32);
            let part = PartOf {
                whole: whole.clone(),
                num_actions,
                first: start,
                index: at + 1,
                of: count,
            };
            self.shard(start..end, part)?.write(folder, scalar, replace)?;
        }
        staged.commit()?;
        Ok(manifest)
    }

    /// The items `range` with what finds them.
    fn shard(&self, range: Range<u32>, part: PartOf) -> Result<Self> {
        let rows: Vec<u32> = range.clone().collect();
        let vectors = Vectors::from(ActionEmbeddings::new(self.actions.beta().select(&rows))?);
        let items = self.items.table()?.slice(i64::from(range.start), range.len());
        let actions = Arc::clone(&vectors.actions);
        let graph = |options| Hnsw::build(Arc::clone(&actions), &options).map(|it| (options, it));
        let index = self.index.as_ref().map(|(options, _)| graph(*options)).transpose()?;
        Ok(Self {
            trained: self.trained.clone(),
            sigma: None,
            model: Model { tower: None, actions: None, corrections: Vec::new() },
            index: index.map(|(options, graph)| (options, Arc::new(graph))),
            actions,
            vectors,
            encoding: Encoding { encoders: vec![Fitted::Mean], weights: None },
            items: Items::new(&items, Path::new("items"))?,
            users: None,
            onnx: false,
            part: Some(part),
        })
    }
}

impl Recommender {
    /// The digest of the bundle of the whole catalogue; none for one that was never written.
    #[must_use]
    pub fn whole(&self) -> Option<&str> {
        self.bundle().part.as_ref().map_or(self.digest(), |part| Some(&part.whole))
    }

    /// The search of the items here under the numbers that the whole catalogue gives them.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for a search through an index that there is not.
    pub fn shard(&self, search: Option<Search>) -> Result<Shard> {
        let Bundle { actions, part, .. } = self.bundle();
        let first = part.as_ref().map_or(0, |part| part.first);
        #[allow(clippy::cast_possible_truncation, reason = "actions are numbered by u32")]
        let end = first + actions.num_actions() as u32;
        Ok(Shard::new(self.retriever(search)?, first..end))
    }
}
