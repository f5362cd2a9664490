//! The draw: the order of those who joined before the room opened.
//!
//! Each opening has its own seed, so a published one says nothing about the next opening of a room of the same name.
//!
//! The order depends only on the secret seed and on the person's id. Nobody can choose either once the seed is fixed.
//! The operator publishes [`commitment`] before the opening and the seed after it. Then everybody can recompute the
//! order and verify that nobody changed it afterwards.

use sha2::{Digest, Sha256};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::time::Timestamp;

/// Bits of a draw: exact in every backend.
const BITS: u32 = 52;

/// The secret from which the seeds of one room derive. It is never published.
pub struct DrawSecret(Sha256);

impl std::fmt::Debug for DrawSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DrawSecret(***)")
    }
}

impl DrawSecret {
    pub fn new(secret: [u8; 32], room: &RoomId) -> Self {
        let length = (room.as_str().len() as u64).to_be_bytes();
        let hash = Sha256::new().chain_update(secret).chain_update(length);
        Self(hash.chain_update(room.as_str()))
    }

    /// The seed of the draw of an opening.
    pub fn seed(&self, opens_at: Option<Timestamp>) -> [u8; 32] {
        let mut hash = self.0.clone();
        if let Some(at) = opens_at {
            hash.update(at.0.to_be_bytes());
        }
        hash.finalize().into()
    }
}

/// Smaller goes first: the first 52 bits of SHA-256 over the seed and the person's id. Below 2^52.
pub fn draw(seed: &[u8; 32], person: &PersonId) -> u64 {
    let hash = Sha256::new()
        .chain_update(seed)
        .chain_update(person.as_str())
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(first) >> (u64::BITS - BITS)
}

/// What an operator can publish of the seed before the opening: its SHA-256 in hex.
pub fn commitment(seed: &[u8; 32]) -> String {
    Sha256::digest(seed)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn people(many: usize) -> Vec<PersonId> {
        (0..many)
            .map(|number| PersonId::new(format!("person-{number}")).unwrap())
            .collect()
    }

    /// What an auditor runs, who has the published seed, the commitment and the people, and none of our code.
    const AUDIT: &str = r#"
import hashlib, sys
seed, commitment, *people = sys.stdin.read().split()
seed = bytes.fromhex(seed)
assert hashlib.sha256(seed).hexdigest() == commitment, "another seed"
draw = lambda person: int(hashlib.sha256(seed + person.encode()).hexdigest()[:13], 16)
print("\n".join(sorted(people, key=draw)))
"#;

    #[test]
    fn anybody_can_work_out_the_order_again() {
        let seed = [0xa5; 32];
        let mut people = people(1_000);
        let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut input = format!("{hex}\n{}\n", commitment(&seed));
        for person in &people {
            input.push_str(&format!("{person}\n"));
        }
        let mut python = Command::new("python3")
            .args(["-c", AUDIT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success());
        let theirs = String::from_utf8(output.stdout).unwrap();
        people.sort_by_key(|person| draw(&seed, person));
        let ours: Vec<&str> = people.iter().map(PersonId::as_str).collect();
        assert_eq!(theirs.lines().collect::<Vec<_>>(), ours);
    }

    #[test]
    fn nobody_is_first_with_every_seed() {
        let people = people(10);
        let mut first = [0u32; 10];
        for seed in 0..1_000u16 {
            let seed: [u8; 32] = Sha256::digest(seed.to_be_bytes()).into();
            let draws: Vec<u64> = people.iter().map(|person| draw(&seed, person)).collect();
            assert!(draws.iter().all(|draw| *draw < 1 << 52));
            let smallest = draws.iter().min().unwrap();
            first[draws.iter().position(|draw| draw == smallest).unwrap()] += 1;
        }
        assert!(first.iter().all(|times| (60..150).contains(times)), "{first:?}");
    }

    #[test]
    fn a_published_seed_says_nothing_about_the_next_opening() {
        let room = |name: &str| RoomId::new(name).unwrap();
        let hall = DrawSecret::new([7; 32], &room("hall"));
        let mut seeds = vec![hall.seed(None)];
        for at in [1, 2, 1_790_000_000_000] {
            seeds.push(hall.seed(Some(Timestamp(at))));
            seeds.push(DrawSecret::new([7; 32], &room("hal")).seed(Some(Timestamp(at))));
            seeds.push(DrawSecret::new([8; 32], &room("hall")).seed(Some(Timestamp(at))));
        }
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), seeds.len(), "each has its own");
        let again = DrawSecret::new([7; 32], &room("hall"));
        assert_eq!(again.seed(Some(Timestamp(2))), hall.seed(Some(Timestamp(2))));
    }

    #[test]
    fn the_commitment_is_the_hash_of_the_seed() {
        let known = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925";
        assert_eq!(commitment(&[0; 32]), known);
    }
}
