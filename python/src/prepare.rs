//! Interactions and settings → a prepared folder.

use std::path::{Path, PathBuf};

use fast_slate::dataset::{
    FeatureSource, Filters, Frames, ITEM_ID, Moment, Source, SplitKind, SplitSettings, distinct,
    registry,
};
use fast_slate::embedding::{AlsOptions, Import, Missing, SessionPart, SvdOptions};
use fast_slate::facade::Preset;
use fast_slate::prepared::{EmbeddingSource, Input, Judge, PrepareSettings, Prepared};
use fast_slate::reward::RewardKind;
use fast_slate::seed::Seed;
use polars::prelude::*;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::array::numbers;
use crate::arrow;
use crate::error::{INTERACTIONS, exception, wrong};
use crate::work::{require_own_process, work};

/// The columns of known data sets, by which rows may be chosen.
pub(crate) fn known_columns() -> Vec<&'static str> {
    registry::KNOWN.iter().flat_map(|known| known.columns).copied().collect()
}

/// Interactions in memory.
#[pyclass(frozen, module = "fast_slate._native")]
pub struct Interactions(Vec<DataFrame>);

#[pymethods]
impl Interactions {
    /// The `columns` of an object with `__arrow_c_stream__` and those of known data sets, or all if
    /// none is named.
    #[staticmethod]
    fn of_stream(object: &Bound<'_, PyAny>, columns: Vec<String>) -> PyResult<Self> {
        require_own_process()?;
        Ok(Self(arrow::frames(object, &columns, &known_columns(), INTERACTIONS)?))
    }

    /// Pairs of numbers: `user` and `item`, i64, and perhaps `weight`, f32 or f64.
    #[staticmethod]
    #[pyo3(signature = (user, item, weight = None))]
    fn of_pairs(
        user: &Bound<'_, PyAny>,
        item: &Bound<'_, PyAny>,
        weight: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let ids = |name: &str, of| Ok::<_, PyErr>(Column::new(name.into(), numbers::<i64>(of)?.0));
        let mut columns = vec![ids("user", user)?, ids("item", item)?];
        if let Some(weight) = weight {
            // A threshold is as precise as the weights are.
            columns.push(match numbers::<f32>(weight) {
                Ok((weights, _)) => Column::new("weight".into(), weights),
                Err(_) => Column::new("weight".into(), numbers::<f64>(weight)?.0),
            });
        }
        let table = DataFrame::new_infer_height(columns);
        Ok(Self(vec![table.map_err(|error| wrong(INTERACTIONS, error))?]))
    }

    /// The different pairs, a row each: `user`, `item` and perhaps `time`, of what would be prepared by the
    /// `wanted` of [`prepare`]. Its filter of items is left out.
    fn distinct(&self, py: Python<'_>, wanted: &str) -> PyResult<arrow::Table> {
        let wanted = Wanted::read(wanted)?;
        let mut columns = wanted.columns(INTERACTIONS.into());
        columns.first_times = wanted.split()?.kind.is_by_time();
        let (filters, frames) = (wanted.filters()?, Frames { tables: self.0.clone(), columns });
        work(py, || distinct(&frames, &filters)).map(arrow::Table::new)
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0[0].get_column_names().into_iter().map(ToString::to_string).collect()
    }
}

/// Writes the `columns` of a table of any library, or all if none is named, to a Parquet file.
#[pyfunction]
pub fn write_table(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    path: PathBuf,
    argument: &str,
    columns: Vec<String>,
) -> PyResult<()> {
    require_own_process()?;
    let tables = arrow::frames(object, &columns, &[], argument)?;
    let mut file = fs_err::File::create(&path)?;
    let written = py.detach(|| {
        let schema = tables[0].schema().clone();
        let mut writer = ParquetWriter::new(&mut file).batched(&schema)?;
        for table in &tables {
            writer.write_batch(table)?;
        }
        writer.finish().map(drop)
    });
    written.map_err(|error: PolarsError| wrong(argument, error))
}

/// Everything that decides a preparation but the interactions, by the names of Python's arguments.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    out: PathBuf,
    overwrite: bool,
    preset: Preset,
    seed: u64,
    user: Option<String>,
    item: Option<String>,
    time: Option<String>,
    weight: Option<String>,
    reward: Option<RewardKind>,
    slate_size: Option<usize>,
    embeddings: Option<String>,
    embedding_ids: Option<PathBuf>,
    user_features: Option<PathBuf>,
    feature_id: Option<String>,
    #[serde(skip)]
    more: More,
}

/// The keys of the dictionary of settings that begin with `prepare.`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct More {
    split: Option<String>,
    test_after: Option<Moment>,
    validation_after: Option<Moment>,
    observed_share: Option<f64>,
    validation_share: Option<f64>,
    test_share: Option<f64>,
    rows: Option<String>,
    skip_bad_rows: u64,
    max_unpacked_mib: Option<u64>,
    min_rating: Option<f64>,
    min_user_interactions: Option<u32>,
    min_item_interactions: Option<u32>,
    within: Option<u64>,
    latent_dim: Option<usize>,
    normalization: Option<f32>,
    confidence: Option<f64>,
    regularization: Option<f64>,
    iterations: Option<usize>,
    observed_only: bool,
    missing_embeddings: Option<Missing>,
    id_column: Option<String>,
    feature_columns: Vec<String>,
}

/// The struct of a map. Each key is decoded alone first, so that an error says the key's `name`.
fn decoded<T: DeserializeOwned>(
    map: Map<String, Value>,
    name: impl Fn(&str) -> String,
) -> PyResult<T> {
    for (key, value) in &map {
        let alone: Map<_, _> = std::iter::once((key.clone(), value.clone())).collect();
        let tried = serde_json::from_value::<T>(Value::Object(alone));
        tried.map_err(|error| wrong(&name(key), error))?;
    }
    serde_json::from_value(Value::Object(map)).map_err(|error| wrong("settings", error))
}

impl Wanted {
    fn read(json: &str) -> PyResult<Self> {
        let mut arguments: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| wrong("settings", error))?;
        let more = match arguments.remove("more") {
            Some(Value::Object(more)) => decoded::<More>(more, key_of)?,
            _ => More::default(),
        };
        Ok(Self { more, ..decoded(arguments, str::to_owned)? })
    }

    fn columns(&self, path: PathBuf) -> Source {
        Source {
            path,
            user_column: self.user.clone(),
            item_column: self.item.clone(),
            rating_column: self.weight.clone(),
            time_column: self.time.clone(),
            first_times: false,
            max_unpacked_mib: self.more.max_unpacked_mib,
        }
    }

    fn filters(&self) -> PyResult<Filters> {
        let More { rows, min_rating, skip_bad_rows, .. } = &self.more;
        let default = Filters::of(self.preset);
        let rows = rows.as_deref().map(str::parse).transpose();
        Ok(Filters {
            rows: rows.map_err(|problem| setting("rows", problem))?.unwrap_or_default(),
            min_rating: *min_rating,
            skip_bad_rows: *skip_bad_rows,
            min_user_interactions: self
                .more
                .min_user_interactions
                .unwrap_or(default.min_user_interactions),
            min_item_interactions: self
                .more
                .min_item_interactions
                .unwrap_or(default.min_item_interactions),
        })
    }

    fn split(&self) -> PyResult<SplitSettings> {
        let More { split, test_after, validation_after, .. } = &self.more;
        let kind = match (split.as_deref(), test_after) {
            (None | Some("temporal"), Some(test_after)) => {
                SplitKind::Dates { test_after: *test_after, validation_after: *validation_after }
            }
            (_, None) if validation_after.is_some() => {
                return Err(setting("validation_after", "goes with prepare.test_after"));
            }
            (Some("temporal"), None) => SplitKind::Temporal,
            (None | Some("random"), None) => SplitKind::Random,
            (Some(found), _) => {
                let problem = format!(
                    "expected \"random\", or \"temporal\" with or without prepare.test_after, found \
                     \"{found}\""
                );
                return Err(setting("split", problem));
            }
        };
        for (key, share, other, moment) in [
            ("test_share", self.more.test_share, "test_after", test_after),
            ("validation_share", self.more.validation_share, "validation_after", validation_after),
        ] {
            if share.is_some() && moment.is_some() {
                let problem = format!("does not go with prepare.{other}, which says what it would");
                return Err(setting(key, problem));
            }
        }
        if kind.is_by_time() && self.time.is_none() {
            return Err(wrong("time", "a split by time needs the column that holds the times"));
        }
        let default = SplitSettings::of(self.preset, kind);
        let settings = SplitSettings {
            kind,
            observed_share: self.more.observed_share.unwrap_or(default.observed_share),
            validation_share: self.more.validation_share.unwrap_or(default.validation_share),
            test_share: self.more.test_share.unwrap_or(default.test_share),
            seed: Seed(self.seed),
        };
        settings.check().map_err(exception)?;
        Ok(settings)
    }

    /// The source of the embeddings; a setting of the SVD chooses it, as the command's flags do.
    fn embedding(&self) -> PyResult<EmbeddingSource> {
        let more = &self.more;
        let interactions =
            if more.observed_only { SessionPart::Observed } else { SessionPart::All };
        let of_svd =
            more.latent_dim.is_some() || more.observed_only || more.normalization.is_some();
        let source = match self.embeddings.as_deref().unwrap_or("auto") {
            "auto" if self.preset == Preset::Paper || of_svd => "svd",
            other => other,
        };
        let is_folder = Path::new(source).is_dir();
        let is_file = !is_folder && !["auto", "svd", "als"].contains(&source);
        let [auto, svd, als] = ["auto", "svd", "als"].map(|kind| source == kind);
        let of_als = "embeddings=\"als\"";
        let of_either = "embeddings=\"svd\" or \"als\"";
        let of_file = "vectors of your own";
        for (given, fits, key, of) in [
            (more.within.is_some(), auto, "within", "embeddings=\"auto\""),
            (more.normalization.is_some(), svd, "normalization", "embeddings=\"svd\""),
            (more.latent_dim.is_some(), svd || als, "latent_dim", of_either),
            (more.observed_only, svd || als, "observed_only", of_either),
            (more.confidence.is_some(), als, "confidence", of_als),
            (more.regularization.is_some(), als, "regularization", of_als),
            (more.iterations.is_some(), als, "iterations", of_als),
            (more.id_column.is_some(), is_file, "id_column", of_file),
            (more.missing_embeddings.is_some(), is_file, "missing_embeddings", of_file),
        ] {
            if given && !fits {
                return Err(setting(key, format!("goes with {of}")));
            }
        }
        Ok(match source {
            "auto" => {
                let default = Judge::default();
                EmbeddingSource::Auto(Judge {
                    reward: self.reward.unwrap_or(default.reward),
                    slate_size: self.slate_size.unwrap_or(default.slate_size),
                    within: more.within.unwrap_or(default.within),
                    ..default
                })
            }
            "svd" => {
                let default = SvdOptions::of(self.preset);
                let normalization = more.normalization.unwrap_or(default.normalization);
                let latent_dim = more.latent_dim.unwrap_or(default.latent_dim);
                let options = SvdOptions { latent_dim, normalization, ..default };
                EmbeddingSource::Svd { interactions, options }
            }
            "als" => {
                let default = AlsOptions::default();
                let options = AlsOptions {
                    latent_dim: more.latent_dim.unwrap_or(default.latent_dim),
                    iterations: more.iterations.unwrap_or(default.iterations),
                    regularization: more.regularization.unwrap_or(default.regularization),
                    confidence: more.confidence.unwrap_or(default.confidence),
                };
                EmbeddingSource::Als { interactions, options }
            }
            folder if is_folder => EmbeddingSource::again(folder.as_ref()).map_err(exception)?,
            path => EmbeddingSource::Import(Import {
                path: path.into(),
                id_column: more.id_column.clone().unwrap_or_else(|| ITEM_ID.to_owned()),
                ids: self.embedding_ids.clone(),
                missing: more.missing_embeddings.unwrap_or_default(),
            }),
        })
    }

    fn features(&self) -> PyResult<Option<FeatureSource>> {
        let columns = self.more.feature_columns.clone();
        let Some(path) = self.user_features.clone() else {
            if !columns.is_empty() {
                return Err(setting("feature_columns", "goes with user_features"));
            }
            return Ok(None);
        };
        let Some(id_column) = self.feature_id.clone() else {
            return Err(wrong("user_features", "say with user= which column holds the users"));
        };
        Ok(Some(FeatureSource { path, id_column, columns }))
    }
}

/// A key of [`More`] as Python's dictionary has it.
fn key_of(key: &str) -> String {
    format!("settings['prepare.{key}']")
}

fn setting(key: &str, problem: impl std::fmt::Display) -> PyErr {
    wrong(&key_of(key), problem)
}

/// Checks what decides a preparation before any row is read.
#[pyfunction]
pub fn check_prepare(wanted: &str) -> PyResult<()> {
    let wanted = Wanted::read(wanted)?;
    wanted.filters().and(wanted.split()).and(wanted.embedding()).and(wanted.features()).map(drop)
}

/// Prepares interactions, a path or [`Interactions`], and returns a description as JSON.
#[pyfunction]
pub fn prepare(py: Python<'_>, interactions: &Bound<'_, PyAny>, wanted: &str) -> PyResult<String> {
    let wanted = Wanted::read(wanted)?;
    let filters = wanted.filters()?;
    let input = if let Ok(table) = interactions.cast::<Interactions>() {
        let tables = table.get().0.clone();
        Input::Table(Frames { tables, columns: wanted.columns(INTERACTIONS.into()) }, filters)
    } else {
        Input::File(wanted.columns(interactions.extract()?), filters)
    };
    let settings = PrepareSettings {
        split: wanted.split()?,
        embedding: wanted.embedding()?,
        features: wanted.features()?,
    };
    let prepared = work(py, || {
        let mut prepared = Prepared::create(&input, &settings, &wanted.out, wanted.overwrite)?;
        if prepared.preset(wanted.preset).needs_index() {
            prepared.build_index(wanted.preset, None)?;
        }
        Ok(prepared)
    })?;
    serde_json::to_string(&prepared.manifest).map_err(|error| wrong("settings", error))
}
