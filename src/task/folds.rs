//! Embeddings that were fitted without a fold of the training users in, contexts and searches for the
//! users of that fold out. β of all training users knows what each of them hid, so that with it a
//! training user's context and slate are better than anybody else's will be; a policy would learn
//! to rely on that.
//!
//! A fold's vectors live in a space of their own. The rotation R that brings its β_f nearest to β
//! (orthogonal Procrustes: the polar factor of β_fᵀβ) joins the spaces: a fold's contexts are
//! `M_f(X) R`, and its actions are searched with `h Rᵀ`, which gives the scores of `β_f R` without
//! turning β_f. Decisions at θ = I are the fold's own.

use std::sync::Arc;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::contexts::Contexts;
use crate::dataset::Folds;
use crate::device::Chosen;
use crate::embedding::ActionEmbeddings;
use crate::encoder::{ContextEncoder, Known, encode_all};
use crate::error::{Error, Result};
use crate::estimator::{BatchRows, Estimator, Gradient};
use crate::matrix::{Matrix, norm};
use crate::retrieval::{Exact, Queries, Retriever, Slates, exact_on};

/// The most popular actions, which are enough to find a rotation.
const ANCHORS: usize = 16_384;

/// The folds of the training users, and what was fitted without each.
#[derive(Clone, Debug)]
pub(super) struct CrossFit {
    pub(super) folds: Folds,
    pub(super) fits: Vec<Fit>,
}

impl CrossFit {
    /// Searches for the contexts of each fold by themselves: `search` gets queries, contexts and the
    /// fit of their fold, if they are of one. The slates are in the order of `contexts`.
    pub(super) fn apart(
        &self,
        contexts: &[u32],
        latent: &Matrix,
        slate_size: usize,
        search: impl Fn(&Matrix, &[u32], Option<&Fit>) -> Result<Slates>,
    ) -> Result<Slates> {
        let mut actions = vec![0; contexts.len() * slate_size];
        let mut scores = vec![0.0; actions.len()];
        for fold in std::iter::once(None).chain((0..self.folds.count()).map(Some)) {
            #[allow(clippy::cast_possible_truncation, reason = "rows of a batch")]
            let rows: Vec<u32> = (0..contexts.len() as u32)
                .filter(|row| self.folds.of(contexts[*row as usize]) == fold)
                .collect();
            if rows.is_empty() {
                continue;
            }
            let within: Vec<u32> = rows.iter().map(|row| contexts[*row as usize]).collect();
            let fit = fold.map(|fold| &self.fits[usize::from(fold)]);
            let found = search(&latent.select(&rows), &within, fit)?;
            for (at, row) in rows.iter().enumerate() {
                let place = *row as usize * slate_size..(*row as usize + 1) * slate_size;
                actions[place.clone()].copy_from_slice(found.slate(at));
                scores[place].copy_from_slice(found.scores(at));
            }
        }
        Ok(Slates::new(slate_size, actions, scores))
    }
}

/// What was fitted without one fold.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) actions: Arc<ActionEmbeddings>,
    pub(super) exact: Arc<dyn Retriever>,
    encoder: Arc<dyn ContextEncoder>,
    /// The first of each L numbers in a context that are turned. Those of features are not the fold's: all
    /// that differs is their factor, and that is everybody's.
    turned: Vec<usize>,
    /// R, `[L, L]`.
    rotation: Matrix,
    /// Factor of the fold's contexts.
    scale: f32,
}

impl Fit {
    /// Joins the space of a fold to that of `actions`.
    pub(super) fn new(contexts: &Contexts, actions: &ActionEmbeddings) -> Result<Self> {
        let own = &contexts.vectors.actions;
        Ok(Self {
            actions: Arc::clone(own),
            exact: Arc::new(Exact::new(Arc::clone(own))),
            encoder: Arc::clone(&contexts.encoder),
            turned: contexts.of_actions.clone(),
            rotation: rotation(own.beta(), actions.beta())?,
            scale: 1.0,
        })
    }

    /// Searches exactly on the `chosen` device.
    pub(super) fn on(&self, chosen: &Chosen) -> Result<Self> {
        Ok(Self { exact: exact_on(&self.actions, chosen)?, ..self.clone() })
    }

    /// M(X) of `users`, `[users, D]`, in the space of the fold.
    pub(super) fn encode<'a>(
        &self,
        users: &[u32],
        known: impl Fn(u32) -> Known<'a> + Sync,
    ) -> Matrix {
        encode_all(self.encoder.as_ref(), users, known)
    }

    /// Makes `rows`, contexts in the space of the fold, as long as those `wanted`, in the mean.
    pub(super) fn scaled(self, rows: &Matrix, wanted: &Matrix) -> Self {
        let length = |rows: &Matrix| -> f64 {
            rows.iter_rows().map(|row| f64::from(norm(&row[..self.actions.latent_dim()]))).sum()
        };
        let (found, wanted) = (length(rows), length(wanted));
        #[allow(clippy::cast_possible_truncation, reason = "a factor of f32s")]
        let scale = if found > 0.0 && wanted > 0.0 { (wanted / found) as f32 } else { 1.0 };
        Self { scale, ..self }
    }

    /// Puts `rows`, contexts of `users` in the space of the fold, into their rows of `contexts` `[U, D]`,
    /// turned and scaled; features stay as they are there.
    pub(super) fn put(&self, rows: &Matrix, users: &[u32], contexts: &mut Matrix) {
        let dim = self.rotation.cols();
        let (count, width) = (rows.rows(), rows.cols());
        let mut turned = Matrix::zeros(count, dim);
        for &first in &self.turned {
            let numbers = MatRef::from_row_major_slice(rows.as_slice(), count, width);
            let from = numbers.subcols(first, dim);
            let to = MatMut::from_row_major_slice_mut(turned.as_mut_slice(), count, dim);
            let rotation = self.rotation.view(0, dim);
            matmul(to, Accum::Replace, from, rotation, self.scale, Par::rayon(0));
            for (context, row) in users.iter().zip(turned.iter_rows()) {
                contexts.row_mut(*context as usize)[first..first + dim].copy_from_slice(row);
            }
        }
    }

    /// `h Rᵀ`: queries in the space of the fold.
    fn inward(&self, h: &Matrix) -> Matrix {
        product(h, self.rotation.view(0, self.rotation.rows()).transpose())
    }

    /// `g R`: gradients with respect to the queries outside.
    fn outward(&self, g: &Matrix) -> Matrix {
        product(g, self.rotation.view(0, self.rotation.rows()))
    }

    /// The K best actions of the fold.
    pub(super) fn search(&self, queries: Queries<'_>) -> Result<Slates> {
        let latent = self.inward(queries.latent);
        self.exact.search(Queries { latent: &latent, ..queries })
    }
}

/// `rows · square`.
fn product(rows: &Matrix, square: MatRef<'_, f32>) -> Matrix {
    let mut out = Matrix::zeros(rows.rows(), square.ncols());
    let (count, dim) = (rows.rows(), square.ncols());
    let to = MatMut::from_row_major_slice_mut(out.as_mut_slice(), count, dim);
    matmul(to, Accum::Replace, rows.view(0, count), square, 1.0, Par::rayon(0));
    out
}

/// The orthogonal R that brings `from · R` nearest to `to`.
fn rotation(from: &Matrix, to: &Matrix) -> Result<Matrix> {
    let (dim, anchors) = (to.cols(), to.rows().min(ANCHORS));
    let mut product = Matrix::zeros(dim, dim);
    let out = MatMut::from_row_major_slice_mut(product.as_mut_slice(), dim, dim);
    let (from, to) = (from.view(0, anchors), to.view(0, anchors));
    matmul(out, Accum::Replace, from.transpose(), to, 1.0, Par::rayon(0));
    let svd = product.view(0, dim).svd().map_err(|error| {
        Error::library("turning the embeddings of a fold", format!("{error:?}"))
    })?;
    let mut rotation = Matrix::zeros(dim, dim);
    let out = MatMut::from_row_major_slice_mut(rotation.as_mut_slice(), dim, dim);
    matmul(out, Accum::Replace, svd.U(), svd.V().transpose(), 1.0, Par::rayon(0));
    Ok(rotation)
}

/// An estimator for each fold, and one for contexts of no fold.
#[derive(Debug)]
pub(super) struct CrossFitted {
    pub(super) cross: Arc<CrossFit>,
    pub(super) of_folds: Vec<Arc<dyn Estimator>>,
    pub(super) of_others: Arc<dyn Estimator>,
}

impl CrossFitted {
    fn of(&self, fold: Option<u16>, rows: BatchRows<'_>) -> Result<Gradient> {
        let Some(fold) = fold else { return self.of_others.gradient(rows) };
        let fit = &self.cross.fits[usize::from(fold)];
        let h = fit.inward(rows.h);
        let found = self.of_folds[usize::from(fold)].gradient(BatchRows { h: &h, ..rows })?;
        Ok(Gradient { h: fit.outward(&found.h), ..found })
    }
}

impl Estimator for CrossFitted {
    /// The rows of a training batch are of one fold. Rows of several folds are estimated once for
    /// each, since a row's draws follow from its place in the batch.
    fn gradient(&self, rows: BatchRows<'_>) -> Result<Gradient> {
        let of: Vec<Option<u16>> =
            rows.contexts.iter().map(|row| self.cross.folds.of(*row)).collect();
        let mut present = of.clone();
        present.sort_unstable();
        present.dedup();
        let Some((&first, others)) = present.split_first() else {
            return self.of_others.gradient(rows);
        };
        let mut joined = self.of(first, rows)?;
        for &fold in others {
            let found = self.of(fold, rows)?;
            let samples = found.rewards.len() / of.len();
            for (row, _) in of.iter().enumerate().filter(|(_, of)| **of == fold) {
                joined.h.row_mut(row).copy_from_slice(found.h.row(row));
                let range = row * samples..(row + 1) * samples;
                joined.rewards[range.clone()].copy_from_slice(&found.rewards[range]);
            }
        }
        Ok(joined)
    }
}
