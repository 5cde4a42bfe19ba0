//! Vectors of somebody else, in a `.npy` file.
#![no_main]

use std::sync::LazyLock;

use fast_slate::embedding::{Import, import};
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.path().join("vectors.npy");
    write(&path, bytes);
    let items: Vec<String> = (0..3).map(|item| item.to_string()).collect();
    limited(bytes.len(), || drop(import(&Import::new(&path), &items)));
});
