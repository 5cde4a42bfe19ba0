//! The bytes of a file, unpacked on the way: as they are, gzipped, or a file of a zip archive.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use fs_err as fs;
use zip::ZipArchive;

use crate::error::{Error, Result};

/// A file, perhaps within an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// The file on disk.
    pub(super) path: PathBuf,
    /// Its name within the archive that `path` is, if it is one.
    pub(super) member: Option<String>,
}

impl Packed {
    pub(super) fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), member: None }
    }

    /// What messages call it: `ml-25m.zip/ml-25m/ratings.csv` is a file of an archive.
    pub(super) fn shown(&self) -> PathBuf {
        self.member.as_ref().map_or_else(|| self.path.clone(), |name| self.path.join(name))
    }

    /// The last part of its name, in lower case and without `.gz`: what it holds, by its extension.
    pub(super) fn name(&self) -> String {
        let shown = self.shown();
        let name = shown.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.strip_suffix(".gz").unwrap_or(&name).to_owned()
    }

    /// The file of another name in the same folder, if there is one.
    pub(super) fn sibling(&self, name: &str) -> Result<Option<Self>> {
        let Some(member) = &self.member else {
            let path = self.path.with_file_name(name);
            return Ok(path.is_file().then(|| Self::file(path)));
        };
        let sibling = Path::new(member).with_file_name(name).to_string_lossy().into_owned();
        let found = members(&self.path)?.contains(&sibling);
        Ok(found.then(|| Self { path: self.path.clone(), member: Some(sibling) }))
    }

    /// Hands `read` the unpacked bytes.
    ///
    /// # Errors
    /// A file that cannot be opened or an archive that cannot be read, by name, or what `read`
    /// returns.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut (dyn Read + Send)) -> Result<T>,
    ) -> Result<T> {
        let mut file = fs::File::open(&self.path)?;
        if let Some(member) = &self.member {
            let mut archive = ZipArchive::new(file).map_err(|error| damaged(&self.path, &error))?;
            let mut entry = archive.by_name(member).map_err(|error| damaged(&self.path, &error))?;
            read(&mut entry)
        } else if self.path.extension().is_some_and(|extension| extension == "gz") {
            read(&mut MultiGzDecoder::new(file))
        } else {
            read(&mut file)
        }
    }

    /// All of the unpacked bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        self.read(|reader| {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map_err(|error| {
                Error::file(self.shown(), format!("cannot be unpacked: {error}"))
            })?;
            Ok(bytes)
        })
    }
}

/// The names of the files in the zip archive at `path`.
///
/// # Errors
/// [`Error::File`] when it is no archive.
pub(super) fn members(path: &Path) -> Result<Vec<String>> {
    let archive = ZipArchive::new(fs::File::open(path)?).map_err(|error| damaged(path, &error))?;
    let names = archive.file_names().map(|name| name.map(std::borrow::Cow::into_owned));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(|error| damaged(path, &error))?;
    Ok(names.into_iter().filter(|name| !name.ends_with('/')).collect())
}

fn damaged(path: &Path, error: &zip::result::ZipError) -> Error {
    Error::file(path, format!("cannot be unpacked: {error}; download it again"))
}
