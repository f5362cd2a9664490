//! Push: calls a target for each job, and a callback when a batch ends.
//!
//! The service calls only configured URLs, and signs calls by the Standard Webhooks specification.

mod budget;
mod call;
mod callback;
mod sign;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use budget::Budget;
pub(crate) use call::{client, describe};
pub(crate) use callback::Callbacks;
use target::{Defaults, Push, Target};
use tidegate_core::bulk::views::QueueView;
use tidegate_core::clock::Clock;
use tidegate_core::ids::QueueId;
use tidegate_engine::bulk::BulkServiceBuilder;

use crate::config::Config;
use crate::refresh::PushBudgets;

/// All targets of the configuration, with the history of their calls.
#[derive(Default)]
pub(crate) struct Targets(BTreeMap<QueueId, Arc<Target>>);

impl Targets {
    /// Checks the settings. The error names the setting and what is wrong with it.
    pub(crate) fn new(
        config: &Config,
        client: &reqwest::Client,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let defaults = Defaults {
            rps: config.backpressure.global_rps.per_second(),
            max_result: config.limits.max_result_bytes,
        };
        let mut targets = BTreeMap::new();
        for (name, target) in &config.targets {
            let what = format!("targets.{name}");
            let own = match target.budget {
                Some(_) => Some(call::punctual_client()?),
                None => None,
            };
            let address = call::Address::new(
                own.as_ref().unwrap_or(client),
                &what,
                &target.url,
                target.secret.as_deref(),
                &target.headers,
            )?;
            let target = Target::new(name, target, address, clock.clone(), defaults);
            targets.insert(name.clone(), Arc::new(target));
        }
        Ok(Self(targets))
    }

    /// Registers the targets as handlers of the engine. `budgets` is `None` if the configuration has none.
    pub(crate) fn register(
        &self,
        config: &Config,
        budgets: Option<&PushBudgets>,
        mut engine: BulkServiceBuilder,
    ) -> BulkServiceBuilder {
        for (name, target) in &self.0 {
            engine = engine.gate(name.clone(), target.gate.clone());
            let settings = &config.targets[name];
            for kind in &settings.types {
                let budget = settings.budget.clone().zip(budgets.cloned());
                let push = Push {
                    target: target.clone(),
                    budget: budget.map(|(target, budgets)| Budget::new(target, budgets)),
                };
                engine = engine.handler(kind.clone(), push);
            }
        }
        engine
    }

    /// The target that gets the jobs of this queue.
    pub(crate) fn of_queue(&self, queue: &QueueId) -> Option<&str> {
        self.0.get_key_value(queue).map(|(name, _)| name.as_str())
    }

    /// One target, with the configured rates.
    pub(crate) fn view(&self, queue: &QueueId) -> Option<tidegate_api::Target> {
        self.0.get(queue).map(|target| target.view(None))
    }

    /// All targets, with the current rates of their queues.
    pub(crate) fn views(&self, queues: &[QueueView]) -> Vec<tidegate_api::Target> {
        let view = |(name, target): (&QueueId, &Arc<Target>)| {
            target.view(queues.iter().find(|queue| queue.id == *name))
        };
        self.0.iter().map(view).collect()
    }

    pub(crate) fn enable(&self, queue: &QueueId) {
        if let Some(target) = self.0.get(queue) {
            target.gate.open();
        }
    }

    pub(crate) fn disable(&self, queue: &QueueId, reason: String) {
        if let Some(target) = self.0.get(queue) {
            target.gate.close(reason);
        }
    }
}
