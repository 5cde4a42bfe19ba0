//! A [`Bundle`] ↔ its folder, which appears whole or not at all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;
use polars::prelude::*;

use super::manifest::{Bytes, FileRecord, MANIFEST, Manifest, Scales, Shapes, VectorScalar};
use super::{Bundle, ServedIndex, Users, onnx, shard_folders};
use crate::dataset::parquet::{parse, write_table};
use crate::dataset::{Ids, Items, USER_ID};
use crate::embedding::tensors::{Named, Stored, Tensors, write, write_as};
use crate::embedding::{ActionEmbeddings, Vectors};
use crate::encoder::Encoding;
use crate::error::{Error, Result};
use crate::files::{StagedFolder, require_only};
use crate::matrix::{Matrix, half_scale};
use crate::model::Model;
use crate::retrieval::{Hnsw, HnswOptions};
use crate::tower::{Correction, Radius, Tower, TowerForm, to_host};

const VECTORS: &str = "vectors.safetensors";
const BETA: &str = "beta";
const INPUTS: &str = "inputs";
const FOLD_IN: &str = "fold_in";
const WEIGHTS: &str = "weights";
const MODEL: &str = "model.safetensors";
/// The name of the model in bundles of the first version.
const FIRST_MODEL: &str = "tower.safetensors";
const ONNX: &str = "tower.onnx";
const ITEMS: &str = "items.parquet";
const INDEX: &str = "index.usearch";
const USERS: &str = "users.parquet";
const HISTORIES: &str = "histories.parquet";
const FEATURES: &str = "features.safetensors";
const FEATURES_TENSOR: &str = "features";

/// The files that are large, and read as they are.
const MAPPED: &[&str] = &[VECTORS, INDEX];

fn named<'a>(name: &'a str, matrix: &'a Matrix) -> Named<'a> {
    (name, vec![matrix.rows(), matrix.cols()], matrix.as_slice())
}

impl Bundle {
    /// D: what the encoders make, joined.
    fn context_dim(&self) -> Result<usize> {
        Ok(self.encoding.encoder(&self.vectors)?.dim())
    }

    /// Writes the folder `out`; with `replace`, in the place of another bundle.
    ///
    /// # Errors
    /// [`Error::File`] if there is something at `out` that may not be replaced; [`Error::Setting`] for
    /// an ONNX model of a tower that there is not, or that is too large; an I/O error naming the file.
    /// Nothing is left under that name then.
    pub fn write(&self, out: &Path, scalar: VectorScalar, replace: bool) -> Result<Manifest> {
        Self::may_write(out, replace)?;
        let (staged, manifest) = self.stage(out, scalar)?;
        staged.commit()?;
        Ok(manifest)
    }

    /// Writes the folder, which has no name yet.
    pub(super) fn stage(
        &self,
        out: &Path,
        scalar: VectorScalar,
    ) -> Result<(StagedFolder, Manifest)> {
        let onnx = self.onnx.then(|| self.onnx_model()).transpose()?;
        let staged = StagedFolder::new(out)?;
        let at = |name: &str| staged.path().join(name);
        let scales = self.write_vectors(&at(VECTORS), scalar)?;
        if let Some(tower) = &self.model.tower {
            let named_by = |kind: &'static str| (0..).map(move |at| format!("{kind}.{at}"));
            let deltas = self.model.corrections.iter().map(|it| to_host(it.delta.val()));
            let layers: Vec<(String, Matrix)> = named_by("layer")
                .zip(tower.layers()?)
                .chain(named_by("correction").zip(deltas.collect::<Result<Vec<_>>>()?))
                .collect();
            let layers: Vec<_> = layers.iter().map(|(name, layer)| named(name, layer)).collect();
            write(&at(MODEL), &layers)?;
        }
        if let Some(model) = onnx {
            fs_err::write(at(ONNX), model)?;
        }
        write_table(&mut self.items.table()?, &at(ITEMS))?;
        if let Some((_, index)) = &self.index {
            index.save(&at(INDEX), &out.join(INDEX))?;
        }
        if let Some(users) = &self.users {
            let ids = DataFrame::new_infer_height(vec![users.ids.column().clone()]);
            write_table(&mut ids.map_err(|error| Error::library(USERS, error))?, &at(USERS))?;
            write_table(&mut users.table()?, &at(HISTORIES))?;
            if let Some(features) = &users.features {
                write(&at(FEATURES), &[named(FEATURES_TENSOR, features)])?;
            }
        }
        let mut files = BTreeMap::new();
        for entry in fs_err::read_dir(staged.path())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            files.insert(name, FileRecord::of(&entry.path())?);
        }
        let manifest = Manifest {
            format: Manifest::FORMAT,
            sigma: self.sigma,
            shapes: Shapes {
                num_actions: self.actions.num_actions(),
                context_dim: self.context_dim()?,
                latent_dim: self.actions.latent_dim(),
                users: self.users.as_ref().map_or(0, |users| users.ids.len()),
            },
            vectors: scales,
            tower: self.model.tower.as_ref().map(Tower::form).transpose()?,
            corrections: self.model.corrections.iter().map(Correction::radius).collect(),
            index: self.index.as_ref().map(|(options, _)| *options),
            part: self.part.clone(),
            encoders: self.encoding.encoders.clone(),
            files,
            trained: self.trained.clone(),
        };
        fs_err::write(at(MANIFEST), manifest.text()?)?;
        Ok((staged, manifest))
    }

    /// Fails if there is something at `out` that is not to be replaced.
    fn may_write(out: &Path, replace: bool) -> Result<()> {
        if !out.exists() {
            return Ok(());
        }
        if replace && out.join(MANIFEST).exists() {
            let files = [
                MANIFEST,
                VECTORS,
                MODEL,
                ONNX,
                ITEMS,
                INDEX,
                USERS,
                HISTORIES,
                FEATURES,
                FIRST_MODEL,
            ];
            return require_only(out, |name| files.contains(&name));
        }
        let problem = "there is something here already; give another --out, or replace a bundle with \
                       --force";
        Err(Error::file(out, problem))
    }

    /// Fails where [`write`](Self::write), or [`write_sharded`](Self::write_sharded) in so many `shards`,
    /// would for a reason that is known before an index is built.
    ///
    /// # Errors
    /// The errors of these two.
    pub(crate) fn check_out(&self, out: &Path, shards: Option<usize>, replace: bool) -> Result<()> {
        let num_actions = self.actions.num_actions();
        let folders = match shards {
            None => Vec::new(),
            Some(count) if (1..=num_actions).contains(&count) => shard_folders(out, count),
            Some(count) => {
                let problem =
                    format!("is {count}, expected 1 to {num_actions}, the number of items");
                return Err(Error::setting("shards", problem));
            }
        };
        for folder in std::iter::once(out).chain(folders.iter().map(PathBuf::as_path)) {
            // Made and removed again: its parents can be written to.
            drop(StagedFolder::new(folder)?);
            Self::may_write(folder, replace)?;
        }
        self.onnx.then(|| self.onnx_model()).transpose().map(drop)
    }

    fn onnx_model(&self) -> Result<Vec<u8>> {
        if !self.model.corrections.is_empty() {
            let problem = "this model was corrected by what it learned from a log, which no ONNX file \
                           here holds; export without --onnx";
            return Err(Error::setting("onnx", problem));
        }
        let tower = self.model.tower.as_ref().ok_or_else(|| {
            let problem = "this model learned its action vectors and has no tower: the query is the \
                           context; export without --onnx";
            Error::setting("onnx", problem)
        })?;
        onnx::model(tower, &self.trained)
    }

    fn write_vectors(&self, path: &Path, scalar: VectorScalar) -> Result<Scales> {
        let beta = self.actions.beta();
        let mut matrices = vec![(BETA, beta)];
        if !std::ptr::eq(beta, self.vectors.inputs.as_ref()) {
            matrices.push((INPUTS, self.vectors.inputs.as_ref()));
        }
        let solved_with = self.vectors.actions.beta();
        if self.encoding.folds_in() && !std::ptr::eq(beta, solved_with) {
            matrices.push((FOLD_IN, solved_with));
        }
        let mut scales = BTreeMap::new();
        let mut tensors = Vec::new();
        for (name, matrix) in matrices {
            let (scale, stored) = match scalar {
                VectorScalar::F32 => (1.0, Stored::F32),
                VectorScalar::F16 => {
                    let scale = half_scale(matrix);
                    (scale, Stored::F16(scale))
                }
            };
            scales.insert(name.to_owned(), scale);
            tensors.push((named(name, matrix), stored));
        }
        if let Some(weights) = &self.encoding.weights {
            tensors.push(((WEIGHTS, vec![weights.len(), 1], weights), Stored::F32));
        }
        write_as(path, &tensors)?;
        Ok(Scales { scalar, scales })
    }

    /// Opens the bundle in `folder` for `device`; returns its digest too.
    ///
    /// # Errors
    /// [`Error::File`] where there is no bundle, for one of a newer format, and for a file that is not
    /// what was written.
    pub fn open(folder: &Path, device: &Device) -> Result<(Self, String)> {
        let (manifest, digest) = Manifest::read(folder)?;
        let files = Files { folder, bytes: Mutex::new(manifest.read_files(folder, &[])?) };
        Ok((files.bundle(manifest, device)?, digest))
    }

    /// [`open`](Self::open) with the vectors of f32 and the graph left on disk, where nobody may change
    /// them: the system reads them when they are needed, and all processes share them. What is still to
    /// be checked of them is returned too.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), but for damage in these two files.
    pub fn map(folder: &Path, device: &Device) -> Result<(Self, String, Unchecked)> {
        let (manifest, digest) = Manifest::read(folder)?;
        let files = Files { folder, bytes: Mutex::new(manifest.read_files(folder, MAPPED)?) };
        let of = |name: &&str| Some((folder.join(name), manifest.files.get(*name)?.clone()));
        let unchecked = Unchecked { files: MAPPED.iter().filter_map(of).collect() };
        Ok((files.bundle(manifest, device)?, digest, unchecked))
    }
}

/// The files of a bundle that were mapped before anybody compared their digests.
#[derive(Clone, Debug)]
pub struct Unchecked {
    files: Vec<(PathBuf, FileRecord)>,
}

impl Unchecked {
    /// Reads the files and compares their digests.
    ///
    /// # Errors
    /// [`Error::File`] naming a file that is not what was written; an I/O error naming the file.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|(path, record)| record.check(path, |_| ()))
    }
}

/// A tensor that has a row for each of `count`.
fn rows(path: &Path, name: &str, count: usize, found: Matrix) -> Result<Matrix> {
    if found.rows() == count {
        return Ok(found);
    }
    Err(Error::Shape {
        what: format!("{}: `{name}`", path.display()),
        expected: format!("{count} rows"),
        found: format!("[{}, {}]", found.rows(), found.cols()),
    })
}

/// The bytes of a bundle's files.
struct Files<'a> {
    folder: &'a Path,
    bytes: Mutex<BTreeMap<String, Bytes>>,
}

impl Files<'_> {
    /// Passes a file's bytes to `read`, then drops them.
    fn take<T>(&self, name: &str, read: impl FnOnce(&Path, &Bytes) -> Result<T>) -> Result<T> {
        self.take_if_there(name, read)?.ok_or_else(|| {
            Error::file(self.folder.join(MANIFEST), format!("names no file `{name}`"))
        })
    }

    /// [`take`](Self::take) of a file that need not be part of a bundle.
    fn take_if_there<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Path, &Bytes) -> Result<T>,
    ) -> Result<Option<T>> {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        bytes.map(|bytes| read(&self.folder.join(name), &bytes)).transpose()
    }

    /// Ids and titles, and the users who are known.
    fn names(&self, num_actions: usize) -> Result<(Items, Option<Users>)> {
        let items = self.take(ITEMS, |path, bytes| Items::new(&parse(path, bytes)?, path))?;
        if items.ids.len() != num_actions {
            let problem = format!("has {} items, expected {num_actions}", items.ids.len());
            return Err(Error::file(self.folder.join(ITEMS), problem));
        }
        let ids = self.take_if_there(USERS, |path, bytes| {
            Ids::new(&parse(path, bytes)?, USER_ID, "user", path)
        })?;
        let Some(ids) = ids else { return Ok((items, None)) };
        let features = self.take_if_there(FEATURES, |path, bytes| {
            let found = Tensors::parse(path, bytes)?.matrix(FEATURES_TENSOR, 1.0)?;
            let missing = || Error::file(path, format!("has no tensor `{FEATURES_TENSOR}`"));
            rows(path, FEATURES_TENSOR, ids.len(), found.ok_or_else(missing)?)
        })?;
        let users = self.take(HISTORIES, |path, bytes| {
            Users::read(ids, features, &parse(path, bytes)?, num_actions, path)
        })?;
        Ok((items, Some(users)))
    }

    fn bundle(self, manifest: Manifest, device: &Device) -> Result<Bundle> {
        let Manifest { sigma, shapes, vectors, tower, index, part, encoders, trained, .. } =
            manifest;
        let (searched, names) = rayon::join(
            || self.searched(&vectors, index, shapes.num_actions),
            || self.names(shapes.num_actions),
        );
        let (Searched { actions, vectors, weights, index }, (items, users)) = (searched?, names?);
        let model = match tower {
            None => Model { tower: None, actions: None, corrections: Vec::new() },
            Some(form) => self.model(form, manifest.corrections, shapes, device)?,
        };
        let onnx = self.take_if_there(ONNX, |_, _| Ok(()))?.is_some();
        let encoding = Encoding { encoders, weights };
        let made = encoding.encoder(&vectors)?.dim();
        if tower.is_some() && made != shapes.context_dim {
            let problem = format!(
                "its encoders make contexts of {made} numbers, its tower takes {}",
                shapes.context_dim
            );
            return Err(Error::file(self.folder, problem));
        }
        Ok(Bundle {
            trained,
            sigma,
            model,
            actions,
            vectors,
            encoding,
            items,
            users,
            index,
            onnx,
            part,
        })
    }

    /// The vectors, and the graph over β.
    fn searched(
        &self,
        scales: &Scales,
        index: Option<HnswOptions>,
        num_actions: usize,
    ) -> Result<Searched> {
        let (actions, vectors, weights) = self.take(VECTORS, |path, bytes| {
            let tensors = match bytes {
                Bytes::Read(bytes) => Tensors::parse(path, bytes)?,
                Bytes::Mapped(file) => Tensors::of_mapped(path, file)?,
            };
            let matrix = |name: &str| {
                let scale = scales.scales.get(name).copied().unwrap_or(1.0);
                tensors
                    .matrix(name, scale)?
                    .map(|found| rows(path, name, num_actions, found))
                    .transpose()
            };
            let missing = || Error::file(path, format!("has no tensor `{BETA}`"));
            let actions = ActionEmbeddings::new(matrix(BETA)?.ok_or_else(missing)?)?;
            let mut vectors = match matrix(FOLD_IN)? {
                Some(fold_in) => Vectors::from(ActionEmbeddings::new(fold_in)?),
                None => Vectors::from(actions.clone()),
            };
            if let Some(inputs) = matrix(INPUTS)? {
                vectors.inputs = Arc::new(inputs);
            }
            Ok((Arc::new(actions), vectors, tensors.matrix(WEIGHTS, 1.0)?))
        })?;
        let weights = weights.map(|weights| Arc::new(weights.into_vec()));
        let graph = |options: HnswOptions| {
            self.take(INDEX, |path, bytes| {
                let graph = Hnsw::load(path, bytes.read(), Arc::clone(&actions), &options)?;
                Ok((options, Arc::new(graph)))
            })
        };
        let index = index.map(graph).transpose()?;
        Ok(Searched { actions, vectors, weights, index })
    }

    /// h_θ.
    fn model(
        &self,
        form: TowerForm,
        radii: Vec<Radius>,
        shapes: Shapes,
        device: &Device,
    ) -> Result<Model> {
        let shape = [shapes.context_dim, shapes.latent_dim];
        self.take(MODEL, |path, bytes| {
            let tensors = Tensors::parse(path, bytes)?;
            let mut layers = Vec::new();
            while let Some(layer) = tensors.matrix(&format!("layer.{}", layers.len()), 1.0)? {
                layers.push(layer);
            }
            let mut model = Model::from(form.tower(&layers, shape, device)?);
            for (at, radius) in radii.into_iter().enumerate() {
                let name = format!("correction.{at}");
                let missing = || Error::file(path, format!("has no tensor `{name}`"));
                let delta = tensors.matrix(&name, 1.0)?.ok_or_else(missing)?;
                if [delta.rows(), delta.cols()] != shape {
                    return Err(Error::Shape {
                        what: format!("{}: `{name}`", path.display()),
                        expected: format!("{shape:?}"),
                        found: format!("[{}, {}]", delta.rows(), delta.cols()),
                    });
                }
                model.corrections.push(Correction::new(&delta, radius, device));
            }
            Ok(model)
        })
    }
}

/// What a search needs.
struct Searched {
    actions: Arc<ActionEmbeddings>,
    vectors: Vectors,
    weights: Option<Arc<Vec<f32>>>,
    index: Option<ServedIndex>,
}
