//! Proof of work: a visitor's machine computes for a moment before it gets a ticket. That makes a flood expensive. It
//! does not identify anybody.
//!
//! The service stores no challenges: a challenge contains everything, protected by a MAC. A proof is the challenge, a dot
//! and a nonce. SHA-256 over challenge and nonce (as text, without the dot) must begin with the required number of zero
//! bits. Each process accepts a challenge once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_core::ids::RoomId;
use tidegate_core::time::{Millis, Timestamp};

use super::address::AddressBlock;
use super::jwt::encoded;

/// Limit: 2^28 hashes take a phone minutes.
const MOST_BITS: u8 = 28;
/// Limit: how long a challenge may be valid.
const LONGEST: Millis = Millis(3_600_000);
/// Limit: used challenges to remember; beyond it, those that expire next are forgotten.
const MAX_TAKEN: usize = 200_000;
/// Limit: the nonce; 2^64 has 20 digits.
const MAX_NONCE_BYTES: usize = 32;
/// A challenge: hash of the room (16), hash of the address block (16), end (8), bits (1), random (8), MAC (32).
const BODY_BYTES: usize = 49;
const ALL_BYTES: usize = BODY_BYTES + 32;

/// The proof of work that a room requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProofConfig {
    /// Zero bits; each one doubles the work. 18 take a browser about a second.
    pub bits: u8,
    /// How long a challenge is valid, in milliseconds.
    pub lasts_ms: Millis,
}

impl Default for ProofConfig {
    fn default() -> Self {
        Self {
            bits: 18,
            lasts_ms: Millis(120_000),
        }
    }
}

impl ProofConfig {
    /// Checks every value.
    pub fn validate(&self) -> Result<(), String> {
        let Self { bits, lasts_ms } = self;
        if !(1..=MOST_BITS).contains(bits) {
            return Err(format!("bits = {bits}: it must be from 1 to {MOST_BITS}"));
        }
        if !(Millis(1_000)..=LONGEST).contains(lasts_ms) {
            return Err(format!(
                "lasts_ms = {}: it must be from 1000 to {}",
                lasts_ms.0, LONGEST.0
            ));
        }
        Ok(())
    }
}

/// Why a proof is rejected. A new challenge always helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofRefused {
    #[error("not a proof of work; send the challenge, a dot and a nonce")]
    Malformed,
    #[error("the challenge was not issued by this service")]
    Forged,
    #[error("the challenge is for another room")]
    ForeignRoom,
    #[error("the challenge was issued to another address")]
    ForeignAddress,
    #[error("the challenge has expired")]
    Expired,
    #[error("the challenge requires less work than the room does now")]
    TooEasy,
    #[error("the nonce is wrong: the hash does not begin with enough zero bits")]
    NoWork,
    #[error("the challenge was already used")]
    Taken,
}

/// Issues challenges and verifies proofs.
pub struct Proofs {
    /// The first one signs challenges, all of them verify.
    keys: Vec<[u8; 32]>,
    /// Those that expire next come first.
    taken: Mutex<BTreeSet<(Timestamp, [u8; 16])>>,
    most: usize,
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proofs(***)")
    }
}

impl Proofs {
    /// The processes of one service need the same keys, because one verifies what another issued:
    /// `Signer::secrets_for("proof")`, at least one.
    pub fn new(keys: Vec<[u8; 32]>) -> Self {
        Self {
            keys,
            taken: Mutex::default(),
            most: MAX_TAKEN,
        }
    }

    /// Issues a challenge for this address.
    pub fn challenge(
        &self,
        config: &ProofConfig,
        room: &RoomId,
        from: AddressBlock,
        now: Timestamp,
    ) -> Result<String, getrandom::Error> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)?;
        let mut challenge = Vec::with_capacity(ALL_BYTES);
        challenge.extend(place(room, from));
        challenge.extend((now + config.lasts_ms).0.to_be_bytes());
        challenge.push(config.bits);
        challenge.extend(random);
        challenge.extend(signed(&self.keys[0], &challenge).finalize().into_bytes());
        Ok(encoded(challenge))
    }

    /// Verifies a proof, once. It costs one hash.
    pub fn verify(
        &self,
        config: &ProofConfig,
        proof: &str,
        room: &RoomId,
        from: AddressBlock,
        now: Timestamp,
    ) -> Result<(), ProofRefused> {
        let (challenge, nonce) = proof.split_once('.').ok_or(ProofRefused::Malformed)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=MAX_NONCE_BYTES).contains(&nonce.len()) || !nonce.bytes().all(plain) {
            return Err(ProofRefused::Malformed);
        }
        if challenge.len() != ALL_BYTES * 4 / 3 {
            return Err(ProofRefused::Malformed);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(challenge)
            .map_err(|_| ProofRefused::Malformed)?;
        let (body, mac) = bytes
            .split_at_checked(BODY_BYTES)
            .ok_or(ProofRefused::Malformed)?;
        let ours = |key: &[u8; 32]| signed(key, body).verify_slice(mac).is_ok();
        if !self.keys.iter().any(ours) {
            return Err(ProofRefused::Forged);
        }
        let (asked_in, rest) = body.split_at(32);
        let here = place(room, from);
        if asked_in[..16] != here[..16] {
            return Err(ProofRefused::ForeignRoom);
        }
        if asked_in[16..] != here[16..] {
            return Err(ProofRefused::ForeignAddress);
        }
        let mut ends = [0; 8];
        ends.copy_from_slice(&rest[..8]);
        let ends = Timestamp(u64::from_be_bytes(ends));
        if now >= ends {
            return Err(ProofRefused::Expired);
        }
        let bits = rest[8];
        if bits < config.bits {
            return Err(ProofRefused::TooEasy);
        }
        if zeros(challenge, nonce) < u32::from(bits) {
            return Err(ProofRefused::NoWork);
        }
        let mut name = [0; 16];
        name.copy_from_slice(&mac[..16]);
        if self.first_time(ends, name, now) {
            Ok(())
        } else {
            Err(ProofRefused::Taken)
        }
    }

    fn first_time(&self, ends: Timestamp, name: [u8; 16], now: Timestamp) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((first, _)) = taken.first().copied()
            && (first <= now || taken.len() >= self.most)
        {
            taken.pop_first();
        }
        taken.insert((ends, name))
    }
}

fn signed(key: &[u8; 32], body: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.chain_update("tidegate proof").chain_update(body)
}

/// Hashes of the room and of the address block: of fixed length, whatever theirs is.
fn place(room: &RoomId, from: AddressBlock) -> [u8; 32] {
    let mut place = [0; 32];
    place[..16].copy_from_slice(&Sha256::digest(room.as_str())[..16]);
    place[16..].copy_from_slice(&Sha256::digest(from.to_string())[..16]);
    place
}

/// Leading zero bits of the hash.
fn zeros(challenge: &str, nonce: &str) -> u32 {
    let hash = Sha256::new()
        .chain_update(challenge)
        .chain_update(nonce)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(first).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_772_357_400_000);
    const EASY: ProofConfig = ProofConfig {
        bits: 8,
        lasts_ms: Millis(60_000),
    };

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    fn from(text: &str) -> AddressBlock {
        AddressBlock::of(text.parse().unwrap())
    }

    fn challenge(proofs: &Proofs) -> String {
        proofs
            .challenge(&EASY, &room("concert"), from("198.51.100.1"), NOW)
            .unwrap()
    }

    fn solve(challenge: &str, bits: u32) -> String {
        let nonce = (0u64..)
            .find(|nonce| zeros(challenge, &nonce.to_string()) >= bits)
            .unwrap();
        format!("{challenge}.{nonce}")
    }

    fn verify(proofs: &Proofs, proof: &str) -> Result<(), ProofRefused> {
        proofs.verify(&EASY, proof, &room("concert"), from("198.51.100.1"), NOW)
    }

    #[test]
    fn work_is_taken_once() {
        let proofs = Proofs::new(vec![[7; 32]]);
        let given = challenge(&proofs);
        assert_ne!(given, challenge(&proofs));
        assert!(given.len() < 120, "{given}");
        let proof = solve(&given, 8);
        assert_eq!(verify(&proofs, &proof), Ok(()));
        assert_eq!(verify(&proofs, &proof), Err(ProofRefused::Taken));
        // Another nonce for the same challenge is not another proof.
        let other = (1u64 << 40..)
            .find(|nonce| zeros(&given, &nonce.to_string()) >= 8)
            .unwrap();
        assert_eq!(
            verify(&proofs, &format!("{given}.{other}")),
            Err(ProofRefused::Taken)
        );
        // Another process of the same service accepts it.
        assert_eq!(verify(&Proofs::new(vec![[7; 32]]), &proof), Ok(()));
        assert_eq!(
            verify(&Proofs::new(vec![[8; 32]]), &proof),
            Err(ProofRefused::Forged)
        );
    }

    #[test]
    fn a_challenge_outlives_the_key_that_made_it_being_replaced() {
        let old = Proofs::new(vec![[7; 32]]);
        let replaced = Proofs::new(vec![[8; 32], [7; 32]]);
        assert_eq!(verify(&replaced, &solve(&challenge(&old), 8)), Ok(()));
        let proof = solve(&challenge(&replaced), 8);
        assert_eq!(
            verify(&old, &proof),
            Err(ProofRefused::Forged),
            "made with the new one"
        );
    }

    #[test]
    fn it_holds_for_its_room_address_and_time() {
        let proofs = Proofs::new(vec![[7; 32]]);
        let proof = solve(&challenge(&proofs), 8);
        let verify = |config: &ProofConfig, name: &str, address: &str, now: Timestamp| {
            proofs.verify(config, &proof, &room(name), from(address), now)
        };
        let here = "198.51.100.1";
        assert_eq!(
            verify(&EASY, "theatre", here, NOW),
            Err(ProofRefused::ForeignRoom)
        );
        assert_eq!(
            verify(&EASY, "concert", "198.51.100.2", NOW),
            Err(ProofRefused::ForeignAddress)
        );
        let end = NOW + EASY.lasts_ms;
        assert_eq!(verify(&EASY, "concert", here, end), Err(ProofRefused::Expired));
        let harder = ProofConfig { bits: 9, ..EASY };
        assert_eq!(verify(&harder, "concert", here, NOW), Err(ProofRefused::TooEasy));
        let easier = ProofConfig { bits: 1, ..EASY };
        assert_eq!(verify(&easier, "concert", here, Timestamp(end.0 - 1)), Ok(()));
    }

    #[test]
    fn whoever_did_nothing_is_refused() {
        let proofs = Proofs::new(vec![[7; 32]]);
        let given = challenge(&proofs);
        let idle = (0u64..)
            .find(|nonce| zeros(&given, &nonce.to_string()) < 8)
            .unwrap();
        assert_eq!(
            verify(&proofs, &format!("{given}.{idle}")),
            Err(ProofRefused::NoWork)
        );
        for odd in [
            "",
            ".",
            "a.1",
            &given,
            &format!("{given}."),
            &format!("{given}. 1"),
            &format!("{given}.1.2"),
            &format!("{given}.{}", "1".repeat(33)),
            &format!("{given}A.1"),
            &format!("{}+.1", &given[1..]),
        ] {
            assert_eq!(verify(&proofs, odd), Err(ProofRefused::Malformed), "{odd}");
        }
        // The MAC covers every byte: nobody can change the expiry, the bits or the room.
        let bytes = URL_SAFE_NO_PAD.decode(&given).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = format!("{}.1", encoded(changed));
            assert_eq!(verify(&proofs, &changed), Err(ProofRefused::Forged), "byte {at}");
        }
    }

    #[test]
    fn what_was_taken_is_forgotten_at_its_end_and_never_too_much_is_kept() {
        let mut proofs = Proofs::new(vec![[7; 32]]);
        proofs.most = 100;
        for number in 0..1_000u64 {
            let name = u128::from(number).to_be_bytes();
            assert!(proofs.first_time(NOW + Millis(1 + number), name, NOW));
            assert!(!proofs.first_time(NOW + Millis(1 + number), name, NOW));
        }
        assert!(proofs.taken.lock().unwrap().len() <= 100);
        assert!(proofs.first_time(NOW + Millis(9_999), [9; 16], NOW + Millis(5_000)));
        assert_eq!(proofs.taken.lock().unwrap().len(), 1);
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(ProofConfig::default().validate(), Ok(()));
        let bits = ProofConfig { bits: 60, ..EASY }.validate().unwrap_err();
        assert_eq!(bits, "bits = 60: it must be from 1 to 28");
        let lasts_ms = Millis(0);
        assert!(ProofConfig { lasts_ms, ..EASY }.validate().is_err());
    }
}
