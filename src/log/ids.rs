//! Request ids: 128 random bits and a code that only holders of a key can make. So a server accepts
//! feedback on the answers of any replica with its key, and on no others, and keeps no table of them.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;

use fs_err as fs;

use crate::error::{Error, Result};
use crate::files::{hex, open_regular, sync_folder};

/// Bytes of each half of an id: 128 bits.
const HALF: usize = 16;

/// The key in a log's folder, and its name until all of it is on disk.
const KEPT: [&str; 2] = ["request-ids.key", "request-ids.key.partial"];

/// The least and the most bytes of a key file.
const FILE: std::ops::RangeInclusive<usize> = 32..=4096;

/// What the key of a file is derived for; BLAKE3 asks for a text that nothing else uses.
const PURPOSE: &str = "fast-slate request ids v1";

/// A key that replicas share.
#[derive(Clone)]
pub struct Key([u8; blake3::KEY_LEN]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Key {
    /// The key of a file, all bytes of which count, the end of its last line too.
    ///
    /// # Errors
    /// [`Error::File`] for a file of fewer than 32 bytes, or of so many that it is no key; an I/O
    /// error naming the file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        open_regular(path)?.take(*FILE.end() as u64 + 1).read_to_end(&mut bytes)?;
        if !FILE.contains(&bytes.len()) {
            let problem = format!(
                "expected a key of {} to {} bytes, found {}; `openssl rand -hex 32` makes one",
                FILE.start(),
                FILE.end(),
                if bytes.len() > *FILE.end() { "more".into() } else { bytes.len().to_string() }
            );
            return Err(Error::file(path, problem));
        }
        Ok(Self(blake3::derive_key(PURPOSE, &bytes)))
    }

    /// The key that the folder of a log keeps, for a server without replicas. A folder without one gets
    /// a new key, which only the owner of the file may read; on a disk that takes no key, the ids are
    /// worth nothing after the server ends. To be called by the writer of the log alone.
    ///
    /// # Errors
    /// The errors of [`from_file`](Self::from_file) for the key that is there.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    pub fn of_log(folder: &Path) -> Result<Self> {
        let path = folder.join(KEPT[0]);
        match Self::from_file(&path) {
            Err(Error::Io(error)) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let secret = hex(&random::<{ blake3::KEY_LEN }>());
        if let Err(error) = keep(folder, &secret) {
            tracing::warn!("{error}; the next start takes no feedback on the slates of this one");
        }
        Ok(Self(blake3::derive_key(PURPOSE, secret.as_bytes())))
    }

    /// A new key, for a server that keeps nothing: its ids are worth nothing after it ends.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[must_use]
    pub fn random() -> Self {
        Self(random())
    }

    /// A new id: 64 hexadecimal digits.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[must_use]
    pub fn issue(&self) -> String {
        let nonce: [u8; HALF] = random();
        let code = self.code(&nonce);
        hex(&[&nonce[..], &code.as_bytes()[..HALF]].concat())
    }

    /// True for an id that a holder of this key issued. Takes as long for any other.
    #[must_use]
    pub fn verify(&self, id: &str) -> bool {
        let Some(bytes) = digits(id) else { return false };
        let (nonce, code) = bytes.split_at(HALF);
        let mut given = [0; blake3::OUT_LEN];
        given[..HALF].copy_from_slice(code);
        // Hashes compare in constant time: the place of the first wrong byte does not show.
        self.code(nonce) == blake3::Hash::from_bytes(given)
    }

    /// The code of a nonce, 128 bits and zeros. BLAKE3 with a key is a MAC by design: it needs no HMAC
    /// around it, since it cannot be extended.
    fn code(&self, nonce: &[u8]) -> blake3::Hash {
        let mut code = *blake3::keyed_hash(&self.0, nonce).as_bytes();
        code[HALF..].fill(0);
        blake3::Hash::from_bytes(code)
    }
}

/// Writes the key of a log, which has its name once all of it is on disk.
fn keep(folder: &Path, secret: &str) -> Result<()> {
    let [path, partial] = KEPT.map(|name| folder.join(name));
    // A writer that was killed left it.
    let _ = fs::remove_file(&partial);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    fs::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&partial)?;
    file.write_all(secret.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, &path)?;
    sync_folder(folder)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

/// The bytes of an id; an id has one spelling, in lower case.
fn digits(id: &str) -> Option<[u8; 2 * HALF]> {
    let mut bytes = [0; 2 * HALF];
    if id.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(id.as_bytes().chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_the_key_are_accepted() {
        let (key, other) = (Key::random(), Key::random());
        let id = key.issue();
        assert_eq!(id.len(), 64);
        assert!(key.verify(&id) && key.clone().verify(&id));
        assert!(!other.verify(&id));
        assert_ne!(key.issue(), id);
        for at in 0..64 {
            for digit in "0123456789abcdef".chars() {
                let mut forged = id.clone();
                forged.replace_range(at..=at, &digit.to_string());
                assert_eq!(key.verify(&forged), forged == id, "{forged}");
            }
        }
        let mixed = format!("{}{}", &id[..32], &key.issue()[32..]);
        let upper = id.to_uppercase();
        let long = format!("{id}0");
        let wide = format!("{}é", &id[..62]);
        for forged in ["", "0", &id[..63], &id[1..], &mixed, &upper, &long, &wide, &"é".repeat(32)]
        {
            assert_eq!(key.verify(forged), forged == id, "{forged}");
        }
        assert!(!format!("{key:?}").contains(&hex(&key.0)));
    }

    #[test]
    fn replicas_share_the_key_of_a_file_and_a_short_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = |bytes: &[u8]| {
            fs_err::write(&path, bytes).unwrap();
            Key::from_file(&path)
        };
        let (first, second) = (key(&[7; 32]).unwrap(), key(&[7; 32]).unwrap());
        assert!(second.verify(&first.issue()));
        assert!(!key(&[8; 32]).unwrap().verify(&first.issue()));
        assert!(!key(&[7; 33]).unwrap().verify(&first.issue()));
        for (length, found) in [(0, "found 0;"), (31, "found 31;"), (4097, "found more;")] {
            let error = key(&vec![7; length]).unwrap_err().to_string();
            assert!(error.contains("key: expected a key of 32 to 4096 bytes"), "{error}");
            assert!(error.contains(found), "{error}");
        }
        assert!(Key::from_file(folder.path()).is_err());
    }

    #[test]
    fn the_folder_of_a_log_keeps_a_key_that_others_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        let id = Key::of_log(folder.path()).unwrap().issue();
        assert!(Key::of_log(folder.path()).unwrap().verify(&id));
        let path = folder.path().join(KEPT[0]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "short").unwrap();
        assert!(Key::of_log(folder.path()).is_err());
        // What a writer that was killed left is no key.
        fs::rename(&path, folder.path().join(KEPT[1])).unwrap();
        assert!(!Key::of_log(folder.path()).unwrap().verify(&id));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
