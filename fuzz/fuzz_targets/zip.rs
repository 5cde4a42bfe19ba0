//! A log of interactions in a zip archive.
#![no_main]

use std::io::Cursor;
use std::sync::LazyLock;

use fast_slate::dataset::{Filters, Source, read};
use fast_slate_fuzz::{folder, limited, unpacked, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

/// The bytes of all files in the archive.
fn contents(bytes: &[u8]) -> usize {
    let Ok(mut archive) = zip::ZipArchive::new(Cursor::new(bytes)) else { return 0 };
    (0..archive.len()).filter_map(|at| Some(unpacked(archive.by_index(at).ok()?))).sum()
}

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("log.zip");
    write(&path, bytes);
    let source = Source { path, ..Source::default() };
    limited(bytes.len() + contents(bytes), || drop(read(&source, &Filters::default())));
});
