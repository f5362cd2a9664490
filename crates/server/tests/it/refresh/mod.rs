//! Records through the port.

mod budgets;
mod foreign;
mod metrics;
mod outage;
mod records;
