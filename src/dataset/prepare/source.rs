//! A path or pattern → the files that hold the interactions.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::bytes::{Packed, members};
use crate::dataset::registry;
use crate::error::{Error, Result};

/// Where interactions are logged, one a row.
///
/// A known data set's folder, archive or file ([`registry::KNOWN`]), any table in a `.csv`, `.tsv`
/// or `.inter` (`.gz` or not) or `.parquet` file, a folder of Parquet files, however deep and partitioned as
/// Hive does (`day=2024-01-31/part-0.parquet`), or a pattern that names files, or folders of
/// Parquet files (`logs/*.csv.gz`).
/// Columns that are not given are a known data set's, where the table has them.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// A file, a folder, or a pattern with `*`, `?` or `[…]`.
    pub path: PathBuf,
    /// The column of user ids.
    pub user_column: Option<String>,
    /// The column of item ids.
    pub item_column: Option<String>,
    /// The column of ratings.
    pub rating_column: Option<String>,
    /// The column of times, kept if it is given: seconds since 1970 (milli-, micro- and nanoseconds
    /// are recognised by their size) or, in Parquet, dates and times.
    pub time_column: Option<String>,
    /// Keep the first time of a pair that occurs several times, as a split by time needs: the pair is
    /// known from then on. Otherwise the last one is kept.
    pub first_times: bool,
    /// MiB that each packed file (`.gz`, or one of an archive) may unpack to; by default 64, or a
    /// hundred times its size where that is more.
    pub max_unpacked_mib: Option<u64>,
}

impl Source {
    /// The files that hold the interactions, in a fixed order.
    pub(super) fn files(&self) -> Result<Vec<Packed>> {
        let mut files = self.found()?;
        for file in &mut files {
            file.max_unpacked_mib = self.max_unpacked_mib;
        }
        Ok(files)
    }

    fn found(&self) -> Result<Vec<Packed>> {
        let path = &self.path;
        if path.try_exists().is_ok_and(|exists| !exists) {
            if is_pattern(path) {
                return matching(path);
            }
            let problem = "is not there; name a .csv, .tsv, .inter or .parquet file, a folder of .parquet \
                           files, or a pattern in quotes such as '*.csv'";
            return Err(Error::file(path, problem));
        }
        if fs::metadata(path)?.is_dir() {
            let known = registry::FILES.iter().map(|name| path.join(name));
            if let Some(file) = known.into_iter().find(|file| file.is_file()) {
                return Ok(vec![Packed::file(file)]);
            }
            let files = parquet_files(path)?;
            if files.is_empty() {
                let problem = format!(
                    "holds no .parquet files, nor any of {}; for other data name the file, a \
                     .csv, .tsv or .inter (.gz or not), or a pattern in quotes such as '*.csv'",
                    registry::FILES.join(", ")
                );
                return Err(Error::file(path, problem));
            }
            return Ok(files);
        }
        if path.extension().is_some_and(|extension| extension == "zip") {
            let names = members(path)?;
            let known = |name: &&String| {
                let last = Path::new(name).file_name().unwrap_or_default();
                registry::FILES.iter().any(|known| last == *known)
            };
            let found = names.iter().find(known).or(names.first().filter(|_| names.len() == 1));
            let Some(name) = found else {
                let problem = format!(
                    "holds none of {}; unpack it and name the file",
                    registry::FILES.join(", ")
                );
                return Err(Error::file(path, problem));
            };
            return Ok(vec![Packed { member: Some(name.clone()), ..Packed::file(path) }]);
        }
        Ok(vec![Packed::file(path)])
    }
}

fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

fn matching(pattern: &Path) -> Result<Vec<Packed>> {
    let problem = |error: &dyn std::fmt::Display| {
        Error::file(pattern, format!("is no pattern of files: {error}"))
    };
    let paths = glob::glob(&pattern.to_string_lossy()).map_err(|error| problem(&error))?;
    let mut files: Vec<Packed> = Vec::new();
    for path in paths {
        let path = path.map_err(|error| problem(&error))?;
        if path.is_file() {
            files.push(Packed::file(path));
        } else if path.is_dir() && !is_left_behind(&path) {
            let within = parquet_files(&path)?;
            if within.is_empty() {
                let problem = format!(
                    "matches the folder {}, which holds no .parquet files; give a pattern of files, such \
                     as '*.csv'",
                    path.display()
                );
                return Err(Error::file(pattern, problem));
            }
            files.extend(within);
        }
    }
    // `**` matches a folder and what is in it.
    let mut found = HashSet::new();
    files.retain(|file| found.insert(file.path.clone()));
    if files.is_empty() {
        return Err(Error::file(pattern, "matches no file"));
    }
    Ok(files)
}

/// The Parquet files in `folder`, however deep, in order.
///
/// # Errors
/// [`Error::File`] if the folder holds text beside them, which would not be read.
fn parquet_files(folder: &Path) -> Result<Vec<Packed>> {
    let mut found = Found::default();
    found.search(folder)?;
    if let (false, Some(text)) = (found.parquet.is_empty(), found.text.first()) {
        let problem = format!(
            "holds .parquet files and {}, which would not be read: name the files of one kind with a \
             pattern in quotes, such as '{}'",
            text.display(),
            folder.join("**/*.parquet").display()
        );
        return Err(Error::file(folder, problem));
    }
    found.parquet.sort();
    Ok(found.parquet.into_iter().map(Packed::file).collect())
}

/// True for names that begin with `_` or `.`: they are no data, but what jobs leave behind.
fn is_left_behind(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().starts_with(['_', '.'])
}

/// The files of a table in a folder.
#[derive(Default)]
struct Found {
    parquet: Vec<PathBuf>,
    text: Vec<PathBuf>,
    /// The folders that were searched.
    searched: HashSet<PathBuf>,
}

impl Found {
    /// Searches `folder`, however deep. Links are followed, but each folder is searched once, so that
    /// links to a folder above end.
    fn search(&mut self, folder: &Path) -> Result<()> {
        if !self.searched.insert(fs::canonicalize(folder)?) {
            return Ok(());
        }
        let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = entries.collect::<std::io::Result<Vec<_>>>()?;
        // Folders before links to them: a link may have another name in a Hive partition.
        paths.sort_by_cached_key(|path| (path.is_symlink(), path.clone()));
        for path in paths.into_iter().filter(|path| !is_left_behind(path)) {
            let file = Packed::file(&path);
            if path.is_dir() {
                self.search(&path)?;
            } else if file.name().ends_with(".parquet") {
                self.parquet.push(path);
            } else if [".csv", ".tsv", ".inter"].iter().any(|text| file.name().ends_with(text)) {
                self.text.push(path);
            }
        }
        Ok(())
    }
}
