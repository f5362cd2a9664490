//! Who may come into a waiting room, and who has come in: passes, visitors and what keeps floods out.

#![allow(dead_code, reason = "wired up with the routes")]

pub(crate) mod address;
pub(crate) mod draw;
pub(crate) mod event_service;
pub(crate) mod joins;
mod jwt;
mod keys;
pub(crate) mod pass;
pub(crate) mod proof;
mod spki;
pub(crate) mod visitor;

#[cfg(test)]
mod examples_tests;
