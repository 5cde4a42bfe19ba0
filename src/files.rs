//! Bytes → files and folders that appear whole or not at all: they are written beside their final
//! name, synced, then renamed. A writer holds a lock on its half-written file, and the lock ends with
//! the process. So a half-written file without a lock was left by a killed process, and the next
//! writer in that folder removes it.

mod digest;
mod mapped;

use std::fs::TryLockError;
use std::io::{BufWriter, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result, toml_problem};

pub(crate) use digest::{Hasher, blake3_bytes, blake3_pass, hex};
pub use digest::{digest_bytes, digest_file};
pub(crate) use mapped::Mapped;

/// Writes `path` through a buffered writer; the name exists only once every byte is on disk.
///
/// # Errors
/// An error of `write`, or an I/O error naming the file; nothing is left behind then.
pub fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> Result<()>,
) -> Result<()> {
    remove_leftovers(parent(path));
    let (partial, file) =
        claim(path, |partial| fs::OpenOptions::new().write(true).create_new(true).open(partial))?;
    let result = (|| {
        let mut writer = BufWriter::new(file);
        write(&mut writer)?;
        writer.flush()?;
        writer.get_ref().sync_all()?;
        fs::rename(&partial, path)?;
        sync_folder(parent(path))
    })();
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}

/// Writes a value as TOML, as [`write_atomic`] does.
///
/// # Errors
/// As [`write_atomic`].
pub(crate) fn write_toml(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = toml::to_string(value);
    let text = text.map_err(|error| Error::library(path.display().to_string(), error))?;
    write_atomic(path, |file| Ok(file.write_all(text.as_bytes())?))
}

/// Reads a value from TOML.
///
/// # Errors
/// As [`read_text`]; [`Error::File`] naming the line for a text that is not what it should be.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = read_text(path)?;
    toml::from_str(&text).map_err(|error| {
        Error::file(path, format!("cannot be read: {}", toml_problem(&error, &text)))
    })
}

/// A folder under construction. Dropped before [`commit`](Self::commit), it disappears, and so do the
/// parents that were made for it.
#[derive(Debug)]
pub struct StagedFolder {
    partial: PathBuf,
    target: PathBuf,
    committed: bool,
    _lock: fs::File,
    _parents: MadeFolders,
}

impl StagedFolder {
    /// Starts a folder that will be named `target`, whose parents are created.
    ///
    /// # Errors
    /// [`Error::File`] for a mount point, an I/O error naming the folder.
    pub fn new(target: &Path) -> Result<Self> {
        let target = replaceable(target)?;
        let parents = MadeFolders::new(parent(&target))?;
        remove_leftovers(parent(&target));
        put_back(&target)?;
        let (partial, lock) = claim(&target, |partial| {
            fs::create_dir(partial)?;
            fs::File::open(partial)
        })?;
        Ok(Self { partial, target, committed: false, _lock: lock, _parents: parents })
    }

    /// Starts a folder that will be named `target`, with the files that a killed process left of it.
    ///
    /// # Errors
    /// [`Error::File`] when another process is writing the folder, or for a mount point; an I/O error
    /// naming the folder.
    pub fn resume(target: &Path) -> Result<Self> {
        let target = replaceable(target)?;
        let parents = MadeFolders::new(parent(&target))?;
        remove_leftovers(parent(&target));
        put_back(&target)?;
        let partial = parent(&target).join(format!(".{}.partial", file_name(&target)?));
        fs::create_dir_all(&partial)?;
        let lock = fs::File::open(&partial)?;
        // The process that held the lock may have given the folder its final name.
        if lock_state(&lock) == Lock::Taken || !is_at(&lock, &partial) {
            return Err(Error::file(target, "another process is at work on it"));
        }
        Ok(Self { partial, target, committed: false, _lock: lock, _parents: parents })
    }

    /// Where to write before [`commit`](Self::commit).
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Syncs the files and gives the folder its name, replacing a folder that has it.
    ///
    /// # Errors
    /// An I/O error; the folder keeps its temporary name then and is removed.
    pub fn commit(mut self) -> Result<()> {
        sync_tree(&self.partial)?;
        if self.target.exists() {
            let old = set_aside(&self.target)?;
            fs::rename(&self.target, &old)?;
            if let Err(error) = fs::rename(&self.partial, &self.target) {
                let _ = fs::rename(&old, &self.target);
                return Err(error.into());
            }
            // If it cannot be removed now, a later writer does.
            let _ = remove_folder(&old);
        } else {
            fs::rename(&self.partial, &self.target)?;
        }
        self.committed = true;
        sync_folder(parent(&self.target))
    }
}

/// The folder that a new one replaces under the name `target`: where this is a link, what it leads to.
///
/// # Errors
/// [`Error::File`] for a mount point, which cannot be renamed, and for a link to nothing.
pub(crate) fn replaceable(target: &Path) -> Result<PathBuf> {
    // A slash at the end would lead behind the link.
    let mut folder: PathBuf = target.components().collect();
    if folder.is_symlink() {
        folder = fs::canonicalize(&folder).map_err(|_| {
            Error::file(target, "is a link to nothing; make its folder, or remove the link")
        })?;
    }
    if is_mount_point(&folder) {
        let problem = "is a mount point, which no folder can replace; name a folder inside it";
        return Err(Error::file(target, problem));
    }
    Ok(folder)
}

#[cfg(unix)]
fn is_mount_point(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    matches!((device(folder), device(parent(folder))), (Ok(own), Ok(above)) if own != above)
}

#[cfg(not(unix))]
fn is_mount_point(_: &Path) -> bool {
    false
}

/// Fails if `folder` holds what is not `own`: it would go with a folder that another one replaces. Hidden files may.
///
/// # Errors
/// [`Error::File`] with the names, an I/O error.
pub(crate) fn require_only(folder: &Path, own: impl Fn(&str) -> bool) -> Result<()> {
    let mut others = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !own(&name) && !name.starts_with('.') {
            others.push(format!("`{name}`"));
        }
    }
    if others.is_empty() {
        return Ok(());
    }
    others.sort();
    let problem = format!(
        "{} would be lost with what is replaced; move it elsewhere first, or give another --out",
        others.join(", ")
    );
    Err(Error::file(folder, problem))
}

/// Removes a folder. It loses its name first, so that nothing is taken for whole of which a killed process
/// left a half; a later writer removes that.
///
/// # Errors
/// An I/O error naming the folder.
pub fn remove_folder(path: &Path) -> Result<()> {
    let old = partial_name(path)?;
    fs::rename(path, &old)?;
    Ok(fs::remove_dir_all(&old)?)
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Opens a regular file. Any other, such as a device or a pipe, may be endless.
///
/// # Errors
/// [`Error::File`] for a folder, device or pipe, an I/O error naming the file.
pub fn open_regular(path: &Path) -> Result<fs::File> {
    // Before it is opened: opening a pipe waits for a writer.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Error::file(path, "expected a regular file, found a folder, device or pipe"));
    }
    Ok(fs::File::open(path)?)
}

/// The text of a regular file.
///
/// # Errors
/// As [`open_regular`]; [`Error::File`] for text that is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    // Some programs begin a text with its byte order.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    let text = String::from_utf8(bytes);
    text.map_err(|_| Error::file(path, "is not UTF-8; save it as UTF-8 text"))
}

/// A folder and its parents, made where they were missing. Dropped, those that are still empty are
/// removed: what they were made for has failed.
#[derive(Debug)]
pub(crate) struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Makes the folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let missing = missing(folder);
        create_folder(folder)?;
        Ok(Self(missing))
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        // A folder that holds something is not removed, nor are its parents.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// The folder and its parents that do not exist, the deepest first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    folder.ancestors().take_while(is_missing).map(Path::to_owned).collect()
}

/// Makes the folder and its parents, where they are missing, with their names on disk.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    let missing = missing(folder);
    fs::create_dir_all(folder)?;
    missing.iter().try_for_each(|made| sync_folder(parent(made)))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

const PARTIAL: &str = ".partial-";

fn file_name(path: &Path) -> Result<std::borrow::Cow<'_, str>> {
    let name = path.file_name().ok_or_else(|| Error::file(path, "is not a name to write to"))?;
    Ok(name.to_string_lossy())
}

/// A name beside `path` that no other writer of this machine has.
fn partial_name(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    Ok(parent(path).join(format!(".{}{PARTIAL}{process}-{count}", file_name(path)?)))
}

/// Calls `create` with a name of [`partial_name`] and locks what it opens.
fn claim(
    path: &Path,
    create: impl Fn(&Path) -> std::io::Result<fs::File>,
) -> Result<(PathBuf, fs::File)> {
    loop {
        let partial = partial_name(path)?;
        match create(&partial) {
            // Another process may have removed it before it was locked.
            Ok(file) if lock_state(&file) != Lock::Taken && is_at(&file, &partial) => {
                return Ok((partial, file));
            }
            Ok(_) => {}
            // A process elsewhere had this number: the next name is free.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The name of a folder while another one takes its place: no leftover, so that nobody removes it.
fn set_aside(target: &Path) -> Result<PathBuf> {
    Ok(parent(target).join(format!(".{}.old", file_name(target)?)))
}

/// Gives a folder its name back, if a process was killed while it put another one in its place; removes
/// it if the other one has the name already. A process that is alive does so itself.
fn put_back(target: &Path) -> Result<()> {
    let old = set_aside(target)?;
    if has_writer(target)? {
        return Ok(());
    }
    match (old.exists(), target.exists()) {
        (true, true) => remove_folder(&old),
        (true, false) => Ok(fs::rename(&old, target)?),
        (false, _) => Ok(()),
    }
}

/// True if another process is writing a folder that will be named `target`.
fn has_writer(target: &Path) -> Result<bool> {
    let partial = format!(".{}.partial", file_name(target)?);
    let mut entries = fs::read_dir(parent(target))?.flatten();
    Ok(entries.any(|entry| {
        entry.file_name().to_string_lossy().starts_with(&partial)
            && fs::File::open(entry.path()).is_ok_and(|file| lock_state(&file) == Lock::Taken)
    }))
}

/// Removes the half-written files that killed processes left in `folder`; one that cannot be removed
/// stays.
fn remove_leftovers(folder: &Path) {
    let is_leftover = |name: &str| {
        let writer = name.strip_prefix('.').and_then(|name| Some(name.rsplit_once(PARTIAL)?.1));
        writer
            .is_some_and(|writer| writer.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // The lock is held until the file is gone: a writer that made it just now takes another name.
        if is_leftover(&entry.file_name().to_string_lossy())
            && let Ok(file) = fs::File::open(&path)
            && lock_state(&file) == Lock::Ours
        {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// True if `path` still names the open `file`, and not another one that came after it.
#[cfg(unix)]
pub(crate) fn is_at(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (file.metadata().map(place), fs::metadata(path).map(place));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

#[cfg(not(unix))]
pub(crate) fn is_at(_: &fs::File, path: &Path) -> bool {
    path.exists()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Ours,
    Taken,
    /// The file system has no locks.
    Unknown,
}

/// Locks `file` until it is closed.
fn lock_state(file: &fs::File) -> Lock {
    match file.file().try_lock() {
        Ok(()) => Lock::Ours,
        Err(TryLockError::WouldBlock) => Lock::Taken,
        Err(TryLockError::Error(_)) => Lock::Unknown,
    }
}

fn sync_tree(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            fs::File::open(&path)?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Puts the names in `folder` on disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    Ok(fs::File::open(folder)?.sync_all()?)
}

#[cfg(test)]
mod tests;
