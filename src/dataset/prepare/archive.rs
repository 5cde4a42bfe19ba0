//! Zip archives as GroupLens publishes them: one folder of files.

use std::path::{Path, PathBuf};

use fs_err as fs;
use zip::ZipArchive;

use crate::error::{Error, Result};
use crate::files::StagedFolder;

/// The folder beside `path`, of the archive's own name, into which its files are unpacked unless
/// it is there; any path that is no archive comes back as it is.
pub(super) fn unpacked(path: &Path) -> Result<PathBuf> {
    if path.extension().is_none_or(|extension| extension != "zip") {
        return Ok(path.to_owned());
    }
    let folder = path.with_extension("");
    if folder.exists() {
        return Ok(folder);
    }
    let damaged = |error: zip::result::ZipError| {
        Error::file(path, format!("cannot be unpacked: {error}; download it again"))
    };
    let mut archive = ZipArchive::new(fs::File::open(path)?).map_err(damaged)?;
    let staged = StagedFolder::new(&folder)?;
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).map_err(damaged)?;
        // Only the last part of a name: an archive must not write outside its folder.
        let name = entry.enclosed_name().and_then(|name| Some(name.file_name()?.to_owned()));
        if let Some(name) = name.filter(|_| entry.is_file()) {
            let mut file = fs::File::create(staged.path().join(name))?;
            std::io::copy(&mut entry, &mut file)
                .map_err(|error| Error::file(path, format!("cannot be unpacked: {error}")))?;
        }
    }
    staged.commit()?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    #[test]
    fn an_archive_is_unpacked_once_beside_itself_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ml-tiny.zip");
        let mut archive = ZipWriter::new(fs::File::create(&path).unwrap());
        for name in ["ml-tiny/ratings.csv", "../outside.csv"] {
            archive.start_file(name, SimpleFileOptions::default()).unwrap();
            archive.write_all(b"userId,movieId\n1,2\n").unwrap();
        }
        archive.finish().unwrap();
        let unpacked_to = unpacked(&path).unwrap();
        assert_eq!(unpacked_to, folder.path().join("ml-tiny"));
        assert!(unpacked_to.join("ratings.csv").exists());
        assert!(!folder.path().parent().unwrap().join("outside.csv").exists());
        fs::remove_file(unpacked_to.join("ratings.csv")).unwrap();
        assert_eq!(unpacked(&path).unwrap(), unpacked_to);
        assert!(!unpacked_to.join("ratings.csv").exists());
    }

    #[test]
    fn a_broken_archive_leaves_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ml-tiny.zip");
        fs::write(&path, "not an archive").unwrap();
        assert!(unpacked(&path).unwrap_err().to_string().contains("download it again"));
        assert!(!folder.path().join("ml-tiny").exists());
    }
}
