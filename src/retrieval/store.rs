//! Writes an index to disk and reads it back: a folder with `graph.usearch` and `index.toml`, the record
//! of its source. A graph of other embeddings would answer wrongly without an error, and a damaged one
//! makes usearch read beyond its memory, so both are detected first.

use std::path::Path;

use serde::{Deserialize, Serialize};
use usearch::{Index, MetricKind};

use crate::embedding::ActionEmbeddings;
use crate::error::{Error, Result, toml_problem};
use crate::files::{Mapped, StagedFolder, digest_bytes, digest_file, write_toml};
use crate::retrieval::layout::is_sound;
use crate::retrieval::twins::Twins;
use crate::retrieval::{HnswOptions, Scalar};

const GRAPH: &str = "graph.usearch";
const RECORD: &str = "index.toml";
const REBUILD: &str = "delete the folder to have it built again";
const EXPORT: &str = "export the bundle again";

/// Everything that determines the graph.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Source {
    beta: String,
    num_actions: usize,
    twins: usize,
    latent_dim: usize,
    connectivity: usize,
    ef_construction: usize,
    scalar: Scalar,
}

impl Source {
    /// The source of a graph over `actions`, of which so many are `twins`.
    pub(super) fn new(actions: &ActionEmbeddings, twins: usize, options: &HnswOptions) -> Self {
        Self {
            beta: actions.digest().into(),
            num_actions: actions.num_actions(),
            twins,
            latent_dim: actions.latent_dim(),
            connectivity: options.connectivity,
            ef_construction: options.ef_construction,
            scalar: options.scalar,
        }
    }

    /// The name of its folder.
    pub(super) fn folder_name(&self) -> String {
        format!("hnsw-{}", &digest_bytes(format!("{self:?}").as_bytes())[..12])
    }
}

/// `index.toml`.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    graph_bytes: u64,
    graph_sha256: String,
    source: Source,
}

pub(super) fn save(folder: &Path, index: &Index, source: Source) -> Result<()> {
    let staged = StagedFolder::new(folder)?;
    let graph = staged.path().join(GRAPH);
    let graph_bytes = save_graph(index, &graph, &folder.join(GRAPH))?;
    let record = Record { graph_bytes, graph_sha256: digest_file(&graph)?, source };
    write_toml(&staged.path().join(RECORD), &record)?;
    staged.commit()
}

/// Writes a graph to `path` and returns its size in bytes; errors name it `named`, its final path.
pub(super) fn save_graph(index: &Index, path: &Path, named: &Path) -> Result<u64> {
    index.save(utf8(path)?).map_err(|error| {
        Error::file(named, format!("could not be written ({error}): is the disk full?"))
    })?;
    // usearch ignores the error of closing the file: on a full disk the file is too short.
    let (expected, bytes) = (index.serialized_length() as u64, fs_err::metadata(path)?.len());
    if bytes != expected {
        let problem = format!("{bytes} of {expected} bytes were written: is the disk full?");
        return Err(Error::file(named, problem));
    }
    Ok(bytes)
}

/// The graph in the `bytes` of the file at `path`, which are what was written, or in the file itself,
/// mapped, and the actions that have no node in it; the caller reserves thread slots.
pub(super) fn load(
    path: &Path,
    bytes: Option<&[u8]>,
    actions: &ActionEmbeddings,
    options: &HnswOptions,
) -> Result<(Index, Twins)> {
    let other = || Error::file(path, format!("the graph belongs to other embeddings; {EXPORT}"));
    // Who maps a file has been told that nobody looks at it first.
    if bytes.is_some_and(|bytes| !is_sound(bytes, shape(actions), options)) {
        return Err(other());
    }
    let index = options.index(actions.latent_dim())?;
    let loaded = match bytes {
        Some(bytes) => index.load_from_buffer(bytes),
        None => index.view(utf8(path)?),
    };
    loaded.map_err(|error| Error::file(path, format!("usearch says: {error}; {EXPORT}")))?;
    let twins = if index.size() == actions.num_actions() {
        Twins::default()
    } else {
        // A bundle may hold β in fewer digits than the graph was made of.
        Twins::of(actions.beta()).without(|action| index.contains(u64::from(action)))
    };
    if !fits(&index, actions, twins.len(), options) {
        return Err(other());
    }
    // Loading resets it to the default.
    index.change_expansion_search(options.ef_search);
    Ok((index, twins))
}

/// `[P, L]`.
fn shape(actions: &ActionEmbeddings) -> [usize; 2] {
    [actions.num_actions(), actions.latent_dim()]
}

/// True if the graph has the shape and the options of its source.
fn fits(index: &Index, actions: &ActionEmbeddings, twins: usize, options: &HnswOptions) -> bool {
    index.size() + twins == actions.num_actions()
        && index.dimensions() == actions.latent_dim()
        && index.connectivity() == options.connectivity
        && index.metric_kind() == MetricKind::IP
        && index.scalar_kind() == options.scalar.kind()
}

/// Opens the graph of `source`, which is `actions · scale`, by mapping its file; the caller reserves
/// thread slots.
pub(super) fn open(
    folder: &Path,
    source: &Source,
    actions: &ActionEmbeddings,
    options: &HnswOptions,
    scale: f32,
) -> Result<Index> {
    let text = fs_err::read_to_string(folder.join(RECORD))?;
    let record: Record = toml::from_str(&text).map_err(|error| {
        let problem = toml_problem(&error, &text);
        Error::file(folder.join(RECORD), format!("cannot be read ({problem}); {REBUILD}"))
    })?;
    if record.source != *source {
        let problem = format!(
            "the index belongs to other embeddings or options (it was built from {:?}, expected \
             {source:?}); {REBUILD}",
            record.source
        );
        return Err(Error::file(folder, problem));
    }

    let path = folder.join(GRAPH);
    let length = fs_err::metadata(&path)?.len();
    if length != record.graph_bytes || digest_file(&path)? != record.graph_sha256 {
        let problem = format!(
            "is damaged: {length} bytes that are not the {} that were written; {REBUILD}",
            record.graph_bytes
        );
        return Err(Error::file(path, problem));
    }

    let other = || Error::file(&path, format!("the graph belongs to other embeddings; {REBUILD}"));
    if !is_sound(&Mapped::open(&path)?, shape(actions), options) {
        return Err(other());
    }
    let index = options.index(source.latent_dim)?;
    index
        .view(utf8(&path)?)
        .map_err(|error| Error::file(&path, format!("usearch says: {error}; {REBUILD}")))?;
    if !fits(&index, actions, source.twins, options)
        || !holds_beta(&index, actions, options.scalar, scale)
    {
        return Err(other());
    }
    // Viewing resets it to the default.
    index.change_expansion_search(options.ef_search);
    Ok(index)
}

/// Spot check: true if of a few actions those that have a row have that of β, to the precision of the
/// scalar.
fn holds_beta(index: &Index, actions: &ActionEmbeddings, scalar: Scalar, scale: f32) -> bool {
    let mut stored = vec![0.0_f32; actions.latent_dim()];
    let step = actions.num_actions().div_ceil(16).max(1);
    (0..actions.num_actions()).step_by(step).all(|action| {
        if !index.contains(action as u64) {
            return true;
        }
        let found = index.get(action as u64, &mut stored);
        let row = actions.beta().row(action).iter();
        matches!(found, Ok(1))
            && row.zip(&stored).all(|(value, stored)| {
                let value = value * scale;
                // The second term: the spacing of f16's subnormal numbers.
                (value - stored).abs() <= scalar.precision() * value.abs() + 1e-7
            })
    })
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::file(path, "usearch needs a path in UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::retrieval::Hnsw;
    use crate::retrieval::exact::normals;

    fn embeddings(seed: u64) -> Arc<ActionEmbeddings> {
        Arc::new(ActionEmbeddings::new(normals(seed, 200, 8)).unwrap())
    }

    fn name(actions: &ActionEmbeddings) -> String {
        Source::new(actions, 0, &HnswOptions::default()).folder_name()
    }

    fn open(folder: &Path, actions: &Arc<ActionEmbeddings>) -> Result<Hnsw, String> {
        let options = HnswOptions::default();
        Hnsw::open_or_build(folder, actions.clone(), &options, &())
            .map(|(hnsw, _)| hnsw)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_index_of_other_embeddings_is_refused() {
        let (ours, theirs) = (embeddings(1), embeddings(2));
        let folder = tempfile::tempdir().unwrap();
        let at = |actions| folder.path().join(name(actions));
        open(folder.path(), &theirs).unwrap();

        fs_err::rename(at(&theirs), at(&ours)).unwrap();
        let error = open(folder.path(), &ours).unwrap_err();
        assert!(error.contains("other embeddings") && error.contains("delete"), "{error}");

        // With a record that claims to be ours, the vectors themselves give it away.
        let record = at(&ours).join(RECORD);
        let text = fs_err::read_to_string(&record).unwrap();
        fs_err::write(&record, text.replace(theirs.digest(), ours.digest())).unwrap();
        let error = open(folder.path(), &ours).unwrap_err();
        assert!(error.contains("the graph belongs to other embeddings"), "{error}");
    }

    #[test]
    fn a_damaged_graph_is_refused() {
        let actions = embeddings(1);
        let folder = tempfile::tempdir().unwrap();
        open(folder.path(), &actions).unwrap();
        let graph = folder.path().join(name(&actions)).join(GRAPH);
        let whole = fs_err::read(&graph).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() - 9] ^= 1;
        for damaged in [&whole[..whole.len() / 2], &whole[..0], &flipped] {
            fs_err::write(&graph, damaged).unwrap();
            let error = open(folder.path(), &actions).unwrap_err();
            assert!(error.contains("graph.usearch: is damaged"), "{error}");
        }
        fs_err::remove_file(&graph).unwrap();
        assert!(open(folder.path(), &actions).unwrap_err().contains("graph.usearch"));

        fs_err::write(graph.with_file_name(RECORD), "graph_bytes = 3").unwrap();
        assert!(open(folder.path(), &actions).unwrap_err().contains("index.toml: cannot be read"));
    }
}
