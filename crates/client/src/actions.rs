//! Actions: open, read, seal, pause, resume, cancel, results.

use http::Method;
use tidegate_api::{Action, Cancelled, Job, OpenAction, Page, Sealed};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::groups::reason;
use crate::pages::{Items, items};

impl Client {
    /// Opens an action that jobs can be fed to. Opening it again changes nothing.
    pub async fn open_action(
        &self,
        group: &str,
        action: &str,
        options: &OpenAction,
    ) -> Result<Action, ClientError> {
        let call = Call::new(Method::PUT, Address::of(&["groups", group, "actions", action]));
        self.call(call.json(options)?).await
    }

    pub async fn action(&self, group: &str, action: &str) -> Result<Action, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "actions", action])))
            .await
    }

    /// Says that an action takes no more jobs, so that it can complete.
    pub async fn seal_action(&self, group: &str, action: &str) -> Result<Sealed, ClientError> {
        let address = Address::of(&["groups", group, "actions", action, "seal"]);
        self.call(Call::post(address).idempotent()).await
    }

    /// Takes an action's jobs out of the order.
    pub async fn pause_action(
        &self,
        group: &str,
        action: &str,
        why: Option<&str>,
    ) -> Result<Action, ClientError> {
        let address = Address::of(&["groups", group, "actions", action, "pause"]);
        self.call(Call::post(address).idempotent().json(&reason(why))?)
            .await
    }

    /// Puts them back.
    pub async fn resume_action(
        &self,
        group: &str,
        action: &str,
        why: Option<&str>,
    ) -> Result<Action, ClientError> {
        let address = Address::of(&["groups", group, "actions", action, "resume"]);
        self.call(Call::post(address).idempotent().json(&reason(why))?)
            .await
    }

    /// Ends every job of an action that is not running.
    pub async fn cancel_action(
        &self,
        group: &str,
        action: &str,
        why: Option<&str>,
    ) -> Result<Cancelled, ClientError> {
        let address = Address::of(&["groups", group, "actions", action, "cancel"]);
        self.call(Call::post(address).json(&reason(why))?).await
    }

    /// One page of an action's jobs with their results, in the order in which they came.
    pub async fn results(
        &self,
        group: &str,
        action: &str,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<Job>, ClientError> {
        let address = Address::of(&["groups", group, "actions", action, "results"]);
        let address = address.ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// All of an action's jobs with their results, page by page.
    pub fn all_results(&self, group: &str, action: &str) -> Items<Job> {
        let (client, group, action) = (self.clone(), group.to_owned(), action.to_owned());
        items(move |cursor, limit| {
            let (client, group, action) = (client.clone(), group.clone(), action.clone());
            async move {
                client
                    .results(&group, &action, cursor.as_deref(), Some(limit))
                    .await
            }
        })
    }
}
