//! Settings: a file of them or, with a first byte that is odd, one as `--set` takes it.
#![no_main]

use std::sync::LazyLock;

use fast_slate::settings::{Preset, SettingsBuilder};
use fast_slate_fuzz::{folder, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(folder);

fuzz_target!(|bytes: &[u8]| {
    let Some((alone, bytes)) = bytes.split_first() else { return };
    let path = PLACE.path().join("settings.toml");
    write(&path, bytes);
    limited(bytes.len(), || {
        let fresh = SettingsBuilder::new(&Preset::Default.settings()).unwrap();
        let told = if alone % 2 == 1 {
            fresh.assignment(&String::from_utf8_lossy(bytes))
        } else {
            fresh.file(&path)
        };
        if let Ok(settings) = told.and_then(SettingsBuilder::build) {
            // What was accepted is written and read as it was.
            let again = SettingsBuilder::new(&settings).unwrap().build().unwrap();
            assert_eq!(format!("{again:?}"), format!("{settings:?}"));
        }
    });
});
