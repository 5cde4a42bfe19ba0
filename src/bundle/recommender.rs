//! Requests in, slates out. What a run decides for a user and what its bundle answers are the same
//! bytes, alone or in any batch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use rayon::prelude::*;

use super::asking::Asking;
use super::groups::GroupLimit;
use super::request::Placed;
use super::{Answer, Bundle, Options, Query, Recommendation, Request, Unchecked};
use crate::device::Chosen;
use crate::encoder::ContextEncoder;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::matrix::Matrix;
use crate::policy::{Radial, Scale, Sigma};
use crate::retrieval::{
    Exact, FanOut, Queries, Retriever, Search, Sharded, check_slate_size, exact_on,
};
use crate::seed::{Purpose, Seed};

/// Answers requests with a bundle, from memory; many threads may ask it at once, and a clone shares all
/// of it.
#[derive(Clone, Debug)]
pub struct Recommender {
    bundle: Arc<Bundle>,
    digest: Option<Arc<str>>,
    encoder: Arc<dyn ContextEncoder>,
    exact: Arc<dyn Retriever>,
    /// The search of the whole catalogue elsewhere, in the place of what the bundle has.
    elsewhere: Option<Arc<Sharded>>,
    scale: Option<Scale>,
}

/// The most excluded actions of a block of requests, 64 MB of them.
const EXCLUDED: usize = 1 << 24;

/// The most actions that one search returns, 128 MB of them with their scores.
const FOUND: usize = 1 << 24;

/// So many times K are searched at first for a slate that may hold few items of a group.
const DEPTH: usize = 4;

impl Recommender {
    /// Answers with `bundle`.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Setting`] if its parts do not fit each other.
    pub fn new(bundle: Bundle) -> Result<Self> {
        let encoder = bundle.encoding.encoder(&bundle.vectors)?;
        let exact = Arc::new(Exact::new(Arc::clone(&bundle.actions)));
        let (dim, norm) = (bundle.actions.latent_dim(), bundle.actions.mean_norm());
        let scale = bundle.sigma.map(|sigma| Scale::new(sigma, Radial::Keep, dim, norm));
        let scale = scale.transpose()?;
        let bundle = Arc::new(bundle);
        Ok(Self { bundle, digest: None, encoder, exact, elsewhere: None, scale })
    }

    /// Opens the bundle in `folder` for `device`.
    ///
    /// # Errors
    /// The errors of [`Bundle::open`].
    pub fn open(folder: &Path, device: &Device) -> Result<Self> {
        let (bundle, digest) = Bundle::open(folder, device)?;
        Ok(Self { digest: Some(digest.into()), ..Self::new(bundle)? })
    }

    /// [`open`](Self::open) with the large files left on disk; they are still to be checked.
    ///
    /// # Errors
    /// The errors of [`Bundle::map`].
    pub fn map(folder: &Path, device: &Device) -> Result<(Self, Unchecked)> {
        let (bundle, digest, unchecked) = Bundle::map(folder, device)?;
        Ok((Self { digest: Some(digest.into()), ..Self::new(bundle)? }, unchecked))
    }

    /// Searches exactly on the `chosen` device if it is a GPU. The answers are the same. A bundle with an
    /// index is searched on the host: few requests ask for an exact search of it.
    ///
    /// # Errors
    /// [`Error::Device`] if it has too little memory.
    pub fn on(self, chosen: &Chosen) -> Result<Self> {
        if self.bundle.index.is_some() {
            return Ok(self);
        }
        Ok(Self { exact: exact_on(&self.bundle.actions, chosen)?, ..self })
    }

    /// Answers through the shards behind `fan_out`. A search among a few items that are allowed alone
    /// stays here.
    #[must_use]
    pub fn through(self, fan_out: Arc<dyn FanOut>) -> Self {
        let (num_actions, latent_dim) =
            (self.bundle.actions.num_actions(), self.bundle.actions.latent_dim());
        let sharded = Arc::new(Sharded::new(fan_out, num_actions, latent_dim));
        Self { elsewhere: Some(sharded), ..self }
    }

    /// What it answers with.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// BLAKE3 of `bundle.toml`, hence of all files; none for a bundle that was never written.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// D.
    #[must_use]
    pub fn context_dim(&self) -> usize {
        self.encoder.dim()
    }

    /// The rule for σ of the policy `h + σε`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a policy that draws otherwise.
    pub fn sigma_rule(&self) -> Result<Sigma> {
        self.bundle.sigma.ok_or_else(draws_otherwise)
    }

    /// True for a query `[L]` at which a relative σ has stopped shrinking.
    #[must_use]
    pub fn is_floored(&self, h: &[f32]) -> bool {
        self.scale.is_some_and(|scale| scale.is_floored(h))
    }

    /// True if the policy draws around the query `h` `[L]` with this σ, but for rounding.
    #[must_use]
    pub fn draws_with(&self, sigma: f32, h: &[f32]) -> bool {
        self.scale.is_some_and(|scale| (scale.sigma(h) - sigma).abs() <= 1e-3 * sigma)
    }

    /// M(X) `[D]` of who asks, and the actions that are known of them, ascending.
    ///
    /// # Errors
    /// As [`recommend`](Self::recommend) for the same request.
    pub fn context(&self, request: &Request) -> Result<(Vec<f32>, Vec<u32>)> {
        let options = Options::default();
        let asking = Asking::new(&self.bundle, self.context_dim(), request, 0, &options)?;
        if let Some(context) = asking.context {
            return Ok((context.to_vec(), Vec::new()));
        }
        let mut context = vec![0.0; self.context_dim()];
        self.encoder.encode(asking.known(), &mut context);
        Ok((context, asking.known.to_vec()))
    }

    /// The answers to `requests`, in their order.
    ///
    /// # Errors
    /// [`Error::SlateTooLarge`] for K = 0 or K above P; [`Error::UnknownId`] for a user whom the bundle
    /// does not know; [`Error::Setting`] for users of a bundle without histories, a search through an
    /// index that it does not have, a limit of 0 items of a group or one for items without groups, or
    /// exploration by a policy that draws otherwise; [`Error::Shape`] and [`Error::NotFinite`] for a context;
    /// [`Error::Interrupted`].
    pub fn recommend(&self, requests: &[Request], options: &Options) -> Result<Vec<Answer>> {
        let items = &self.bundle.items;
        let answer = |placed: Placed| {
            let Placed { actions, scores, ignored, cold, short, query } = placed;
            let slate = actions.into_iter().zip(scores).map(|(action, score)| Recommendation {
                item_id: items.ids.id(action).to_owned(),
                title: items.title(action).map(str::to_owned),
                group: items.group(action).map(str::to_owned),
                score,
            });
            Answer { slate: slate.collect(), ignored, cold, short, query }
        };
        Ok(self.place(requests, options)?.into_iter().map(answer).collect())
    }

    /// [`recommend`](Self::recommend) in numbers.
    pub(super) fn place(&self, requests: &[Request], options: &Options) -> Result<Vec<Placed>> {
        let num_actions = self.bundle.actions.num_actions();
        let slate_size = options.slate_size.unwrap_or(self.bundle.trained.slate_size);
        check_slate_size(slate_size, num_actions, 0)?;
        self.check_limit(options.max_per_group)?;
        let block = (EXCLUDED / (options.filter.denied.len() + 1)).max(1);
        let mut placed = Vec::with_capacity(requests.len());
        for (at, requests) in requests.chunks(block).enumerate() {
            interrupt::check()?;
            let asking = requests.par_iter().enumerate().map(|(row, request)| {
                Asking::new(&self.bundle, self.context_dim(), request, at * block + row, options)
            });
            let asking = asking.collect::<Result<_>>()?;
            placed.extend(self.search(asking, at * block, slate_size, options)?);
        }
        Ok(placed)
    }

    fn check_limit(&self, max_per_group: Option<usize>) -> Result<()> {
        let problem = match max_per_group {
            Some(0) => "expected 1 or more items of a group; leave it out for no limit",
            Some(_) if !self.bundle.items.has_groups() => {
                "the items of this bundle have no groups; export it with --titles and a file that \
                 has a column of groups"
            }
            _ => return Ok(()),
        };
        Err(Error::setting("max_per_group", problem))
    }

    /// True if the bundle holds the history of a user with this id.
    #[must_use]
    pub fn knows(&self, user_id: &str) -> bool {
        self.bundle.users.as_ref().is_some_and(|users| users.ids.find(user_id).is_some())
    }

    /// The answers to one block of requests, `above` of which stand before it.
    fn search(
        &self,
        asking: Vec<Asking<'_>>,
        above: usize,
        slate_size: usize,
        options: &Options,
    ) -> Result<Vec<Placed>> {
        if asking.is_empty() {
            return Ok(Vec::new());
        }
        let mut contexts = Matrix::zeros(asking.len(), self.context_dim());
        contexts.par_rows_mut().zip(&asking).for_each(|(row, asking)| match asking.context {
            Some(context) => row.copy_from_slice(context),
            None => self.encoder.encode(asking.known(), row),
        });
        let decided = self.bundle.model.latent(&contexts)?; // [B, L]
        let explored = match options.explore {
            Some(seed) => Some(self.perturbed(&decided, above, seed)?),
            None => None,
        };
        let latent = explored.as_ref().map_or(&decided, |(latent, _)| latent);
        let few = options.filter.few.as_ref();
        let (retriever, size): (Arc<dyn Retriever>, usize) = match few {
            Some(few) => (Arc::new(few.exact.clone()), few.actions.len()),
            None => (self.retriever(options.search)?, self.bundle.actions.num_actions()),
        };
        let excluded: Vec<Cow<'_, [u32]>> = asking
            .par_iter()
            .map(|asking| match few {
                Some(few) => Cow::Owned(few.numbers(&asking.excluded)),
                None => Cow::Borrowed(asking.excluded.as_ref()),
            })
            .collect();

        let limit = options.max_per_group.map(|most| GroupLimit::new(&self.bundle.items, most));
        let action = |number: u32| few.map_or(number, |few| few.actions[number as usize]);
        let mut found = vec![(Vec::new(), Vec::new()); asking.len()];
        #[allow(clippy::cast_possible_truncation, reason = "requests of a block")]
        let mut open: Vec<u32> = (0..asking.len() as u32).collect();
        let mut depth = slate_size * limit.as_ref().map_or(1, |_| DEPTH);
        while !open.is_empty() {
            // Those for whom fewer than K are left get what there is.
            let left = |row: u32| size - excluded[row as usize].len();
            let mut rows_of: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
            for row in open.drain(..) {
                rows_of.entry(depth.min(left(row))).or_default().push(row);
            }
            rows_of.remove(&0);
            let searches = rows_of.iter().flat_map(|(&length, rows)| {
                rows.chunks((FOUND / length).max(1)).map(move |rows| (length, rows))
            });
            for (length, rows) in searches {
                interrupt::check()?;
                let lists: Vec<&[u32]> = rows.iter().map(|&row| &*excluded[row as usize]).collect();
                let latent = latent.select(rows);
                let queries =
                    Queries { latent: &latent, slate_size: length, excluded: Some(&lists) };
                let slates = retriever.search(queries)?;
                for (at, &row) in rows.iter().enumerate() {
                    let actions = slates.slate(at).iter().copied().map(action);
                    let ranked = actions.zip(slates.scores(at).iter().copied());
                    let Some(limit) = &limit else {
                        found[row as usize] = ranked.unzip();
                        continue;
                    };
                    let mut has_room = limit.has_room();
                    let slate: (Vec<u32>, Vec<f32>) =
                        ranked.filter(|(action, _)| has_room(*action)).take(slate_size).unzip();
                    if slate.0.len() < slate_size && length < left(row) {
                        // Where groups are few or small no depth finds more.
                        let all = (0..u32::try_from(size).unwrap_or(u32::MAX)).map(action);
                        let own = excluded[row as usize].iter().copied().map(action);
                        if slate.0.len() < limit.longest(all, own) {
                            open.push(row);
                        }
                    }
                    found[row as usize] = slate;
                }
            }
            depth = depth.saturating_mul(2);
        }
        drop(excluded);
        let query = |row: usize| Query {
            h: decided.row(row).to_vec(),
            z: latent.row(row).to_vec(),
            sigma: explored.as_ref().map_or(0.0, |(_, sigmas)| sigmas[row]),
        };
        let placed = asking.into_iter().zip(found).enumerate();
        let placed = placed.map(|(row, (asking, (actions, scores)))| Placed {
            short: actions.len() < slate_size,
            cold: asking.context.is_none() && asking.known.is_empty(),
            ignored: asking.ignored,
            actions,
            scores,
            query: options.queries.then(|| query(row)),
        });
        Ok(placed.collect())
    }

    /// z = h + σε of each row, and σ; `above` rows stand before the first.
    fn perturbed(&self, h: &Matrix, above: usize, seed: Seed) -> Result<(Matrix, Vec<f32>)> {
        let scale = self.scale.ok_or_else(draws_otherwise)?;
        let (mut z, mut sigmas) = (h.clone(), Vec::with_capacity(h.rows()));
        let mut noise = vec![0.0; h.cols()];
        for row in 0..h.rows() {
            let sigma = scale.sigma(h.row(row));
            seed.stream(Purpose::Exploration, 0, (above + row) as u64).fill_normals(&mut noise);
            let pairs = z.row_mut(row).iter_mut().zip(&noise);
            pairs.for_each(|(z, noise)| *z += sigma * noise);
            sigmas.push(sigma);
        }
        Ok((z, sigmas))
    }

    /// What finds slates, of the two that a bundle may have.
    pub(super) fn retriever(&self, search: Option<Search>) -> Result<Arc<dyn Retriever>> {
        if let Some(sharded) = &self.elsewhere {
            return Ok(sharded.clone());
        }
        match (search, &self.bundle.index) {
            (None | Some(Search::Hnsw), Some((_, index))) => Ok(index.clone()),
            (None | Some(Search::Exact), _) => Ok(self.exact.clone()),
            (Some(Search::Hnsw), None) => {
                Err(Error::setting("search", "this bundle has no index; export it with --index"))
            }
        }
    }
}

fn draws_otherwise() -> Error {
    let problem = "this policy does not draw by Gaussian noise on its query; train one with the method \
                   lgp to explore";
    Error::setting("explore", problem)
}
