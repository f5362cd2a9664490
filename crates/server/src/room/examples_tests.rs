//! The programs of `examples/shop` accept the passes that the service signs, and no others.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::ticket::{Index, Wave};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{Claims, PassKeysConfig, Signer};

/// A day in 2020 and one in 2100, because the programs use the real clock.
const BEFORE: u64 = 1_577_836_800_000;
const AFTER: u64 = 4_102_444_800_000;

struct Shop {
    folder: tempfile::TempDir,
    signer: Signer,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::open(&PassKeysConfig::default(), folder.path()).unwrap();
        let jwks = signer.jwks().to_string();
        std::fs::write(folder.path().join("jwks.json"), jwks).unwrap();
        Self { folder, signer }
    }

    fn pass(&self, room: &str, at: u64, until: u64) -> String {
        let claims = Claims {
            person: PersonId::new("somebody").unwrap(),
            incarnation: 7,
            wave: Wave(1),
            index: Index(2),
            at: Timestamp(at),
            until: Timestamp(until),
        };
        self.signer.sign(&RoomId::new(room).unwrap(), &claims)
    }

    /// The output of each program: the claims of the pass, or the reason for refusing it.
    fn checked(&self, pass: &str) -> [Result<String, String>; 3] {
        let example = |name: &str| -> PathBuf {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../examples/shop")
                .join(name)
        };
        let run = |program: &str, option: Option<&str>, script: &str| {
            let output = Command::new(program)
                .args(option)
                .arg(example(script))
                .arg(self.folder.path().join("jwks.json"))
                .args(["concert", pass])
                .output()
                .unwrap_or_else(|error| panic!("{program}: {error}"));
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
            match output.status.code() {
                Some(0) => Ok(text(output.stdout)),
                Some(1) => Err(text(output.stderr)),
                _ => panic!("{program}: {}", text(output.stderr)),
            }
        };
        [
            run("node", None, "check-pass.mjs"),
            run("python3", None, "check_pass.py"),
            // Without packages OpenSSL verifies the signature.
            run("python3", Some("-S"), "check_pass.py"),
        ]
    }
}

#[test]
fn the_examples_accept_a_valid_pass() {
    let shop = Shop::new();
    for claims in shop.checked(&shop.pass("concert", BEFORE, AFTER)) {
        assert_eq!(
            claims.unwrap(),
            r#"{"iss":"tidegate","aud":"concert","sub":"somebody","jti":"7.1.2","iat":1577836800,"nbf":1577836770,"exp":4102444800,"wave":1,"index":2}"#
        );
    }
}

#[test]
fn the_examples_say_why_they_refuse() {
    let shop = Shop::new();
    let good = shop.pass("concert", BEFORE, AFTER);
    let [header, claims, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let mut other = shop.pass("theatre", BEFORE, AFTER);
    let forged = format!(
        "{header}.{claims}.{}",
        other.split_off(other.rfind('.').unwrap() + 1)
    );
    let unsigned = format!("{}.{claims}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
    for (pass, reason) in [
        (shop.pass("concert", BEFORE, BEFORE + 300_000), "expired"),
        (shop.pass("concert", AFTER, AFTER + 300_000), "not valid yet"),
        (shop.pass("theatre", BEFORE, AFTER), "for another room"),
        (forged, "bad signature"),
        (format!("{header}.{claims}."), "bad signature"),
        (unsigned, "wrong algorithm"),
        (Shop::new().pass("concert", BEFORE, AFTER), "unknown key"),
        (format!("{header}.{claims}"), "this is not a pass"),
        (format!("{header}.{claims}.{signature}="), "this is not a pass"),
        ("nonsense".to_owned(), "this is not a pass"),
    ] {
        for refused in shop.checked(&pass) {
            let refused = refused.unwrap_err();
            assert!(refused.starts_with(reason), "{reason}: {refused}");
        }
    }
}
