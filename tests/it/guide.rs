//! The README and the guide against the program: the command line reads every command, every setting
//! that is named exists, the getting-started page runs, and links lead to something.

use std::path::{Path, PathBuf};

use fast_slate::Error;
use fast_slate::cli;
use fast_slate::method::MethodKind;
use fast_slate::settings::{Preset, SettingsBuilder};

use crate::common::{slate, stdout};

/// The most lines of the README.
const README_LINES: usize = 150;

/// The tables of settings.
const TABLES: [&str; 10] = [
    "embedding",
    "context",
    "retrieval",
    "tower",
    "method",
    "reward",
    "optimizer",
    "budget",
    "evaluation",
    "checkpoint",
];

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    fs_err::read_to_string(path).unwrap()
}

/// The guide's pages.
fn guide() -> Vec<PathBuf> {
    let entries = fs_err::read_dir(at("docs/src")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Every page with commands.
fn pages() -> Vec<PathBuf> {
    let others = ["README.md", "CONTRIBUTING.md", "examples/import_embeddings/README.md"];
    guide().into_iter().chain(others.map(at)).collect()
}

/// The words of a line, as a shell splits it; a comment ends it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '#' && word.is_none() => break,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.into_iter().chain(word).collect()
}

/// The arguments of `slate` in the `$ slate …` and `$ cargo run … -- …` lines of the console blocks.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines: Vec<String> = blocks.map(|block| block.replace("\\\n", " ")).collect();
    let typed = lines.iter().flat_map(|block| block.lines()).filter_map(|l| l.strip_prefix("$ "));
    let arguments = typed.map(words).filter_map(|words| match words[0].as_str() {
        "slate" => Some(words[1..].to_vec()),
        "cargo" if !words.iter().any(|word| word == "--example" || word == "install") => {
            let dashes = words.iter().position(|word| word == "--")?;
            Some(words[dashes + 1..].to_vec())
        }
        _ => None,
    });
    arguments.collect()
}

/// The values that a command gives to a flag.
fn values<'a>(command: &'a [String], flag: &'a str) -> impl Iterator<Item = &'a str> {
    command.windows(2).filter(move |pair| pair[0] == flag).map(|pair| pair[1].as_str())
}

/// What the command line and the settings say against a command.
fn problem(command: &[String]) -> Option<String> {
    let typed = ["slate"].into_iter().chain(command.iter().map(String::as_str));
    if let Err(error) = cli::parse(typed) {
        return Some(error.to_string());
    }
    let paper = values(command, "--preset").any(|preset| preset == "paper");
    let preset = if paper { Preset::Paper } else { Preset::Default };
    let mut builder = SettingsBuilder::new(&preset.settings()).unwrap();
    let flags = [("--method", "method.kind"), ("--slate-size", "slate_size")];
    let flags = flags
        .into_iter()
        .flat_map(|(flag, key)| values(command, flag).map(move |value| format!("{key}={value}")));
    for assignment in flags.chain(values(command, "--set").map(str::to_owned)) {
        builder = match builder.assignment(&assignment) {
            Ok(builder) => builder,
            Err(error) => return Some(error.to_string()),
        };
    }
    builder.build().err().map(|error| error.to_string())
}

#[test]
fn the_command_line_reads_every_command() {
    let mut count = 0;
    for page in pages() {
        for command in commands(&read(&page)) {
            count += 1;
            if let Some(problem) = problem(&command) {
                panic!("{}: slate {}\n{problem}", page.display(), command.join(" "));
            }
        }
    }
    assert!(count > 40, "only {count} commands were found");
    let wrong = words("train --data 'a b' --out x --set policy.samples=3 # as it was once");
    assert_eq!(wrong.len(), 7);
    assert!(problem(&wrong).unwrap().contains("policy.samples"));
    assert!(problem(&words("train --out x")).unwrap().contains("--data"));
}

#[test]
fn every_setting_that_is_named_exists() {
    // A method has its own keys only, so a key may be of any of them.
    let known = |key: &str| {
        MethodKind::ALL.iter().any(|kind| {
            let builder = SettingsBuilder::new(&Preset::Default.settings()).unwrap();
            let builder = builder.set("method.kind", kind.key()).unwrap();
            !matches!(builder.assignment(&format!("{key}=0")), Err(Error::UnknownSetting { .. }))
        })
    };
    let mut count = 0;
    for page in guide().into_iter().chain([at("README.md")]) {
        let text = read(&page);
        for code in text.split('`').skip(1).step_by(2) {
            let key = code.split(['=', ' ']).next().unwrap_or_default();
            let is_key = key.split_once('.').is_some_and(|(table, rest)| {
                TABLES.contains(&table)
                    && rest.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c))
            });
            // A file of bundles.
            if is_key && key != "tower.onnx" {
                count += 1;
                assert!(known(key), "{}: no setting `{key}`", page.display());
            }
        }
    }
    assert!(count > 30, "only {count} settings were found");
    let methods = read(&at("docs/src/methods.md"));
    for kind in MethodKind::ALL {
        assert!(methods.contains(&format!("`{kind}`")), "methods.md does not name {kind}");
    }
}

#[test]
fn the_getting_started_page_runs() {
    let folder = tempfile::tempdir().unwrap();
    let text = read(&at("docs/src/getting-started.md"));
    // What follows needs a download.
    let (made_up, _) = text.split_once("## The same on real data").unwrap();
    let commands = commands(made_up);
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands {
        let mut run = slate();
        stdout(run.args(command).current_dir(folder.path()));
    }
}

#[test]
fn links_lead_to_pages() {
    let summary = read(&at("docs/src/SUMMARY.md"));
    for page in guide() {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "{name}");
    }
    let others = ["artifacts/README.md", "examples/deploy/README.md"].map(at);
    for page in pages().into_iter().chain(others) {
        let text = read(&page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                let path = page.parent().unwrap().join(target);
                assert!(path.exists(), "{}: no {target}", page.display());
            }
        }
    }
    let lines = read(&at("README.md")).lines().count();
    assert!(lines <= README_LINES, "the README has {lines} lines");
}

/// The arguments of `slate` in the files of `examples/deploy`, each with the file's name.
#[cfg(feature = "serve")]
fn deployed() -> Vec<(&'static str, Vec<String>)> {
    let text = |name: &str| read(&at("examples/deploy").join(name)).replace("\\\n", " ");
    let mut found = Vec::new();
    for line in text("Dockerfile").lines().filter_map(|line| line.strip_prefix("CMD ")) {
        found.push(("Dockerfile", serde_json::from_str(line).unwrap()));
    }
    let unit = text("slate.service");
    for line in unit.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/slate "))
    {
        found.push(("slate.service", words(line)));
    }
    for list in text("kubernetes.yaml").split("args:\n").skip(1) {
        let items = list.lines().map_while(|line| line.trim_start().strip_prefix("- "));
        found.push(("kubernetes.yaml", items.map(str::to_owned).collect()));
    }
    for line in text("README.md").lines().filter_map(|line| line.strip_prefix("slate ")) {
        found.push(("README.md", words(line)));
    }
    found
}

#[cfg(feature = "serve")]
#[test]
fn the_server_reads_every_deployed_command() {
    let found = deployed();
    let servers: Vec<&str> =
        found.iter().filter(|(_, command)| command[0] == "serve").map(|(file, _)| *file).collect();
    assert_eq!(servers, ["Dockerfile", "slate.service", "kubernetes.yaml"]);
    for (file, command) in &found {
        let typed = ["slate"].into_iter().chain(command.iter().map(String::as_str));
        if let Err(error) = cli::parse(typed) {
            panic!("{file}: slate {}\n{error}", command.join(" "));
        }
    }
    // The program reads every variable that they set.
    let verb = read(&at("src/cli/serve.rs"));
    for file in ["Dockerfile", "slate.service", "kubernetes.yaml"] {
        let text = read(&at("examples/deploy").join(file));
        for rest in text.split("FAST_SLATE_").skip(1) {
            let name: String =
                rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            assert!(verb.contains(&format!("\"FAST_SLATE_{name}\"")), "{file}: FAST_SLATE_{name}");
        }
    }
}
