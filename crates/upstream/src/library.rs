//! All bodies below the head, built before the first call: building one during a test would delay other calls and
//! bunch their arrivals.

use std::io;

use bytes::Bytes;
use tidegate_core::rng::Rng;

use crate::document::{head, sections};
use crate::piece::{Part, Piece};
use crate::text_number::number_of;

/// Revisions take turns with this many bodies of a key.
const TURNS: u64 = 2;
/// How many orders of the nested fields there are.
const ORDERS: u64 = 2;

#[derive(Debug)]
pub(crate) struct Library {
    payload_bytes: usize,
    bodies: usize,
    /// By body, turn and order.
    all: Vec<Vec<(&'static str, Piece)>>,
}

impl Library {
    pub(crate) fn new(payload_bytes: usize, bodies: usize) -> io::Result<Self> {
        let bodies = bodies.max(1);
        let mut all = Vec::new();
        for body in 0..bodies as u64 * TURNS {
            for order in 0..ORDERS {
                let made = sections(body, payload_bytes, &mut Rng::new(order));
                let pieces = made.into_iter().map(|(name, text)| Ok((name, Piece::new(text)?)));
                all.push(pieces.collect::<io::Result<_>>()?);
            }
        }
        Ok(Self {
            payload_bytes,
            bodies,
            all,
        })
    }

    pub(crate) fn fits(&self, payload_bytes: usize, bodies: usize) -> bool {
        self.payload_bytes == payload_bytes && self.bodies == bodies.max(1)
    }

    /// One answer for `key`; `order` decides how its fields are mixed.
    pub(crate) fn parts(&self, key: &str, revision: u64, moment: &str, order: &mut Rng) -> Vec<Part<'_>> {
        let number = number_of(key);
        let body = (number % self.bodies as u64) * TURNS + revision % TURNS;
        let sections = &self.all[(body * ORDERS + order.below(ORDERS)) as usize];
        let mut pieces: Vec<Part<'_>> = sections.iter().map(|(_, piece)| Part::Ready(piece)).collect();
        order.shuffle(&mut pieces);
        let head = head(key, number, revision, moment, order);
        let mut parts = vec![Part::Fresh(Bytes::from(format!("{{{head}")))];
        parts.append(&mut pieces);
        parts.push(Part::Fresh(Bytes::from_static(b"}")));
        parts
    }
}
