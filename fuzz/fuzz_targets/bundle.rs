//! A bundle's manifest and tensors. The first byte says which file the rest replaces; digests are made
//! right. Tables and the index have targets of their own.
#![no_main]

use std::sync::LazyLock;

use fast_slate::bundle::{Options, Recommender, Who};
use fast_slate::device::{self, Chosen};
use fast_slate_fuzz::{copy_of, limited, manifest, on_this_thread, replace, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const TENSORS: [&str; 2] = ["vectors.safetensors", "model.safetensors"];

static PLACE: LazyLock<(TempDir, String, [Vec<u8>; 2], Chosen)> = LazyLock::new(|| {
    on_this_thread();
    let bundle = copy_of("bundle-exact");
    let read = |name: &str| std::fs::read(bundle.path().join(name)).unwrap();
    let text = String::from_utf8(read("bundle.toml")).unwrap();
    let tensors = TENSORS.map(read);
    (bundle, text, tensors, device::choose(None).unwrap())
});

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let (bundle, text, tensors, device) = &*PLACE;
    let bundle = bundle.path();
    write(&bundle.join("bundle.toml"), text.as_bytes());
    for (name, bytes) in TENSORS.iter().zip(tensors) {
        write(&bundle.join(name), bytes);
    }
    match which % 3 {
        0 => {
            write(&bundle.join("bundle.toml"), manifest(&String::from_utf8_lossy(bytes)).as_bytes())
        }
        which => replace(bundle, TENSORS[usize::from(which) - 1], bytes),
    }
    limited(bytes.len() + (1 << 20), || {
        if let Ok(recommender) = Recommender::open(bundle, &device.device) {
            let asked = [Who::Items(Vec::new()).into(), Who::Context(vec![1.0; 8]).into()];
            let _ = recommender.recommend(&asked, &Options::default());
        }
    });
});
