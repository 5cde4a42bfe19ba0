//! What the targets share: files in memory, a limit on what a reader may allocate, and a bundle and a run
//! whose files are replaced. `fuzz.py` makes these and names their folder in `FUZZ_MADE`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tempfile::TempDir;

/// Bytes that any reader may hold.
const ALWAYS: usize = 64 << 20;
/// Bytes that it may hold more, for each byte of what it reads, unpacked.
const EACH: usize = 10;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does all; beside it, bytes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls `read`, which reads so many bytes once they are unpacked. Ends the process if it holds more
/// memory than a reader may.
pub fn limited<T>(unpacked: usize, read: impl FnOnce() -> T) -> T {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let found = read();
    let held = MOST.load(Relaxed).saturating_sub(before);
    if held > ALWAYS + EACH * unpacked {
        eprintln!("{held} bytes were held for {unpacked}");
        std::process::abort();
    }
    found
}

/// Lets panics unwind, for a reader that catches those of a dependency. One that nobody catches
/// still ends the process.
pub fn catching() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// Lets rayon work on this thread alone: to wait for another one takes longer than a small file.
///
/// # Panics
/// If rayon has threads already.
pub fn on_this_thread() {
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    alone.build_global().expect("no threads yet");
}

/// A folder in memory, removed in the end.
///
/// # Panics
/// If there is none.
pub fn folder() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    let folder = if in_memory.is_dir() { TempDir::new_in(in_memory) } else { TempDir::new() };
    folder.expect("a folder for files")
}

/// Writes a file.
///
/// # Panics
/// If it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
}

/// A copy of what `fuzz.py` made: the folder `name` in `FUZZ_MADE`.
///
/// # Panics
/// If it is not there.
pub fn copy_of(name: &str) -> TempDir {
    let made = std::env::var_os("FUZZ_MADE").expect("FUZZ_MADE, which fuzz.py sets");
    let copy = folder();
    copy_all(&PathBuf::from(made).join(name), copy.path());
    copy
}

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("what fuzz.py made") {
        let path = entry.expect("a name").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            std::fs::create_dir(&target).expect("a folder");
            copy_all(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("a file");
        }
    }
}

/// The text of a bundle's manifest with the digest that belongs to `body`.
pub fn manifest(body: &str) -> String {
    format!("{body}\n[digest]\nblake3 = \"{}\"\n", blake3::hash(body.as_bytes()))
}

/// Replaces the file `name` of a bundle, so that its digests are right.
///
/// # Panics
/// If the folder holds no bundle.
pub fn replace(bundle: &Path, name: &str, bytes: &[u8]) {
    write(&bundle.join(name), bytes);
    let path = bundle.join("bundle.toml");
    let mut table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    table.remove("digest");
    let record = &mut table["files"][name];
    record["bytes"] = i64::try_from(bytes.len()).unwrap().into();
    record["blake3"] = blake3::hash(bytes).to_string().into();
    write(&path, manifest(&table.to_string()).as_bytes());
}

/// The bytes that come out of `packed`, up to what any file may unpack to.
pub fn unpacked(packed: impl std::io::Read) -> usize {
    let mut packed = packed.take(ALWAYS as u64);
    let mut piece = [0; 1 << 16];
    let mut total = 0;
    while let Ok(read) = packed.read(&mut piece)
        && read > 0
    {
        total += read;
    }
    total
}
