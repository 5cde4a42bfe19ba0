//! A run's folder. The first byte says which of its files the rest replaces; the parameters get the digest
//! that they need to be looked at.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use fast_slate::device;
use fast_slate::embedding::ActionEmbeddings;
use fast_slate::files::digest_bytes;
use fast_slate::matrix::Matrix;
use fast_slate::model::Model;
use fast_slate::run::{RunFolder, Which};
use fast_slate_fuzz::{copy_of, limited, write};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

struct Place {
    run: TempDir,
    checkpoint: PathBuf,
    state: String,
    settings: Vec<u8>,
    parameters: Vec<u8>,
    fresh: Model,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let run = copy_of("run");
    let folder = RunFolder::new(run.path());
    let (settings, _) = folder.read_settings().unwrap();
    let checkpoint = folder.checkpoint(Which::Last).unwrap().path().to_owned();
    let dim = 8;
    let device = device::choose(None).unwrap().device;
    let identity: Vec<f32> =
        (0..dim * dim).map(|at| f32::from(u8::from(at % (dim + 1) == 0))).collect();
    let inputs = Matrix::new(identity, dim).unwrap();
    let _ = ActionEmbeddings::new(inputs.clone()).unwrap();
    Place {
        state: std::fs::read_to_string(checkpoint.join("state.toml")).unwrap(),
        settings: std::fs::read(folder.settings_path()).unwrap(),
        parameters: std::fs::read(checkpoint.join("model.bpk")).unwrap(),
        fresh: settings.tower.init(&inputs, dim, settings.seed, &device).unwrap().into(),
        run,
        checkpoint,
    }
});

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let place = &*PLACE;
    let folder = RunFolder::new(place.run.path());
    write(&folder.settings_path(), &place.settings);
    write(&place.checkpoint.join("state.toml"), place.state.as_bytes());
    write(&place.checkpoint.join("model.bpk"), &place.parameters);
    match which % 3 {
        0 => write(&folder.settings_path(), bytes),
        1 => write(&place.checkpoint.join("state.toml"), bytes),
        _ => {
            let state = place.state.replace(&digest_bytes(&place.parameters), &digest_bytes(bytes));
            write(&place.checkpoint.join("state.toml"), state.as_bytes());
            write(&place.checkpoint.join("model.bpk"), bytes);
        }
    }
    limited(bytes.len() + place.parameters.len(), || {
        let _ = folder.read_settings();
        if let Ok(checkpoint) = folder.checkpoint(Which::Best) {
            let _ = checkpoint.load_model(place.fresh.clone());
        }
    });
});
