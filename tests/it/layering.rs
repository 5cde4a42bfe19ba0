//! Data flows one way: no module imports from one below it in the crate docs' map.

use std::path::{Path, PathBuf};

/// Top to bottom; a module may use what stands before it, and itself.
const ORDER: [&str; 35] = [
    "error",
    "interrupt",
    "decimal",
    "bytes",
    "files",
    "seed",
    "matrix",
    "estimate",
    "device",
    "dataset",
    "embedding",
    "encoder",
    "retrieval",
    "reward",
    "tower",
    "model",
    "policy",
    "bundle",
    "log",
    "logged",
    "serving",
    "estimator",
    "method",
    "settings",
    "prepared",
    "run",
    "task",
    "evaluation",
    "baseline",
    "training",
    "chart",
    "experiment",
    "facade",
    "simulation",
    "cli",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The modules that a source file names with `crate::`, outside comments; an empty name for an import of
/// several in braces, or of what the crate's root exports.
fn imports(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect())
        .collect()
}

#[test]
fn an_import_never_goes_upwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let rank = |name: &str| ORDER.iter().position(|module| *module == name);
    let mut wrong = Vec::new();
    for file in &files {
        let module = file.strip_prefix(&root).unwrap().components().next().unwrap();
        let module = Path::new(module.as_os_str()).file_stem().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let own = rank(module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        for import in imports(&fs_err::read_to_string(file).unwrap()) {
            let place = rank(&import)
                .unwrap_or_else(|| panic!("{}: `crate::{import}` has no place", file.display()));
            if place > own {
                wrong.push(format!("{} imports {import}", file.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn only_device_and_the_features_of_a_part_are_conditional() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files.iter().filter(|file| !file.ends_with("device.rs")) {
        let text = fs_err::read_to_string(file).unwrap();
        for backend in ["ndarray", "flex", "wgpu", "cuda"] {
            let condition = format!("feature = \"{backend}\"");
            assert!(!text.contains(&condition), "{} knows {backend}", file.display());
        }
    }
}
