//! Records through the port.

mod budgets;
mod correlation;
mod foreign;
mod metrics;
mod outage;
mod records;
