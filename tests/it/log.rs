//! An acknowledged row survives: a writer that is killed, a segment that is torn, a disk that is full.
//! No row is half there or twice there, and reading changes nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fast_slate::Error;
use fast_slate::bundle::Who;
use fast_slate::log::{Exposure, Feedback, Log, Options, Record, Writer};
use polars::prelude::*;
use serde_json::Value;

use crate::common::{assert_says, limited, names, refused, slate, stdout, table};

fn exposure(at: u64) -> Exposure {
    let number = |place: u64| ((at + place) % 17) as f32 / 4.0 - 2.0;
    let exploring = at % 4 == 1;
    let h: Vec<f32> = (0..4).map(number).collect();
    Exposure {
        request: format!("request-{at}"),
        time: 1_700_000_000_000 + at.cast_signed(),
        bundle: if at < 8 { "old".into() } else { "new".into() },
        vectors: "vectors".into(),
        retrieval: "exact".into(),
        who: Who::Items(vec![format!("item-{}", at % 5)]),
        z: if exploring { (1..5).map(number).collect() } else { h.clone() },
        h,
        sigma: if exploring { 0.5 } else { 0.0 },
        exploring,
        share: 0.25,
        k: 2,
        exclude: Vec::new(),
        exclude_seen: true,
        filter: None,
        allow: Vec::new(),
        deny: Vec::new(),
        filters: Vec::new(),
        slate: vec![format!("item-{}", at % 7), format!("item-{}", 7 + at % 3)],
        scores: vec![1.5, 0.25],
        shards_answered: 1,
        shards: 1,
        fallback: false,
    }
}

fn feedback(at: u64) -> Feedback {
    Feedback {
        request: format!("request-{at}"),
        position: (at % 2) as u32,
        value: at as f64 / 3.0,
        event: format!("event-{at}"),
        time: 1_700_000_500_000 + at.cast_signed(),
    }
}

fn eager() -> Options {
    Options { gather: Duration::ZERO, ..Options::default() }
}

fn open(folder: &Path) -> Writer {
    Writer::open(folder, eager()).unwrap()
}

fn write(folder: &Path, records: &[Record]) {
    open(folder).append(records).unwrap().wait().unwrap();
}

fn read(folder: &Path) -> Log {
    Log::read(&[folder]).unwrap()
}

/// The only segment of a log.
fn segment(folder: &Path) -> PathBuf {
    let mut found = names(folder);
    found.retain(|name| name.contains(".rows"));
    assert_eq!(found.len(), 1, "{found:?}");
    folder.join(found.remove(0))
}

/// The names in a folder with this beginning.
fn named(folder: &Path, start: &str) -> Vec<String> {
    names(folder).into_iter().filter(|name| name.starts_with(start)).collect()
}

#[test]
fn a_torn_or_changed_tail_costs_the_last_row_and_no_other() {
    let root = tempfile::tempdir().unwrap();
    let whole = root.path().join("whole");
    write(&whole, &[exposure(0).into(), exposure(1).into(), feedback(0).into()]);
    let name = segment(&whole).file_name().unwrap().to_owned();
    let before = fs_err::read(segment(&whole)).unwrap().len();
    // Another row in the same segment: as if the same writer had gone on.
    let longer = root.path().join("longer");
    write(
        &longer,
        &[exposure(0).into(), exposure(1).into(), feedback(0).into(), feedback(1).into()],
    );
    let bytes = fs_err::read(segment(&longer)).unwrap();
    assert!(bytes.len() > before + 40);
    let expected = read(&whole);
    assert_eq!((expected.exposures.len(), expected.feedback.len()), (2, 1));

    let keeps = |bytes: &[u8], cut: bool, what: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join(&name), bytes).unwrap();
        assert_eq!(read(folder.path()), expected, "{what}");
        // The next writer makes tables of it, and the segment goes.
        drop(open(folder.path()));
        assert_eq!(read(folder.path()), expected, "{what}, as tables");
        assert!(!folder.path().join(&name).exists());
        let aside = named(folder.path(), "segment-").into_iter().find(|name| name.ends_with("cut"));
        assert_eq!(aside.is_some(), cut, "{what}");
        if let Some(aside) = aside {
            let aside = fs_err::read(folder.path().join(aside)).unwrap();
            assert_eq!(aside, bytes[before..], "{what}");
        }
    };
    for end in before..bytes.len() {
        keeps(&bytes[..end], end > before, &format!("cut at {end}"));
    }
    for at in before..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        keeps(&changed, true, &format!("changed at {at}"));
    }
}

#[test]
fn a_conversion_that_was_killed_anywhere_is_done_again_with_the_same_result() {
    let root = tempfile::tempdir().unwrap();
    let records: Vec<Record> = (0..9)
        .flat_map(|at| [exposure(at).into(), feedback(at).into(), feedback(at / 2).into()])
        .collect();
    write(root.path(), &records);
    let path = segment(root.path());
    let bytes = fs_err::read(&path).unwrap();
    let before = read(root.path());
    assert_eq!((before.exposures.len(), before.feedback.len()), (9, 9));
    assert_eq!(before.repeated.feedback, 9);

    drop(open(root.path()));
    assert!(!path.exists());
    let tables = || -> Vec<(String, Vec<u8>)> {
        let mut found = named(root.path(), "exposures-");
        found.extend(named(root.path(), "feedback-"));
        let read = |name: String| {
            let content = fs_err::read(root.path().join(&name)).unwrap();
            (name, content)
        };
        found.into_iter().map(read).collect()
    };
    let made = tables();
    assert_eq!(made.len(), 2);
    // What repeats an event is gone for good.
    assert_eq!(table(&root.path().join(&made[1].0)).height(), 9);
    let after = read(root.path());
    assert_eq!((&after.exposures, &after.feedback), (&before.exposures, &before.feedback));
    assert_eq!(after.repeated.feedback, 0);

    // Killed after both names, after one, in the middle of the second, and before either.
    for removed in [&[][..], &[1], &[1], &[0, 1]] {
        for &at in removed {
            fs_err::remove_file(root.path().join(&made[at].0)).unwrap();
        }
        fs_err::write(root.path().join(format!(".{}.partial-1-0", made[1].0)), "half").unwrap();
        fs_err::write(&path, &bytes).unwrap();
        assert_eq!(read(root.path()), before);
        drop(open(root.path()));
        assert!(!path.exists());
        assert!(tables() == made, "the tables are others");
        assert_eq!(named(root.path(), "."), Vec::<String>::new());
        assert_eq!(read(root.path()), after);
    }
}

#[test]
fn finished_segments_become_tables_while_rows_come() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 2_000, ..eager() };
    let writer = Writer::open(root.path(), options).unwrap();
    for at in 0..60 {
        let records = [exposure(at).into(), feedback(at).into()];
        writer.append(&records).unwrap().wait().unwrap();
        // Whatever is a table by now and what is not yet: each row once.
        let log = read(root.path());
        assert_eq!(log.exposures.len() as u64, at + 1);
        assert_eq!(log.feedback.len() as u64, at + 1);
        assert_eq!((log.repeated.exposures, log.repeated.feedback), (0, 0));
    }
    assert_eq!(writer.status().rows, 120);
    assert_eq!(writer.status().errors, 0, "{:?}", writer.status());
    drop(writer);
    assert!(named(root.path(), "exposures-").len() > 5);
    assert_eq!(named(root.path(), "segment-").len(), 1);
    assert_eq!(read(root.path()).exposures, (0..60).map(exposure).collect::<Vec<_>>());
}

#[test]
fn a_log_has_one_writer() {
    let root = tempfile::tempdir().unwrap();
    let writer = open(root.path());
    let error = Writer::open(root.path(), eager()).unwrap_err().to_string();
    assert_says(&error, &["another process writes this log", "a folder of its own"]);
    let clone = writer.clone();
    drop(writer);
    Writer::open(root.path(), eager()).unwrap_err();
    clone.append(&[exposure(1).into()]).unwrap().wait().unwrap();
    drop(clone);
    drop(open(root.path()));
    assert_eq!(read(root.path()).exposures, [exposure(1)]);
}

#[test]
fn dropping_a_writer_keeps_what_it_took_and_a_refused_row_takes_nothing_with_it() {
    let root = tempfile::tempdir().unwrap();
    let slow = Options { gather: Duration::from_millis(10), ..Options::default() };
    let writer = Writer::open(root.path(), slow).unwrap();
    let wrong = Feedback { value: f64::NAN, ..feedback(1) };
    let error = writer.append(&[feedback(0).into(), wrong.into()]).unwrap_err();
    assert!(matches!(error, Error::Record { .. }), "{error}");
    let tickets: Vec<_> =
        (0..50).map(|at| writer.append(&[exposure(at).into()]).unwrap()).collect();
    drop(writer);
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    let log = read(root.path());
    assert_eq!(log.exposures, (0..50).map(exposure).collect::<Vec<_>>());
    assert_eq!(log.feedback, []);
}

#[test]
fn a_segment_of_a_newer_version_or_of_something_else_is_refused_and_stays() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &[exposure(0).into()]);
    let path = segment(root.path());
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[0] ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    let error = Writer::open(root.path(), eager()).unwrap_err().to_string();
    assert_says(&error, &[".rows: is no segment of a log"]);
    assert_says(&refused(slate().args(["log", "check"]).arg(root.path())), &["is no segment"]);
    assert_eq!(fs_err::read(&path).unwrap(), bytes);
}

/// What a child of these tests does.
const CHILD: &str = "FAST_SLATE_LOG_CHILD";
/// The folder that it writes.
const FOLDER: &str = "FAST_SLATE_LOG_FOLDER";
/// The number of its first row.
const FIRST: &str = "FAST_SLATE_LOG_FIRST";

/// Starts this program as a child that runs only [`child`].
fn child_command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "log::child", "--ignored", "--nocapture", "--test-threads", "1"]);
    command
}

fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").unwrap();
}

#[test]
#[ignore = "no test, but a process that the tests below start"]
fn child() {
    let Some(what) = std::env::var_os(CHILD) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    if what == "fill" {
        return fill(&folder);
    }
    if what == "open" {
        let writer = open(&folder);
        writer.append(&[exposure(9).into()]).unwrap().wait().unwrap_err();
        return say(&format!("opened, healthy: {}", writer.healthy()));
    }
    // Until it is killed: many rows, and segments and tables all the time.
    let options = Options { segment_bytes: 100_000, queue_bytes: 50_000, ..eager() };
    let writer = Writer::open(&folder, options).unwrap();
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    for at in first.. {
        loop {
            let acknowledged = move |result: Result<(), Error>| {
                result.unwrap();
                say(&format!("ack {at}"));
            };
            match writer.append_then(&[exposure(at).into(), feedback(at).into()], acknowledged) {
                Ok(()) => break,
                Err(Error::Busy { .. }) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Writes until the disk takes no more, and goes on with what fits.
fn fill(folder: &Path) {
    let writer = open(folder);
    let append = |record: Record| {
        let result = writer.append(&[record]).unwrap().wait();
        let health = if writer.healthy() { "healthy" } else { "ill" };
        match result {
            Ok(()) => say(&format!("{health}: ok")),
            Err(error) => say(&format!("{health}: {error}")),
        }
    };
    append(exposure(0).into());
    append(exposure(1).into());
    append(Feedback { request: "x".repeat(100_000), ..feedback(7) }.into());
    append(exposure(2).into());
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_whole_and_once() {
    for place in 0..5_u64 {
        let root = tempfile::tempdir().unwrap();
        let mut acknowledged = Vec::new();
        for round in 0..4_u64 {
            let first = round * 1_000_000;
            let mut command = child_command();
            command.env(CHILD, "write").env(FOLDER, root.path()).env(FIRST, first.to_string());
            let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap());
            // Killed elsewhere each time, then all that it had said before.
            let until = acknowledged.len() as u64 + 1 + (place * 4 + round) * 61;
            let (mut killed, mut line) = (false, String::new());
            while lines.read_line(&mut line).unwrap() > 0 {
                if let Some((_, at)) = line.strip_suffix('\n').unwrap_or("").split_once("ack ") {
                    acknowledged.push(at.parse::<u64>().unwrap());
                }
                if !killed && acknowledged.len() as u64 >= until {
                    child.kill().unwrap();
                    killed = true;
                }
                line.clear();
            }
            child.wait().unwrap();
            assert!(killed, "the child ended by itself");

            let log = read(root.path());
            assert_eq!((log.repeated.exposures, log.repeated.feedback), (0, 0));
            let number = |request: &str| request["request-".len()..].parse::<u64>().unwrap();
            let shown: Vec<u64> = log.exposures.iter().map(|row| number(&row.request)).collect();
            let happened: Vec<u64> = log.feedback.iter().map(|row| number(&row.request)).collect();
            for at in &acknowledged {
                assert!(shown.binary_search(at).is_ok(), "exposure {at} is lost");
                assert!(happened.binary_search(at).is_ok(), "feedback {at} is lost");
            }
            for row in &log.exposures {
                assert_eq!(*row, exposure(number(&row.request)));
            }
            for row in &log.feedback {
                assert_eq!(*row, feedback(number(&row.request)));
            }
        }
        // The next start turns all of it into tables.
        let before = read(root.path());
        drop(open(root.path()));
        assert_eq!(read(root.path()), before);
        assert!(!named(root.path(), "exposures-").is_empty());
    }
}

#[test]
fn a_file_that_may_not_grow_costs_the_row_that_does_not_fit() {
    let root = tempfile::tempdir().unwrap();
    let command = child_command();
    let mut plain = assert_cmd::Command::new(command.get_program());
    plain.args(command.get_args());
    let mut command = limited(64, &plain);
    let said = stdout(command.env(CHILD, "fill").env(FOLDER, root.path()));
    let is_said = |line: &&str| line.contains("healthy: ") || line.contains("ill: ");
    let lines: Vec<&str> = said.lines().filter(is_said).collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[0].ends_with("healthy: ok") && lines[1] == "healthy: ok", "{said}");
    assert_says(lines[2], &["ill: ", "the rows were not written", "File too large"]);
    assert_eq!(lines[3], "healthy: ok");
    let log = read(root.path());
    assert_eq!((log.exposures, log.feedback), ((0..3).map(exposure).collect(), Vec::new()));
    // In the same segment, whose end was cut.
    let size = fs_err::metadata(segment(root.path())).unwrap().len();
    assert!(size < 4_000, "{size} bytes");
}

#[test]
fn a_disk_that_is_full_keeps_no_log_from_opening() {
    let root = tempfile::tempdir().unwrap();
    let records = [exposure(0).into(), exposure(1).into(), feedback(0).into()];
    write(root.path(), &records);
    let (left, before) = (segment(root.path()), read(root.path()));
    let command = child_command();
    let mut plain = assert_cmd::Command::new(command.get_program());
    plain.args(command.get_args());
    let start = || {
        let mut command = limited(0, &plain);
        command.env(CHILD, "open").env(FOLDER, root.path());
        command
    };
    assert_says(&stdout(&mut start()), &["opened, healthy: false"]);
    // Nothing is lost or half there, and the next start with room makes the tables.
    assert_eq!(segment(root.path()), left);
    assert_eq!((read(root.path()), named(root.path(), ".")), (before.clone(), Vec::new()));
    drop(open(root.path()));
    assert!(!left.exists());
    assert_eq!(read(root.path()), before);
    // A segment that is no segment is refused as ever.
    let mut bytes = fs_err::read(segment(root.path())).unwrap();
    bytes[0] ^= 1;
    bytes.push(0);
    fs_err::write(segment(root.path()), bytes).unwrap();
    assert!(!start().output().unwrap().status.success());
}

/// Two replicas: the second holds feedback on answers of the first, and an event of it again.
fn replicas(root: &Path) -> [PathBuf; 2] {
    let [first, second] = ["a", "b"].map(|name| root.join(name));
    let mut records: Vec<Record> = (0..10).map(|at| exposure(at).into()).collect();
    records.extend([feedback(1).into(), feedback(2).into()]);
    let degraded =
        Exposure { fallback: true, slate: vec!["x".into()], scores: vec![0.0], ..exposure(10) };
    let shard = Exposure { shards: 3, shards_answered: 2, ..exposure(11) };
    write(&first, &[records, vec![degraded.into(), shard.into()]].concat());
    let later = Feedback { time: feedback(2).time + 5, value: 9.0, ..feedback(2) };
    let far = Feedback { position: 2, ..feedback(3) };
    let lost = Feedback { request: "nobody's".into(), ..feedback(99) };
    write(&second, &[exposure(20).into(), later.into(), far.into(), lost.into()]);
    [first, second]
}

fn check(paths: &[&Path]) -> Value {
    let text = stdout(slate().args(["log", "check", "--json"]).args(paths));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn logs_are_checked_and_joined_while_they_are_written() {
    let root = tempfile::tempdir().unwrap();
    let [first, second] = replicas(root.path());
    // A server is at work on one, and its segment has rows; the other has tables.
    drop(open(&first));
    let writer = open(&second);
    writer.append(&[exposure(21).into()]).unwrap().wait().unwrap();
    let before = [names(&first), names(&second)];

    let alone = check(&[&second]);
    for (key, value) in [
        ("exposures", 2),
        ("feedback", 3),
        ("unknown_request", 3),
        ("without_feedback", 2),
        ("exploring", 1),
    ] {
        assert_eq!(alone[key], value, "{key}: {alone}");
    }
    let both = check(&[&first, &second]);
    for (key, value) in [
        ("tables", 4),
        ("segments", 2),
        ("cut_bytes", 0),
        ("exposures", 14),
        ("feedback", 4),
        ("exploring", 4),
        ("latent", 4),
        ("degraded", 2),
        ("short", 1),
        ("without_feedback", 11),
        ("unknown_request", 1),
        ("beyond_slate", 1),
    ] {
        assert_eq!(both[key], value, "{key}: {both}");
    }
    assert_eq!(both["repeated"], serde_json::json!({ "exposures": 0, "feedback": 1 }));
    assert_eq!(both["bundles"], serde_json::json!({ "old": 8, "new": 6 }));
    assert_eq!(both["retrievals"], serde_json::json!({ "exact": 14 }));
    assert_eq!(both["times"], serde_json::json!([exposure(0).time, exposure(21).time]));
    let text = stdout(slate().args(["log", "check"]).args([&first, &second]));
    assert_says(
        &text,
        &[
            "exposures         14, 0 repeated",
            "feedback          4, 1 repeated",
            "from … to         2023-11-14 22:13:20 UTC … 2023-11-14 22:13:20 UTC",
            "exploring         4 (28.6 %)",
            "bundle            new: 6 (42.9 %)",
            "the request of 1 rows of feedback",
            "4 answers with z and σ: exact latent importance weights",
            "10 answers without noise: only the value of what was shown",
        ],
    );

    let out = root.path().join("joined");
    let join = |out: &Path| {
        let mut command = slate();
        command.args(["log", "join"]).args([&second, &first]).arg("--out").arg(out);
        command
    };
    assert_says(
        &stdout(&mut join(&out)),
        &["14 exposures, 4 rows", "left out 0 exposures and 1 rows"],
    );
    assert_eq!([names(&first), names(&second)], before);
    assert_eq!(names(&out).len(), 2);
    let joined = read(&out);
    let requests: Vec<&str> = joined.exposures.iter().map(|row| row.request.as_str()).collect();
    let numbers = (0..12).chain([20, 21]).map(|at| format!("request-{at}"));
    assert_eq!(requests, numbers.collect::<Vec<_>>());
    let events: Vec<(&str, f64)> =
        joined.feedback.iter().map(|row| (row.event.as_str(), row.value)).collect();
    assert_eq!(
        events,
        [("event-1", 1.0 / 3.0), ("event-2", 2.0 / 3.0), ("event-3", 1.0), ("event-99", 33.0)]
    );
    let mut again = check(&[&out]);
    let mut expected = both;
    for summary in [&mut again, &mut expected] {
        let summary = summary.as_object_mut().unwrap();
        for key in ["tables", "segments", "repeated"] {
            summary.remove(key).unwrap();
        }
    }
    assert_eq!(again, expected);
    // The same, whatever the order of the folders.
    let other = root.path().join("other");
    stdout(slate().args(["log", "join"]).args([&first, &second]).arg("--out").arg(&other));
    for name in names(&out) {
        let bytes = |folder: &Path| fs_err::read(folder.join(&name)).unwrap();
        assert!(bytes(&out) == bytes(&other), "{name} is another file");
    }
    assert_says(&refused(&mut join(&out)), &["joined: there is something here already"]);

    // As anybody reads them.
    let exposures = table(&out.join(&names(&out)[0]));
    assert_eq!(exposures.height(), 14);
    let z = exposures.column("z").unwrap();
    assert_eq!(z.null_count(), 10);
    assert_eq!(z.dtype(), &DataType::List(Box::new(DataType::Float32)));
    assert_eq!(exposures.column("time").unwrap().dtype(), &DataType::Int64);
}

#[test]
fn what_is_no_log_is_refused_by_what_it_lacks() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("theirs.parquet");
    let columns = vec![
        Column::new("request".into(), ["a"]),
        Column::new("slate".into(), ["1 2 3"]),
        Column::new("propensity".into(), [0.5]),
    ];
    let mut theirs = DataFrame::new_infer_height(columns).unwrap();
    ParquetWriter::new(fs_err::File::create(&path).unwrap()).finish(&mut theirs).unwrap();
    let refuse = |path: &Path| refused(slate().args(["log", "check"]).arg(path));
    assert_says(
        &refuse(&path),
        &[
            "theirs.parquet: is no table of a log that this version reads",
            "for feedback it lacks `position`, `value`, `event`, `time`",
            "For exposures it lacks `time`, `bundle`",
            "Expected is the log of `slate serve`",
        ],
    );
    let empty = root.path().join("empty");
    fs_err::create_dir(&empty).unwrap();
    assert_says(&refuse(&empty), &["empty: holds no log"]);
    assert_says(&refuse(&root.path().join("nowhere")), &["nowhere"]);
    fs_err::write(&path, "no parquet").unwrap();
    assert_says(&refuse(&path), &["theirs.parquet"]);

    // One that has nothing yet is a log.
    drop(open(&empty));
    let nothing = check(&[&empty]);
    assert_eq!((&nothing["exposures"], &nothing["times"]), (&0.into(), &Value::Null));
    assert_says(&stdout(slate().args(["log", "check"]).arg(&empty)), &["nothing was shown"]);
}
