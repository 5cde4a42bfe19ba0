//! What cannot be done is said in one line that names the file, row or setting at fault and what to
//! do, with exit code 2; and nothing half done is left behind.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use fast_slate::device;
use fast_slate::run::RunFolder;
use safetensors::{Dtype, tensor::TensorView};
use tempfile::TempDir;

use crate::common::{
    assert_says, limited, log_csv, names, npy, refused, slate, small, small_of, stdout, table,
};

/// A log to prepare, in a folder of its own.
struct Input {
    folder: TempDir,
}

impl Input {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        log_csv(&folder.path().join("log.csv"));
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `slate prepare` of `input` into `data`, but for the item column.
    fn prepare(&self, input: &str) -> Command {
        self.prepare_of(input, "8")
    }

    /// The same with embeddings of another length.
    fn prepare_of(&self, input: &str, latent_dim: &str) -> Command {
        let mut command = slate();
        command.arg("prepare").arg(self.path(input)).arg("--out").arg(self.path("data"));
        command.args(["--user-column", "who", "--latent-dim", latent_dim]);
        command
    }

    /// `slate prepare` of the log with these embeddings.
    fn import(&self, embeddings: &str) -> Command {
        let mut command = slate();
        command.arg("prepare").arg(self.path("log.csv")).arg("--out").arg(self.path("data"));
        command.args(["--user-column", "who"]).args(ITEMS);
        command.arg("--embeddings").arg(self.path(embeddings));
        command
    }

    /// The error of preparing the log with `args`, after which all is as it was.
    fn refused(&self, args: &[&str]) -> String {
        let before = names(self.folder.path());
        let error = refused(self.prepare("log.csv").args(args));
        assert_eq!(names(self.folder.path()), before);
        error
    }
}

/// A prepared folder and a run of 24 steps on it.
fn trained() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    small(&data);
    stdout(&mut train(&data, &run));
    (folder, data, run)
}

fn train(data: &Path, run: &Path) -> Command {
    let mut command = slate();
    command.args(["train", "--set", "budget.amount=24", "--data"]).arg(data).arg("--out").arg(run);
    command
}

const ITEMS: [&str; 2] = ["--item-column", "what"];

#[test]
fn missing_files_and_columns_are_named() {
    let input = Input::new();
    let error = refused(input.prepare("nothing.csv").args(ITEMS));
    assert_says(&error, &["nothing.csv: is not there; name a .csv"]);

    assert_says(&input.refused(&[]), &["log.csv", "--item-column", "who, what, stars"]);
    let error = input.refused(&["--item-column", "item"]);
    assert_says(&error, &["log.csv: no column `item`", "the columns are who, what, stars"]);
    let error = input.refused(&[&ITEMS[..], &["--min-rating", "3"]].concat());
    assert_says(&error, &["log.csv", "--rating-column", "who, what, stars"]);

    let mut unused = input.prepare("log.csv");
    let unused = unused.args(ITEMS).args(["--rating-column", "stars"]).output().unwrap();
    assert_eq!(unused.status.code(), Some(2));
    let error = String::from_utf8(unused.stderr).unwrap();
    assert_says(&error, &["required arguments were not provided", "--min-rating"]);

    let error = refused(input.prepare("").args(ITEMS));
    assert_says(&error, &["holds no .parquet files, nor any of ratings.csv"]);
    fs_err::write(input.path("log.txt"), "").unwrap();
    assert_says(&refused(input.prepare("log.txt").args(ITEMS)), &["log.txt: expected a .csv"]);
    assert_eq!(names(input.folder.path()), ["log.csv", "log.txt"]);
}

#[test]
fn unreadable_ratings_are_named_by_row() {
    let input = Input::new();
    let text = fs_err::read_to_string(input.path("log.csv")).unwrap();
    fs_err::write(input.path("log.csv"), text.replacen(",3\n", ",good\n", 1)).unwrap();
    let row = text.lines().position(|line| line.ends_with(",3")).unwrap();
    let rated = ["--rating-column", "stars", "--min-rating", "2"];
    let error = input.refused(&[&ITEMS[..], &rated].concat());
    let place = format!("log.csv: row {row}: column `stars`");
    assert_says(&error, &[&place, "expected a finite number, found `good`"]);
    // Nothing needs the ratings without a threshold.
    stdout(input.prepare("log.csv").args(ITEMS));
}

#[test]
fn damaged_rows_are_named_or_skipped_and_counted() {
    let input = Input::new();
    let text = fs_err::read_to_string(input.path("log.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let digests = || {
        let manifest = fs_err::read_to_string(input.path("data/prepare.toml")).unwrap();
        manifest.split("[files]").nth(1).unwrap().split("\n\n").next().unwrap().to_owned()
    };
    stdout(input.prepare("log.csv").args(ITEMS));
    let undamaged = digests();
    fs_err::remove_dir_all(input.path("data")).unwrap();
    for (row, problem) in [
        ("u1", "expected 3 fields, found 1"),
        ("u1,i1,3,9", "expected 3 fields, found 4"),
        ("u1,\"i1,3", "a quote is left open"),
        (",i1,3", "column `who`: expected an id, found ``"),
    ] {
        let damaged = [&lines[..500], &[row], &lines[500..]].concat().join("\n");
        fs_err::write(input.path("log.csv"), damaged).unwrap();
        assert_says(&input.refused(&ITEMS), &["log.csv: row 500: ", problem]);
        let mut skipping = input.prepare("log.csv");
        let output = skipping.args(ITEMS).args(["--skip-bad-rows", "1"]).output().unwrap();
        assert_eq!(digests(), undamaged);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("were skipped: 1; the first: ") && said.contains("row 500"),
            "{said}"
        );
        fs_err::remove_dir_all(input.path("data")).unwrap();
    }
}

#[test]
fn filters_that_leave_nothing_are_named_with_their_option() {
    let input = Input::new();
    for (args, filter, option) in [
        (&["--min-user-interactions", "41"][..], "at least 41 items per user", None),
        (&["--min-item-interactions", "61"], "at least 61 users per item", None),
        (
            &["--rating-column", "stars", "--min-rating", "6"],
            "a rating of at least 6",
            Some("--min-rating"),
        ),
    ] {
        let error = input.refused(&[&ITEMS[..], args].concat());
        assert_says(&error, &["log.csv: ", filter, "change it with", option.unwrap_or(args[0])]);
    }
    let error = input.refused(&[&ITEMS[..], &["--test-share", "0.95"]].concat());
    assert_says(&error, &["--test-share", "--validation-share"]);
    let error = refused(input.prepare_of("log.csv", "40").args(ITEMS));
    assert_says(&error, &["is 40", "1 to 39", "--latent-dim"]);
    assert_eq!(names(input.folder.path()), ["log.csv"]);
}

#[test]
fn users_that_are_left_out_are_counted() {
    let input = Input::new();
    let few = ["--min-user-interactions", "23"];
    let output = input.prepare("log.csv").args(ITEMS).args(few).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_says(&said, &["27 of 60 users are left out: they have fewer than 23 items"]);
}

#[test]
fn an_integer_that_is_two_users_is_said() {
    let input = Input::new();
    let log = "who,what\n1,a\n1,b\n2.0,a\n1.0,c\n2,b\n3,a\n3,c\n4,b\n";
    fs_err::write(input.path("log.csv"), log).unwrap();
    let all = ["--min-user-interactions", "1"];
    let output = input.prepare_of("log.csv", "2").args(ITEMS).args(all).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_says(&said, &["log.csv: 2 integers are two users each, such as `1` and `1.0`"]);
    assert_says(&said, &[".astype('Int64')"]);
}

#[test]
fn a_word_for_no_value_among_the_ids_is_said_and_counted() {
    let input = Input::new();
    let log = "who,what\nNULL,a\nNULL,b\nu1,a\nu1,nan\nNULL,b\nu2,Nan\nu2,b\nu3,a\nu3,b\n";
    fs_err::write(input.path("log.csv"), log).unwrap();
    let all = ["--min-user-interactions", "1"];
    let output = input.prepare_of("log.csv", "2").args(ITEMS).args(all).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_says(&said, &["log.csv: `NULL` is the user of 3 rows; if", "--skip-bad-rows 3"]);
    assert_says(&said, &["log.csv: `nan` is the item of 1 rows"]);
    assert_eq!(said.matches("not known").count(), 2, "{said}");
}

#[test]
fn types_of_parquet_are_read_or_named_with_what_to_do() {
    let prepare = |user: &str, item: &str, out: &Path| {
        let mut command = slate();
        command.args(["prepare", "tests/data/types.parquet", "--min-user-interactions", "1"]);
        command.args(["--user-column", user, "--item-column", item, "--latent-dim", "2", "--out"]);
        command.arg(out);
        command
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("data");
    // A dictionary of texts is text, but for the row without one.
    assert_says(
        &refused(&mut prepare("user", "what", &out)),
        &["row 5: column `what`: expected an id"],
    );
    stdout(&mut prepare("user", "page", &out));
    let users = table(&out.join("contexts.parquet"));
    let users = users.column("user_id").unwrap();
    assert_eq!(users.str().unwrap().iter().flatten().collect::<Vec<_>>(), ["u1", "u2", "u3"]);
    for (item, said) in [
        (
            "item",
            "expected integers or text for ids, and numbers, text, booleans, dates or times for all \
                  else, found Decimal(38, 0); cast it to integers",
        ),
        ("short", "found Decimal(9, 0); cast it to integers"),
        ("price", "found Decimal(10, 2); cast it to floats, or to text where it holds ids"),
        ("bought", "expected integers or text, found bool"),
        ("kind", "found BinaryView"),
    ] {
        let error = refused(&mut prepare("user", item, &out.with_file_name("other")));
        assert_says(&error, &["types.parquet: column `", item, said]);
    }
}

#[test]
fn text_that_is_no_table_is_one_error() {
    let input = Input::new();
    fs_err::write(input.path("log.csv"), "who,what\nu1,i1\nu2,i2,3,4\n").unwrap();
    assert_says(&input.refused(&ITEMS), &["log.csv"]);
    fs_err::write(input.path("log.csv"), "").unwrap();
    assert_says(&input.refused(&ITEMS), &["log.csv"]);
    fs_err::write(input.path("log.csv"), "who,what\n").unwrap();
    assert_says(&input.refused(&ITEMS), &["log.csv: holds no rows"]);
}

#[test]
fn imported_embeddings_are_checked() {
    let input = Input::new();
    let mut numbers = [0.5_f32; 40 * 4];
    numbers[4 * 7 + 2] = f32::NAN;
    npy(&input.path("beta.npy"), 40, 4, &numbers);
    safetensors(&input.path("beta.safetensors"), 40, 4, &numbers);
    npy(&input.path("short.npy"), 39, 4, &[0.5; 39 * 4]);
    fs_err::write(input.path("beta.txt"), "0.5").unwrap();
    for (name, parts) in [
        ("beta.npy", &["beta.npy: row 8, column 3 is NaN, expected a finite number"][..]),
        ("beta.safetensors", &["beta.safetensors: row 8, column 3 is NaN"]),
        ("short.npy", &["short.npy", "expected shape [40, L], found [39, 4]", "actions.parquet"]),
        ("beta.txt", &["beta.txt: expected a `.safetensors`, a `.npy` or a `.parquet` file"]),
        ("beta.bin", &["beta.bin: no such file", "svd, als, a prepared folder or a file"]),
    ] {
        assert_says(&refused(&mut input.import(name)), parts);
        assert!(!input.path("data").exists());
    }

    npy(
        &input.path("beta.npy"),
        40,
        4,
        &numbers.map(|value| if value > 0.0 { value } else { 1.0 }),
    );
    stdout(&mut input.import("beta.npy"));
    let (data, run) = (input.path("data"), input.path("run"));
    let error = refused(train(&data, &run).args(["--set", "embedding.power=0.5"]));
    assert_says(&error, &["`embedding.power`", "set it to 0"]);
    assert!(!run.exists());
    stdout(&mut train(&data, &run));
}

/// What a hostile file may take.
const SOON: Duration = Duration::from_mins(1);

#[test]
fn an_impossible_shape_is_refused() {
    let input = Input::new();
    for (rows, cols) in [(1 << 32, 1 << 32), (1 << 62, 4), (41, 4)] {
        npy(&input.path("beta.npy"), rows, cols, &[0.5; 40 * 4]);
        let error = refused(input.import("beta.npy").timeout(SOON));
        assert_says(&error, &["beta.npy: is no .npy file", "too few for the shape"]);
    }
    assert!(!input.path("data").exists());
}

#[test]
fn files_that_unpack_to_far_more_than_they_are_are_refused() {
    let input = Input::new();
    let zeros = || std::io::repeat(b'0').take(100 << 20);
    let ratings = "userId,movieId,rating\n1,2,3\n";
    let mut archive = zip::ZipWriter::new(fs_err::File::create(input.path("ml.zip")).unwrap());
    for name in ["ml/ratings.csv", "ml/movies.csv"] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(ratings.as_bytes()).unwrap();
    }
    std::io::copy(&mut zeros(), &mut archive).unwrap();
    archive.finish().unwrap();
    let file = fs_err::File::create(input.path("log.csv.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(b"who,what\n").unwrap();
    let lines = b"u1,i1\n".repeat(1 << 20);
    (0..20).for_each(|_| packed.write_all(&lines).unwrap());
    packed.finish().unwrap();

    let mut prepare = slate();
    prepare.arg("prepare").arg(input.path("ml.zip")).arg("--out").arg(input.path("data"));
    prepare.args(["--min-user-interactions", "1"]);
    let limit = "unpacks to more than ";
    let error = refused(prepare.timeout(SOON));
    assert_says(&error, &["ml.zip/ml/movies.csv", limit, "64 MiB", "--max-unpacked-mib"]);
    let error = refused(input.prepare("log.csv.gz").args(ITEMS).timeout(SOON));
    assert_says(&error, &["log.csv.gz: cannot be read beyond row ", limit]);
    assert!(!input.path("data").exists());
}

#[cfg(unix)]
#[test]
fn links_in_circles_end() {
    let input = Input::new();
    fs_err::create_dir(input.path("log")).unwrap();
    for name in ["one", "two"] {
        std::os::unix::fs::symlink(".", input.path("log").join(name)).unwrap();
    }
    let error = refused(input.prepare("log").args(ITEMS).timeout(SOON));
    assert_says(&error, &["log: holds no .parquet files"]);
}

#[test]
fn flags_of_other_embeddings_are_refused() {
    let input = Input::new();
    npy(&input.path("beta.npy"), 40, 4, &[0.5; 40 * 4]);
    let beta = input.path("beta.npy");
    let beta = beta.to_str().unwrap();
    for (args, said) in [
        (&["--confidence", "2"][..], "--confidence goes with --embeddings als"),
        (&["--embeddings", "svd", "--iterations", "2"], "--iterations goes with --embeddings als"),
        (&["--embeddings", "als", "--id-column", "id"], "--id-column goes with --embeddings FILE"),
        (&["--embeddings", "als", "--missing-embeddings", "zero"], "--embeddings FILE"),
        (&["--embeddings", beta], "--latent-dim goes with --embeddings svd or als"),
        (&["--embeddings", "als", "--regularization", "0"], "more than 0 (--regularization)"),
        (&["--embeddings", "als", "--confidence", "-1"], "at least 0 (--confidence)"),
        (&["--embeddings", "als", "--iterations", "0"], "at least 1 (--iterations)"),
    ] {
        assert_says(&input.refused(&[&ITEMS[..], args].concat()), &[said]);
    }
}

fn safetensors(path: &Path, rows: usize, cols: usize, numbers: &[f32]) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let beta = TensorView::new(Dtype::F32, vec![rows, cols], &bytes).unwrap();
    fs_err::write(path, safetensors::serialize([("beta", beta)], None).unwrap()).unwrap();
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_is_written() {
    let (_folder, data, run) = trained();
    let other = run.with_file_name("other");
    for (args, parts) in [
        (&["--slate-size", "100000"][..], &["a slate of 100000 actions", "--slate-size"][..]),
        (&["--set", "method.sample=3"], &["no setting `method.sample`", "method.samples"]),
        (&["--set", "method.samples"], &["`method.samples`", "expected key=value"]),
        (&["--set", "method.samples=0"], &["`method.samples`"]),
        (&["--steps", "0"], &["`budget.amount`", "more than 0"]),
        (&["--set", "evaluation.count=9223372036854775807"], &["`evaluation.count`", "1000000"]),
        (&["--device", "abacus"], &["device `abacus`", "ndarray, flex, wgpu, cuda"]),
    ] {
        assert_says(&refused(train(&data, &other).args(args)), parts);
    }
    for missing in device::NAMES.iter().filter(|name| !device::compiled().contains(name)) {
        let error = refused(train(&data, &other).args(["--device", missing]));
        assert_says(&error, &["not compiled in", &format!("--features {missing}")]);
    }
    let config = run.with_file_name("config.toml");
    assert_says(&refused(train(&data, &other).arg("--config").arg(&config)), &["config.toml"]);
    fs_err::write(&config, "[policy]\nsamples = \n").unwrap();
    assert_says(&refused(train(&data, &other).arg("--config").arg(&config)), &["config.toml"]);
    fs_err::write(&config, "[policy]\nsample = 3\n").unwrap();
    assert_says(&refused(train(&data, &other).arg("--config").arg(&config)), &["method.samples"]);
    assert!(!other.exists());
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let (folder, data, run) = trained();
    let path = |name: &str| folder.path().join(name);
    let mut evaluate = slate();
    evaluate.arg("evaluate").arg(&run).arg("--logged").arg(path("log")).arg("--index");
    assert_says(&refused(&mut evaluate), &["--index are about hidden items", "--logged"]);
    let mut export = slate();
    export.arg("export").arg(&run).arg("--out").arg(path("bundle")).args(["--recall", "0.9"]);
    assert_says(&refused(&mut export), &["--recall and -k are about an index", "--index"]);
    let mut tune = slate();
    tune.arg("tune").arg("--data").arg(&data).arg("--out").arg(path("tuned"));
    tune.args(["--within", "9", "--set", "budget.amount=3"]);
    assert_says(&refused(&mut tune), &["--within", "`budget`", "give one of them"]);
    small_of(&path("other"), 12);
    let mut variance = slate();
    variance.arg("variance").arg(path("other")).arg("--run").arg(&run);
    assert_says(&refused(&mut variance), &["run: was trained on other data than", "other"]);
    for (verb, flag) in [
        (&["variance"][..], "--steps"),
        (&["bench", "recall"], "--epochs"),
        (&["bench", "step"], "--seconds"),
    ] {
        let mut measuring = slate();
        measuring.args(verb).arg(&data).args([flag, "3"]);
        assert_says(&refused(&mut measuring), &["--epochs and --seconds out"]);
    }
    assert_eq!(names(folder.path()), ["data", "other", "run"]);
}

#[test]
fn parquet_files_that_would_end_the_process_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["damaged-page.parquet", "damaged-footer.parquet"] {
        let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let mut prepare = slate();
        prepare.arg("prepare").arg(log).args(["--user-column", "user_id"]);
        prepare.args(["--item-column", "item_id", "--out"]).arg(folder.path().join("data"));
        assert_says(&refused(&mut prepare), &[name, "is damaged"]);
    }
}

#[test]
fn a_table_of_another_separator_says_which_was_expected() {
    let input = Input::new();
    let log = input.path("half.csv");
    fs_err::write(&log, "user;item\u{1b}[31m\n1;2\n").unwrap();
    let mut prepare = slate();
    prepare.arg("prepare").arg(&log).args(["--user-column", "user"]);
    prepare.args(["--item-column", "item", "--out"]).arg(input.path("data"));
    let error = refused(&mut prepare);
    assert_says(&error, &["half.csv: no column `user`", "the only column is user;item", "`,`"]);
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn a_parquet_file_that_was_cut_off_says_what_to_do() {
    let input = Input::new();
    let log = input.path("cut.parquet");
    fs_err::write(&log, b"PAR1 and what a copy that was stopped has written").unwrap();
    let mut prepare = slate();
    prepare.arg("prepare").arg(&log).args(["--user-column", "user_id"]);
    prepare.args(["--item-column", "item_id", "--out"]).arg(input.path("data"));
    assert_says(&refused(&mut prepare), &["cut.parquet", "copy it again", "PAR1"]);
}

#[test]
fn damaged_checkpoints_are_named() {
    let (_folder, _, run) = trained();
    let checkpoints = RunFolder::new(&run).checkpoints().unwrap();
    let last = run.join("checkpoints").join(format!("step-{:09}", checkpoints.last().unwrap()));
    let mut resume = slate();
    resume.args(["train", "--resume", "--out"]).arg(&run);
    for name in ["model.bpk", "adam.bpk", "state.toml"] {
        let whole = fs_err::read(last.join(name)).unwrap();
        fs_err::write(last.join(name), &whole[..whole.len() / 2]).unwrap();
        let mut evaluate = slate();
        evaluate.args(["evaluate", "--checkpoint", "last"]).arg(&run);
        for command in [&mut resume, &mut evaluate] {
            let error = refused(command);
            assert_says(&error, &["step-000000024", "damaged checkpoint", name, "delete that"]);
        }
        fs_err::write(last.join(name), whole).unwrap();
    }
    // What nobody vouches for is not read.
    let state = fs_err::read_to_string(last.join("state.toml")).unwrap();
    let (before, _) = state.split_once("\"model.bpk\"").unwrap();
    fs_err::write(last.join("state.toml"), before).unwrap();
    let error = refused(slate().args(["evaluate", "--checkpoint", "last"]).arg(&run));
    assert_says(&error, &["damaged checkpoint", "no digest of model.bpk"]);
    fs_err::write(last.join("state.toml"), state).unwrap();
    let error = refused(slate().args(["evaluate", "--checkpoint", "7"]).arg(&run));
    assert_says(&error, &["no checkpoint of step 7", "24"]);
    // The advice holds.
    fs_err::remove_dir_all(&last).unwrap();
    stdout(&mut resume);
    assert_eq!(RunFolder::new(&run).checkpoints().unwrap(), checkpoints);
}

#[test]
fn an_index_of_other_embeddings_is_refused() {
    let (folder, data, run) = trained();
    let other = folder.path().join("other");
    small_of(&other, 12);
    let other_run = folder.path().join("other run");
    stdout(&mut train(&other, &other_run));
    for run in [&run, &other_run] {
        stdout(slate().args(["evaluate", "--index"]).arg(run));
    }
    let index = |data: &Path| data.join("index").join(&names(&data.join("index"))[0]);
    let (ours, theirs) = (index(&data), index(&other));
    fs_err::remove_dir_all(&ours).unwrap();
    fs_err::rename(theirs, &ours).unwrap();
    let error = refused(slate().args(["evaluate", "--index"]).arg(&run));
    assert_says(&error, &["data/index/hnsw-", "belongs to other embeddings", "delete the folder"]);
    let another = folder.path().join("another");
    let mut searching = train(&data, &another);
    searching.args(["--set", "context.folds=0"]);
    assert_says(&refused(&mut searching), &["belongs to other embeddings"]);
    assert!(!another.exists());
    // The advice holds.
    fs_err::remove_dir_all(ours).unwrap();
    stdout(slate().args(["evaluate", "--index"]).arg(&run));
}

#[test]
fn edited_data_is_refused() {
    let (_folder, data, run) = trained();
    for name in ["interactions.parquet", "embeddings.safetensors"] {
        let whole = fs_err::read(data.join(name)).unwrap();
        let mut edited = whole.clone();
        edited[whole.len() / 2] ^= 1;
        fs_err::write(data.join(name), edited).unwrap();
        let expected = format!("{name}: is not what `slate prepare` wrote; prepare the data again");
        assert_says(&refused(slate().arg("evaluate").arg(&run)), &[&expected]);
        assert_says(&refused(slate().arg("info").arg(&data)), &[&expected]);
        assert_says(&refused(&mut train(&data, &run.with_file_name("other"))), &[&expected]);
        fs_err::write(data.join(name), whole).unwrap();
    }
    fs_err::remove_file(data.join("contexts.parquet")).unwrap();
    assert_says(&refused(slate().arg("evaluate").arg(&run)), &["contexts.parquet"]);
}

#[test]
fn data_that_leads_elsewhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    small(&data);
    let manifest = data.join("prepare.toml");
    let whole = fs_err::read_to_string(&manifest).unwrap();
    for name in ["/dev/zero", "..", "../data/actions.parquet", "."] {
        let named = format!("\"{name}\"");
        fs_err::write(&manifest, whole.replacen("\"actions.parquet\"", &named, 1)).unwrap();
        for command in [slate().arg("info").arg(&data), &mut train(&data, &data.join("run"))] {
            let error = refused(command.timeout(SOON));
            let expected = format!("expected names of files in this folder, found `{name}`");
            assert_says(&error, &["prepare.toml: ", &expected]);
        }
    }
    fs_err::write(&manifest, whole).unwrap();
    #[cfg(unix)]
    for name in ["embeddings.safetensors", "prepare.toml"] {
        fs_err::remove_file(data.join(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", data.join(name)).unwrap();
        let error = refused(slate().arg("info").arg(&data).timeout(SOON));
        assert_says(&error, &[name, "expected a regular file"]);
    }
}

#[test]
fn damaged_embeddings_of_a_fold_are_refused() {
    let (_folder, data, run) = trained();
    let folds = data.join("folds").join(&names(&data.join("folds"))[0]);
    let fold = folds.join("0.safetensors");
    let whole = fs_err::read(&fold).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() - 9] ^= 1;
    let mut again = train(&data, &run.with_file_name("again"));
    for damaged in [&flipped[..], &whole[..whole.len() / 2]] {
        fs_err::write(&fold, damaged).unwrap();
        let error = refused(&mut again);
        assert_says(&error, &["0.safetensors: is damaged; delete its folder"]);
    }
    // The advice holds.
    fs_err::remove_dir_all(&folds).unwrap();
    stdout(&mut again);
    assert_eq!(fs_err::read(&fold).unwrap(), whole);
}

#[test]
fn unknown_ids_and_folders_are_named() {
    let (folder, data, run) = trained();
    let error = refused(slate().arg("recommend").arg(&run).args(["--user", "nobody"]));
    assert_says(&error, &["contexts.parquet: no user `nobody`"]);
    let error = refused(slate().arg("recommend").arg(&run).args(["--items", "nothing"]));
    assert_says(&error, &["--items: the catalogue has none of nothing"]);
    let error = refused(slate().arg("evaluate").arg(folder.path()));
    assert_says(&error, &["no run here (no run.toml)", "slate train"]);
    let error = refused(slate().arg("info").arg(folder.path()));
    assert_says(&error, &["neither a prepared folder nor a run"]);
    let error = refused(&mut train(folder.path(), &folder.path().join("new")));
    assert_says(&error, &["no prepared folder (no prepare.toml)", "slate prepare"]);

    // With other data in its place a run is of no use.
    fs_err::remove_dir_all(&data).unwrap();
    small_of(&data, 12);
    let error = refused(slate().arg("evaluate").arg(&run));
    assert_says(&error, &["data: has changed since this run was trained on it"]);
}

#[test]
fn nothing_is_replaced_unasked() {
    let input = Input::new();
    stdout(input.prepare("log.csv").args(ITEMS));
    assert_says(&input.refused(&ITEMS), &["data: is there already", "--out", "--force"]);
    stdout(input.prepare("log.csv").args(ITEMS).arg("--force"));

    // Nor, asked, what else somebody put there.
    let forced = [&ITEMS[..], &["--force"]].concat();
    fs_err::create_dir(input.path("data").join("run")).unwrap();
    assert_says(&input.refused(&forced), &["data: `run` would be lost", "another --out"]);
    fs_err::remove_dir(input.path("data").join("run")).unwrap();

    // Nor anything that `slate prepare` did not make.
    fs_err::remove_file(input.path("data").join("prepare.toml")).unwrap();
    let error = input.refused(&forced);
    assert_says(&error, &["data: is not a prepared folder, so it is not replaced"]);
    assert_eq!(names(input.folder.path()), ["data", "log.csv"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_no_half_data() {
    let input = Input::new();
    // The graph is the largest file.
    let mut prepare = input.prepare_of("log.csv", "32");
    prepare.args(ITEMS).args(["--recall", "0.5"]);
    for (kib, name) in [(1, "interactions.parquet"), (4, "embeddings.safetensors")] {
        assert_says(&refused(&mut limited(kib, &prepare)), &[name, "File too large"]);
        assert_eq!(names(input.folder.path()), ["log.csv"]);
    }
    // What fits is kept: training builds the index when there is room.
    let error = refused(&mut limited(6, &prepare));
    assert_says(&error, &["graph.usearch", "is the disk full?", "is prepared, but has no index"]);
    let data = input.path("data");
    assert_eq!(names(input.folder.path()), ["data", "log.csv"]);
    assert!(!data.join("index").exists());
    let mut searching = train(&data, &input.path("run"));
    stdout(searching.args(["--set", "context.folds=0"]));
    assert_eq!(names(&data.join("index")).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_no_half_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    small_of(&data, 32);
    let with = |run: &Path| {
        let mut command = train(&data, run);
        command.args(["--set", "method.kind=lgp", "--set", "tower.kind=sigmoid-mlp"]);
        command.args(["--set", "evaluation.count=2", "--set", "context.folds=0"]);
        command
    };
    // The tower takes 8 KiB, and so do each of Adam's two moments, once there are any.
    let error = refused(&mut limited(12, &with(&run)));
    assert_says(&error, &["adam.bpk"]);
    assert_eq!(names(&run.join("checkpoints")), ["step-000000000"]);

    let mut resume = slate();
    resume.args(["train", "--resume", "--out"]).arg(&run);
    assert_says(&refused(&mut limited(12, &resume)), &["adam.bpk"]);
    assert_eq!(names(&run.join("checkpoints")), ["step-000000000"]);
    stdout(&mut resume);

    let whole = folder.path().join("whole");
    stdout(&mut with(&whole));
    let rewards = |run: &Path| {
        let rows = fast_slate::training::read_metrics(&run.join("metrics.jsonl")).unwrap();
        let reward = |row| match row {
            fast_slate::training::MetricsRow::Evaluation { step, reward, .. } => {
                Some((step, reward))
            }
            _ => None,
        };
        rows.into_iter().filter_map(reward).collect::<Vec<_>>()
    };
    assert_eq!(rewards(&run), rewards(&whole));
}
