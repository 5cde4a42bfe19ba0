//! Files and folders that appear whole or not at all: written beside their final name, synced,
//! then renamed. A folder that a killed process left half-written beside its final name is removed
//! by the next one that writes there.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Writes `path` through a buffered writer; the name exists only once every byte is on disk.
///
/// # Errors
/// What `write` returns, or an I/O error naming the file; nothing is left behind then.
pub fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> Result<()>,
) -> Result<()> {
    let partial = partial_name(path)?;
    let result = (|| {
        let mut writer = BufWriter::new(fs::File::create(&partial)?);
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

/// A folder under construction. Dropped before [`commit`](Self::commit), it disappears.
#[derive(Debug)]
pub struct StagedFolder {
    partial: PathBuf,
    target: PathBuf,
}

impl StagedFolder {
    /// Starts a folder that will be named `target`, whose parents are created.
    ///
    /// # Errors
    /// An I/O error naming the folder.
    pub fn new(target: &Path) -> Result<Self> {
        fs::create_dir_all(parent(target))?;
        remove_leftovers(target)?;
        let partial = partial_name(target)?;
        fs::create_dir(&partial)?;
        Ok(Self { partial, target: target.to_owned() })
    }

    /// Where to write meanwhile.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Syncs the files and gives the folder its name, replacing a folder that has it.
    ///
    /// # Errors
    /// An I/O error; the folder keeps its temporary name then and is removed.
    pub fn commit(self) -> Result<()> {
        sync_tree(&self.partial)?;
        if self.target.exists() {
            let mut old = self.partial.clone().into_os_string();
            old.push("-old");
            fs::rename(&self.target, &old)?;
            fs::rename(&self.partial, &self.target)?;
            fs::remove_dir_all(&old)?;
        } else {
            fs::rename(&self.partial, &self.target)?;
        }
        sync_folder(parent(&self.target))
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if self.partial.exists() {
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// SHA-256 of a file, in hex.
///
/// # Errors
/// An I/O error naming the file.
pub fn digest_file(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut reader = fs::File::open(path)?;
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let read = std::io::Read::read(&mut reader, &mut buffer)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// SHA-256 of bytes, in hex.
#[must_use]
pub fn digest_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

const PARTIAL: &str = ".partial-";

fn partial_name(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::file(path, "is not a name to write to"))?;
    Ok(parent(path).join(format!(".{}{PARTIAL}{}", name.to_string_lossy(), std::process::id())))
}

fn remove_leftovers(target: &Path) -> Result<()> {
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
    let prefix = format!(".{}{PARTIAL}", name.unwrap_or_default());
    for entry in fs::read_dir(parent(target))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(&prefix).is_some_and(|writer| !is_alive(writer)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether the process that `writer` begins with may still be at work. Where there is no `/proc` to
/// ask, it may.
fn is_alive(writer: &str) -> bool {
    let process = writer.split('-').next().unwrap_or(writer);
    !Path::new("/proc/self").exists() || Path::new("/proc").join(process).exists()
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

fn sync_folder(folder: &Path) -> Result<()> {
    Ok(fs::File::open(folder)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_appears_whole_or_not_at_all_and_leftovers_of_the_dead_go() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("data");
        // No process has this number; process 1 always lives.
        let (dead, alive) = (".data.partial-4294967295", ".data.partial-1");
        for name in [dead, alive] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let staged = StagedFolder::new(&target).unwrap();
        fs::write(staged.path().join("file"), "1").unwrap();
        assert!(!target.exists());
        drop(staged);
        let names = || {
            let entries = fs::read_dir(root.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), [alive]);

        for content in ["1", "2"] {
            let staged = StagedFolder::new(&target).unwrap();
            fs::write(staged.path().join("file"), content).unwrap();
            staged.commit().unwrap();
            assert_eq!(fs::read_to_string(target.join("file")).unwrap(), content);
        }
        assert_eq!(names(), [alive, "data"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        write_atomic(&path, |file| Ok(file.write_all(b"old")?)).unwrap();
        let failed = write_atomic(&path, |file| {
            file.write_all(b"ne")?;
            Err(Error::file("x", "went wrong"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
