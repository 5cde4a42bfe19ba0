//! A file → its bytes, unpacked on the way if it is gzipped or a file of a zip archive.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use crate::error::{Error, Result};
use crate::files::open_regular;

/// No log or table shrinks to less than a hundredth; a file that claims so was made to fill memory.
const RATIO: u64 = 100;
const MIB: u64 = 1 << 20;

/// A file, perhaps within an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The file on disk.
    pub(super) path: PathBuf,
    /// Its name within the archive that `path` is, if it is one.
    pub(super) member: Option<String>,
    /// MiB that it may unpack to; by default 64, or [`RATIO`] times its size.
    pub(super) max_unpacked_mib: Option<u64>,
}

impl Packed {
    pub(crate) fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), member: None, max_unpacked_mib: None }
    }

    /// The path to show in messages: `ml-25m.zip/ml-25m/ratings.csv` is a file of an archive.
    pub(super) fn shown(&self) -> PathBuf {
        self.member.as_ref().map_or_else(|| self.path.clone(), |name| self.path.join(name))
    }

    /// The last part of its name, in lower case and without `.gz`; the extension names the format.
    pub(crate) fn name(&self) -> String {
        let shown = self.shown();
        let name = shown.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.strip_suffix(".gz").unwrap_or(&name).to_owned()
    }

    /// The file of another name in the same folder, if there is one.
    pub(super) fn sibling(&self, name: &str) -> Result<Option<Self>> {
        let Some(member) = &self.member else {
            let path = self.path.with_file_name(name);
            return Ok(path.is_file().then(|| Self { path, ..self.clone() }));
        };
        let sibling = Path::new(member).with_file_name(name).to_string_lossy().into_owned();
        let found = members(&self.path)?.contains(&sibling);
        Ok(found.then(|| Self { member: Some(sibling), ..self.clone() }))
    }

    /// Hands `read` the unpacked bytes. Reading fails beyond what the file may unpack to.
    ///
    /// # Errors
    /// A file that cannot be opened or an archive that cannot be read, by name, or an error of
    /// `read`.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut (dyn Read + Send)) -> Result<T>,
    ) -> Result<T> {
        let mut file = open_regular(&self.path)?;
        let limit = match self.max_unpacked_mib {
            Some(mib) => mib.saturating_mul(MIB),
            None => RATIO.saturating_mul(file.metadata()?.len()).max(64 * MIB),
        };
        let gzipped =
            self.shown().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        if let Some(member) = &self.member {
            let mut archive = ZipArchive::new(file).map_err(|error| damaged(&self.path, &error))?;
            let entry = archive.by_name(member).map_err(|error| damaged(&self.path, &error))?;
            if entry.size() > limit {
                return Err(Error::file(self.shown(), too_large(limit)));
            }
            if gzipped {
                read(&mut Bounded { reader: MultiGzDecoder::new(entry), read: 0, limit })
            } else {
                read(&mut Bounded { reader: entry, read: 0, limit })
            }
        } else if gzipped {
            read(&mut Bounded { reader: MultiGzDecoder::new(file), read: 0, limit })
        } else {
            read(&mut file)
        }
    }

    /// Reads all of the unpacked bytes.
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

/// A reader that fails when more than `limit` bytes come.
struct Bounded<R> {
    reader: R,
    read: u64,
    limit: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.read += read as u64;
        if self.read > self.limit { Err(io::Error::other(too_large(self.limit))) } else { Ok(read) }
    }
}

fn too_large(limit: u64) -> String {
    format!(
        "unpacks to more than {} MiB; if it is right, unpack it yourself, or let a log unpack to \
         more with --max-unpacked-mib",
        limit / MIB
    )
}

/// The names of the files in the zip archive at `path`.
///
/// # Errors
/// [`Error::File`] when it is no archive.
pub(super) fn members(path: &Path) -> Result<Vec<String>> {
    let archive = ZipArchive::new(open_regular(path)?).map_err(|error| damaged(path, &error))?;
    let names = archive.file_names().map(|name| name.map(std::borrow::Cow::into_owned));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(|error| damaged(path, &error))?;
    Ok(names.into_iter().filter(|name| !name.ends_with('/')).collect())
}

fn damaged(path: &Path, error: &zip::result::ZipError) -> Error {
    Error::file(path, format!("cannot be unpacked: {error}; download it again"))
}
