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
/// (`.gz` or not) or `.parquet` file, a folder of Parquet files, however deep and partitioned as
/// Hive does (`day=2024-01-31/part-0.parquet`), or a pattern that names files (`logs/*.csv.gz`).
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
    /// are recognised by their size) or, in Parquet, dates and times without a zone.
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
            let problem = "is not there; name a .csv, .tsv or .parquet file, a folder of .parquet files, \
                           or a pattern in quotes such as '*.csv'";
            return Err(Error::file(path, problem));
        }
        if fs::metadata(path)?.is_dir() {
            let known = registry::FILES.iter().map(|name| path.join(name));
            if let Some(file) = known.into_iter().find(|file| file.is_file()) {
                return Ok(vec![Packed::file(file)]);
            }
            let mut files = Vec::new();
            parquet_files(path, &mut HashSet::new(), &mut files)?;
            files.sort();
            if files.is_empty() {
                let problem = format!(
                    "holds no .parquet files, nor any of {}; for other data name the file, a \
                     .csv, .tsv, .csv.gz or .tsv.gz, or a pattern in quotes such as '*.csv'",
                    registry::FILES.join(", ")
                );
                return Err(Error::file(path, problem));
            }
            return Ok(files.into_iter().map(Packed::file).collect());
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
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|error| problem(&error))?;
        if path.is_file() {
            files.push(Packed::file(path));
        }
    }
    if files.is_empty() {
        return Err(Error::file(pattern, "matches no file"));
    }
    Ok(files)
}

/// Finds the Parquet files in `folder`, however deep. What begins with `_` or `.` is no data: jobs
/// leave such files behind. Links are followed, but each folder is read once, so that links to a
/// folder above end.
fn parquet_files(
    folder: &Path,
    read: &mut HashSet<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    if !read.insert(fs::canonicalize(folder)?) {
        return Ok(());
    }
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<std::io::Result<Vec<_>>>()?;
    // Folders before links to them: a link may have another name in a Hive partition.
    paths.sort_by_cached_key(|path| (path.is_symlink(), path.clone()));
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(['_', '.']) {
            continue;
        }
        if path.is_dir() {
            parquet_files(&path, read, files)?;
        } else if name.to_lowercase().ends_with(".parquet") {
            files.push(path);
        }
    }
    Ok(())
}
