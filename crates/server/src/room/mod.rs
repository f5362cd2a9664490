//! Waiting rooms over HTTP: who may come, who has come in, and what they are shown.

pub(crate) mod address;
pub(crate) mod draw;
pub(crate) mod event_service;
pub(crate) mod fail_open;
pub(crate) mod identity_cookie;
pub(crate) mod joins;
mod jwt;
mod keys;
pub(crate) mod module;
pub(crate) mod page;
pub(crate) mod pass;
pub(crate) mod proof;
pub(crate) mod shop;
mod spki;
pub(crate) mod ticket;
pub(crate) mod visitor;
pub(crate) mod visitors;

#[cfg(test)]
mod examples_tests;
