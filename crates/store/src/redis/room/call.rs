//! One function call on one key that can be resent.

use async_trait::async_trait;
use redis::Cmd;

use super::super::args::Args;
use super::super::eval;
use super::super::scripts::Script;
use super::super::server::Live;
use super::super::servers::{Failure, Request};

/// What precedes the arguments of a call on a room.
#[derive(Debug)]
pub(super) struct Head {
    /// Empty: the server's own.
    pub(super) time: String,
    /// The same for every attempt.
    pub(super) request: String,
    pub(super) signals: String,
    pub(super) room: String,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) key: String,
    /// None for calls that concern no room.
    pub(super) head: Option<Head>,
    pub(super) args: Args,
}

#[async_trait]
impl Request for Call {
    fn command(&self, _: &Live, maybe_ran: bool) -> Cmd {
        let mut command = eval(self.script, &self.key);
        if let Some(head) = &self.head {
            command.arg(&head.time).arg(if maybe_ran { "1" } else { "" });
            command.arg(&head.request).arg(&head.signals).arg(&head.room);
        }
        for bytes in self.args.each() {
            command.arg(bytes);
        }
        command
    }

    async fn prepare(&self, _: &Live) -> Result<(), Failure> {
        Ok(())
    }
}
