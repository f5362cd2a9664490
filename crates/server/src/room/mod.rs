//! Waiting rooms over HTTP: the routes and the page of visitors, passes for shops, and the commands of operators.

mod cookies;
pub(crate) mod event_service;
pub(crate) mod metrics;
pub(crate) mod module;
pub(crate) mod page;
pub(crate) mod passes;
pub(crate) mod proxies;
pub(crate) mod rooms;
pub(crate) mod ticket;
pub(crate) mod visitors;
pub(crate) mod visits;

#[cfg(test)]
mod examples_tests;
