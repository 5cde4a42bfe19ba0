//! A log of interactions in a Parquet file.
#![no_main]

use std::sync::LazyLock;

use fast_slate::dataset::{Filters, Source, read};
use fast_slate_fuzz::{catching, folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(|| {
    catching();
    folder()
});

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("log.parquet");
    write(&path, bytes);
    let source = Source {
        path,
        user_column: Some("user_id".into()),
        item_column: Some("item_id".into()),
        ..Source::default()
    };
    limited(bytes.len(), || drop(read(&source, &Filters::default())));
});
