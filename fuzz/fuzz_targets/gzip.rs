//! A log of interactions in a `.csv.gz` file.
#![no_main]

use std::sync::LazyLock;

use fast_slate::dataset::{Filters, Source, read};
use fast_slate_fuzz::{folder, limited, unpacked, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("log.csv.gz");
    write(&path, bytes);
    let source = Source {
        path,
        user_column: Some("user_id".into()),
        item_column: Some("item_id".into()),
        ..Source::default()
    };
    limited(unpacked(flate2::read::MultiGzDecoder::new(bytes)), || {
        drop(read(&source, &Filters::default()))
    });
});
