use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use super::super::Log;
use super::super::samples::{exposure, feedback};
use super::store::Sink;
use super::*;

fn eager() -> Options {
    Options { gather: Duration::ZERO, ..Options::default() }
}

fn append(writer: &Writer, at: u32) -> Result<()> {
    writer.append(&[exposure(at).into()])?.wait()
}

/// The requests that are in the log, in the order of their numbers.
fn requests(folder: &Path) -> Vec<String> {
    Log::read(&[folder]).unwrap().exposures.into_iter().map(|row| row.request).collect()
}

fn expected(rows: impl IntoIterator<Item = u32>) -> Vec<String> {
    rows.into_iter().map(|at| format!("request-{at}")).collect()
}

/// What a disk does wrong.
#[derive(Default)]
struct Fault {
    append: AtomicBool,
    sync: AtomicBool,
    truncate: AtomicBool,
    create: AtomicBool,
    begun: AtomicUsize,
}

fn full(fault: &AtomicBool) -> io::Result<()> {
    if fault.load(Ordering::SeqCst) {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
    }
    Ok(())
}

struct Faulty(fs::File, Arc<Fault>);

impl Sink for Faulty {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = full(&self.1.append) {
            // A full disk takes a part.
            Sink::append(&mut self.0, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        Sink::append(&mut self.0, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        full(&self.1.sync).and_then(|()| Sink::sync(&mut self.0))
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        full(&self.1.truncate).and_then(|()| Sink::truncate(&mut self.0, length))
    }
}

/// A writer on a disk whose faults can be switched.
fn faulty(folder: &Path) -> (Writer, Arc<Fault>) {
    let fault = Arc::new(Fault::default());
    (on(folder, &fault), fault)
}

fn on(folder: &Path, fault: &Arc<Fault>) -> Writer {
    let of_disk = Arc::clone(fault);
    let create = move |path: &Path| -> io::Result<Box<dyn Sink>> {
        full(&of_disk.create)?;
        of_disk.begun.fetch_add(1, Ordering::SeqCst);
        let file = fs::OpenOptions::new().append(true).create_new(true).open(path)?;
        Ok(Box::new(Faulty(file, Arc::clone(&of_disk))))
    };
    Writer::with(folder, eager(), Box::new(create)).unwrap()
}

fn wait(writer: &Writer, until: &dyn Fn(&Status) -> bool) {
    let started = Instant::now();
    while !until(&writer.status()) {
        assert!(started.elapsed() < Duration::from_mins(1), "{:?}", writer.status());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_disk_that_fails_costs_the_rows_of_its_group_and_the_log_goes_on() {
    type Which = fn(&Fault) -> &AtomicBool;
    let faults: [(&[Which], usize); 5] = [
        // A part was written and taken away: the segment goes on.
        (&[|fault| &fault.append], 1),
        // Nobody knows what is on disk, or the part stays: another segment.
        (&[|fault| &fault.sync], 2),
        (&[|fault| &fault.append, |fault| &fault.truncate], 2),
        (&[|fault| &fault.sync, |fault| &fault.create], 2),
        (&[|fault| &fault.append, |fault| &fault.truncate, |fault| &fault.create], 2),
    ];
    for (which, begun) in faults {
        let root = tempfile::tempdir().unwrap();
        let (writer, fault) = faulty(root.path());
        let switch = |on: bool| {
            for which in which {
                which(&fault).store(on, Ordering::SeqCst);
            }
        };
        append(&writer, 1).unwrap();
        assert!(writer.healthy());
        switch(true);
        for at in [2, 3] {
            let error = append(&writer, at).unwrap_err().to_string();
            assert!(error.contains("the rows were not written: the disk is full"), "{error}");
            assert!(!writer.healthy());
        }
        let status = writer.status();
        assert_eq!((status.rows, status.failed_rows), (1, 2));
        assert_eq!(status.last_error.unwrap(), "the disk is full");
        switch(false);
        append(&writer, 4).unwrap();
        assert!(writer.healthy());
        // Failing again where it failed before costs no segment if nothing is lost.
        assert_eq!(fault.begun.load(Ordering::SeqCst).min(2), begun);
        append(&writer, 5).unwrap();
        assert_eq!(requests(root.path()), expected([1, 4, 5]));
        drop(writer);
        drop(Writer::open(root.path(), eager()).unwrap());
        assert_eq!(requests(root.path()), expected([1, 4, 5]));
    }
}

#[test]
fn a_log_that_nobody_writes_to_becomes_healthy_by_itself_and_keeps_no_byte_of_trying() {
    let root = tempfile::tempdir().unwrap();
    let (writer, fault) = faulty(root.path());
    append(&writer, 1).unwrap();
    fault.append.store(true, Ordering::SeqCst);
    append(&writer, 2).unwrap_err();
    let errors = writer.status().errors;
    wait(&writer, &|status| status.errors > errors);
    fault.append.store(false, Ordering::SeqCst);
    wait(&writer, &|status| status.healthy);
    append(&writer, 3).unwrap();
    drop(writer);
    assert_eq!(requests(root.path()), expected([1, 3]));
    drop(Writer::open(root.path(), eager()).unwrap());
    assert!(list(root.path()).unwrap().iter().all(|(kind, ..)| *kind != Kind::Cut));
}

#[test]
fn a_log_that_opens_on_a_full_disk_takes_rows_once_there_is_room() {
    let root = tempfile::tempdir().unwrap();
    let fault = Arc::new(Fault::default());
    for which in [&fault.create, &fault.append] {
        which.store(true, Ordering::SeqCst);
        let writer = on(root.path(), &fault);
        assert!(!writer.healthy());
        let error = append(&writer, 1).unwrap_err().to_string();
        assert!(error.contains("the rows were not written: the disk is full"), "{error}");
        which.store(false, Ordering::SeqCst);
        wait(&writer, &|status| status.healthy);
    }
    let writer = on(root.path(), &fault);
    append(&writer, 2).unwrap();
    // All that was taken is on disk, and nothing more is taken, although a clone is left.
    writer.clone().close();
    assert_eq!(requests(root.path()), expected([2]));
    append(&writer, 3).unwrap_err();
}

#[test]
fn rows_beyond_the_queue_are_refused_at_once() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { queue_bytes: 2000, ..eager() };
    let writer = Writer::open(root.path(), options).unwrap();
    // The thread that writes waits in a callback until it is let go.
    let (go, gate) = mpsc::channel::<()>();
    let (arrived, waits) = mpsc::channel();
    let block = move |result: Result<()>| {
        result.unwrap();
        arrived.send(()).unwrap();
        let _ = gate.recv();
    };
    writer.append_then(&[exposure(0).into()], block).unwrap();
    waits.recv().unwrap();
    let (mut taken, mut tickets) = (0, Vec::new());
    let error = loop {
        match writer.append(&[exposure(taken + 1).into()]) {
            Ok(ticket) => {
                taken += 1;
                tickets.push(ticket);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Busy { waiting, .. } if waiting <= 2000), "{error}");
    assert!(writer.status().waiting > 0 && !tickets.is_empty());
    go.send(()).unwrap();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(writer.status().waiting, 0);
    // One that is larger than the queue is taken when nothing waits.
    let mut large = feedback(1);
    large.request = "x".repeat(5000);
    writer.append(&[large.into()]).unwrap().wait().unwrap();
    drop(writer);
    assert_eq!(requests(root.path()), expected(0..=taken));
}

#[test]
fn rows_that_wait_are_written_and_synced_once_and_acknowledged_after() {
    struct Told(fs::File, Sender<&'static str>);
    impl Sink for Told {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.1.send("append").unwrap();
            Sink::append(&mut self.0, bytes)
        }
        fn sync(&mut self) -> io::Result<()> {
            Sink::sync(&mut self.0)?;
            self.1.send("sync").unwrap();
            Ok(())
        }
        fn truncate(&mut self, length: u64) -> io::Result<()> {
            Sink::truncate(&mut self.0, length)
        }
    }
    let root = tempfile::tempdir().unwrap();
    let (tell, told) = mpsc::channel();
    let to_sink = tell.clone();
    let create = move |path: &Path| -> io::Result<Box<dyn Sink>> {
        let file = fs::OpenOptions::new().append(true).create_new(true).open(path)?;
        Ok(Box::new(Told(file, to_sink.clone())))
    };
    let writer = Writer::with(root.path(), eager(), Box::new(create)).unwrap();
    // The thread that writes waits in the first callback, so that the others come together.
    let (go, gate) = mpsc::channel::<()>();
    let (arrived, waits) = mpsc::channel();
    let acknowledged = tell.clone();
    let block = move |result: Result<()>| {
        result.unwrap();
        acknowledged.send("acknowledged").unwrap();
        arrived.send(()).unwrap();
        let _ = gate.recv();
    };
    writer.append_then(&[exposure(0).into()], block).unwrap();
    waits.recv().unwrap();
    for at in 1..4 {
        let tell = tell.clone();
        let done = move |result: Result<()>| {
            result.unwrap();
            tell.send("acknowledged").unwrap();
        };
        writer.append_then(&[exposure(at).into()], done).unwrap();
    }
    go.send(()).unwrap();
    drop(writer);
    drop(tell);
    let header = ["append", "sync"];
    let first = ["append", "sync", "acknowledged"];
    let rest = ["append", "sync", "acknowledged", "acknowledged", "acknowledged"];
    let expected = [&header[..], &first, &rest].concat();
    assert_eq!(told.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_callback_that_panics_or_holds_the_writer_ends_nothing() {
    let root = tempfile::tempdir().unwrap();
    let writer = Writer::open(root.path(), eager()).unwrap();
    writer.append_then(&[exposure(1).into()], |_| panic!("of the test")).unwrap();
    append(&writer, 2).unwrap();
    let clone = writer.clone();
    let (sender, receiver) = mpsc::channel();
    let last = move |result: Result<()>| {
        drop(clone);
        sender.send(result).unwrap();
    };
    writer.append_then(&[exposure(3).into()], last).unwrap();
    drop(writer);
    receiver.recv().unwrap().unwrap();
    assert_eq!(requests(root.path()), expected([1, 2, 3]));
}

#[test]
fn options_that_make_answers_wait_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { gather: Duration::from_millis(11), ..Options::default() };
    let error = Writer::open(root.path(), options).unwrap_err().to_string();
    assert!(error.contains("expected at most 10ms, found 11ms"), "{error}");
}
