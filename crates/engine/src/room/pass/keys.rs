//! The keys that sign passes: PKCS#8 files in a folder, several during a rotation.
//!
//! To rotate a key: add the new file to the folder of every process while `active` names the old key. Then set `active`
//! to the new one. Remove the old file when nothing depends on it any more: the last pass that it signed has expired, and
//! so have identity cookies (a day) and draws, which always use the oldest key.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::room::jwt::encoded;

/// The folder below the data folder, and the file that is created in it.
const FOLDER: &str = "room-keys";
const FILE: &str = "key.pem";
/// The first bytes of an Ed25519 key in PKCS#8 (RFC 8410), before 32 random ones. OpenSSL reads and writes the same.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Which keys sign and verify passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PassKeysConfig {
    /// A folder of PEM files, or one file; `room-keys` in the data folder if absent. Created, with a key, if missing.
    /// Processes of one service need the same keys.
    pub folder: Option<PathBuf>,
    /// The id of the key that signs; that of the newest file if absent. All of them verify; draws use the oldest.
    pub active: Option<String>,
    /// The issuer in passes.
    pub issuer: String,
}

impl Default for PassKeysConfig {
    fn default() -> Self {
        Self {
            folder: None,
            active: None,
            issuer: "tidegate".into(),
        }
    }
}

pub(super) struct Key {
    /// The thumbprint of the public key (RFC 7638).
    pub(super) id: String,
    /// The public key as a JWK writes it.
    pub(super) x: String,
    pub(super) pair: Ed25519KeyPair,
}

impl Key {
    pub(super) fn new(pair: Ed25519KeyPair) -> Self {
        let x = encoded(pair.public_key());
        // The members of the thumbprint, in the order of their names.
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        Self {
            id: encoded(Sha256::digest(members)),
            x,
            pair,
        }
    }
}

/// The loaded keys; at least one.
pub(super) struct Keys {
    /// The one that signs first.
    pub(super) all: Vec<Key>,
    /// The index of the oldest one.
    oldest: usize,
}

impl Keys {
    pub(super) fn active(&self) -> &Key {
        &self.all[0]
    }

    pub(super) fn oldest(&self) -> &Key {
        &self.all[self.oldest]
    }
}

/// Loads all keys. An error names the file and what would be right.
pub(super) fn load(config: &PassKeysConfig, data: &Path) -> Result<Keys, String> {
    let place = config.folder.clone().unwrap_or_else(|| data.join(FOLDER));
    let mut keys = read(&place)?;
    if keys.is_empty() {
        let file = if is_pem(&place) {
            place.clone()
        } else {
            place.join(FILE)
        };
        make(&file).map_err(|error| {
            format!(
                "failed to write a key to {}: {error}; create one with `openssl genpkey -algorithm ed25519`",
                file.display()
            )
        })?;
        // Another process may have been faster: its key counts.
        keys = read(&place)?;
    }
    // The newest signs; of files of one moment the last by name, of keys in one file the first.
    keys.sort_by(|(a, _), (b, _)| b.cmp(a));
    let mut keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
    keys.dedup_by(|a, b| a.id == b.id);
    let at = match &config.active {
        None => 0,
        Some(active) => keys.iter().position(|key| key.id == *active).ok_or_else(|| {
            let known: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
            format!(
                "active = {active:?}: no key in {} has this id; there are: {}",
                place.display(),
                known.join(", ")
            )
        })?,
    };
    if keys.is_empty() {
        return Err(format!("{} holds no key", place.display()));
    }
    let last = keys.len() - 1;
    let active = keys.remove(at);
    keys.insert(0, active);
    Ok(Keys {
        oldest: if at == last { 0 } else { last },
        all: keys,
    })
}

type Found = ((SystemTime, PathBuf), Key);

/// The keys of a folder or a file; none if it does not exist.
fn read(place: &Path) -> Result<Vec<Found>, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let files = match fs::metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(place, &error)),
        Ok(meta) if meta.is_dir() => {
            let entries = fs::read_dir(place).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let entries = entries.map_err(|error| failed(place, &error))?;
            let files = entries.into_iter().map(|entry| entry.path());
            files.filter(|path| is_pem(path)).collect()
        }
        Ok(_) => vec![place.to_owned()],
    };
    let mut keys = Vec::new();
    for file in files {
        let pem = fs::read(&file).map_err(|error| failed(&file, &error))?;
        let meta = fs::metadata(&file).map_err(|error| failed(&file, &error))?;
        let changed = meta.modified().map_err(|error| failed(&file, &error))?;
        if meta.permissions().mode() & 0o077 != 0 {
            tracing::warn!(file = %file.display(), "other users can read this private key; run chmod 600");
        }
        let before = keys.len();
        for key in PrivatePkcs8KeyDer::pem_slice_iter(&pem) {
            let key = key.map_err(|error| failed(&file, &error))?;
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der())
                .map_err(|error| failed(&file, &format!("not an Ed25519 key: {error}")))?;
            keys.push(((changed, file.clone()), Key::new(pair)));
        }
        if keys.len() == before {
            return Err(failed(
                &file,
                &"not a PKCS#8 key (`BEGIN PRIVATE KEY`); create one with `openssl genpkey -algorithm ed25519`",
            ));
        }
    }
    Ok(keys)
}

fn is_pem(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "pem")
}

/// Writes a new key, unless the file exists. Nobody sees a part of it: it gets its name once it is complete.
fn make(file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut key = PKCS8.to_vec();
    key.resize(PKCS8.len() + 32, 0);
    getrandom::fill(&mut key[PKCS8.len()..]).map_err(io::Error::other)?;
    let mut name = [0u8; 8];
    getrandom::fill(&mut name).map_err(io::Error::other)?;
    let draft = folder.join(format!(".{:016x}.draft", u64::from_be_bytes(name)));
    let written = write(&draft, &key).and_then(|()| match fs::hard_link(&draft, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let _ = fs::remove_file(&draft);
    written?;
    File::open(folder)?.sync_all()
}

fn write(draft: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)?;
    let text = STANDARD.encode(key);
    file.write_all(format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n").as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(keys: &Keys) -> Vec<&str> {
        keys.all.iter().map(|key| key.id.as_str()).collect()
    }

    /// The example of RFC 8037, appendix A.3.
    #[test]
    fn the_id_is_the_thumbprint() {
        let seed = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
        let seed = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(seed)
            .unwrap();
        let key = Key::new(Ed25519KeyPair::from_seed_unchecked(&seed).unwrap());
        assert_eq!(key.x, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
        assert_eq!(key.id, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_key_is_made_once_and_for_us_alone() {
        let data = tempfile::tempdir().unwrap();
        let config = PassKeysConfig::default();
        let made = load(&config, data.path()).unwrap();
        let folder = data.path().join(FOLDER);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(FILE))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
        let again = load(&config, data.path()).unwrap();
        assert_eq!(ids(&made), ids(&again));
    }

    #[test]
    fn of_many_processes_at_once_one_makes_the_key() {
        let data = tempfile::tempdir().unwrap();
        let config = PassKeysConfig::default();
        let all = std::thread::scope(|scope| {
            let load = || load(&config, data.path()).unwrap().all.remove(0).id;
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            let ids = threads.into_iter().map(|thread| thread.join().unwrap());
            ids.collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn the_newest_signs_unless_another_is_named() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join(FOLDER);
        let mut config = PassKeysConfig::default();
        let first = load(&config, data.path()).unwrap().all.remove(0).id;
        make(&folder.join("a.pem")).unwrap();
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
        let file = File::options().write(true).open(folder.join("a.pem")).unwrap();
        file.set_modified(later).unwrap();
        fs::write(folder.join("notes.txt"), "not a key").unwrap();
        let keys = load(&config, data.path()).unwrap();
        assert_eq!(keys.all.len(), 2);
        assert_eq!((&keys.all[1].id, &keys.oldest().id), (&first, &first));
        config.active = Some(first.clone());
        let keys = load(&config, data.path()).unwrap();
        assert_eq!((&keys.active().id, &keys.oldest().id), (&first, &first));
        config.active = Some("other".into());
        let error = load(&config, data.path()).err().unwrap();
        assert!(
            error.starts_with("active = \"other\": no key in") && error.contains(&first),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_is_no_key_is_named() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("shop.pem");
        let config = PassKeysConfig {
            folder: Some(file.clone()),
            ..PassKeysConfig::default()
        };
        assert_eq!(
            load(&config, data.path()).unwrap().all.len(),
            1,
            "a file is created, too"
        );
        for (text, problem) in [
            ("", "not a PKCS#8 key"),
            (
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "not an Ed25519 key",
            ),
            ("-----BEGIN PRIVATE KEY-----\nAA", "shop.pem: "),
        ] {
            fs::write(&file, text).unwrap();
            let error = load(&config, data.path()).err().unwrap();
            assert!(error.contains("shop.pem: ") && error.contains(problem), "{error}");
        }
    }
}
