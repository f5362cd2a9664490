//! Many calls at once: sends those of one server together, and returns replies in the order of the calls.
//!
//! A failed call stays for the next round. Between two rounds one of them is retried alone with the full
//! timeout: that restores the connection or learns where the keys have moved.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use redis::{RedisResult, Value};

use crate::{Call, Error, Failure, PATIENCE, Request, Server, Servers};

/// Limit: calls sent in one pipeline.
const MAX_TOGETHER: usize = 512;

struct Round<'a> {
    servers: &'a Servers,
    calls: &'a [Call],
    answers: Vec<Option<Value>>,
    /// Whether the call may have run.
    maybe_ran: Vec<bool>,
}

/// How one call of a round ended.
enum Ended {
    Answered(Value),
    /// It did not run.
    Refused,
    MaybeRan,
}

/// Runs all calls; returns their replies in the order of the calls.
pub async fn run_all(servers: &Servers, calls: &[Call]) -> Result<Vec<Value>, Error> {
    let mut round = Round {
        servers,
        calls,
        answers: calls.iter().map(|_| None).collect(),
        maybe_ran: vec![false; calls.len()],
    };
    let begun = Instant::now();
    let mut open: Vec<usize> = (0..calls.len()).collect();
    while !open.is_empty() {
        round.send(&open).await?;
        open.retain(|&index| round.answers[index].is_none());
        let Some(&first) = open.first() else { break };
        if begun.elapsed() > PATIENCE {
            return Err(Error::Unavailable {
                server: "Redis".to_owned(),
                reason: format!(
                    "{} of {} calls were not answered in time",
                    open.len(),
                    calls.len()
                ),
            });
        }
        let call = &calls[first];
        let answer = servers
            .run_again(call.key(), call, round.maybe_ran[first])
            .await?;
        round.answers[first] = Some(answer);
        open.remove(0);
    }
    Ok(round.answers.into_iter().flatten().collect())
}

impl Round<'_> {
    async fn send(&mut self, open: &[usize]) -> Result<(), Error> {
        let mut by_server: HashMap<String, (Arc<Server>, Vec<usize>)> = HashMap::new();
        for &index in open {
            let server = self.servers.holder(self.calls[index].key(), 0)?;
            let entry = by_server.entry(server.name.clone());
            entry.or_insert_with(|| (server, Vec::new())).1.push(index);
        }
        let all = by_server.values().map(|(server, of)| self.send_to(server, of));
        let ended: Vec<_> = join_all(all).await;
        for (index, ended) in ended
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
        {
            match ended {
                Ended::Answered(value) => self.answers[index] = Some(value),
                Ended::Refused => {}
                Ended::MaybeRan => self.maybe_ran[index] = true,
            }
        }
        Ok(())
    }

    /// One part after the other, so that calls on one record keep their order.
    async fn send_to(&self, server: &Server, of: &[usize]) -> Result<Vec<(usize, Ended)>, Error> {
        let mut ended = Vec::with_capacity(of.len());
        let live = match self.servers.live(server).await {
            Ok(live) => live,
            Err(Failure::Fatal(error)) => return Err(error),
            Err(Failure::Redis(..)) => return Ok(ended),
        };
        for part in of.chunks(MAX_TOGETHER) {
            let mut pipeline = redis::pipe();
            pipeline.ignore_errors();
            for &index in part {
                pipeline.add_command(self.calls[index].command(&live, self.maybe_ran[index]));
            }
            let mut connection = live.connection.clone();
            let answers: RedisResult<Vec<RedisResult<Value>>> = pipeline.query_async(&mut connection).await;
            match answers {
                Ok(answers) => {
                    let each = part.iter().zip(answers).map(|(&index, answer)| match answer {
                        Ok(value) => (index, Ended::Answered(value)),
                        Err(_) => (index, Ended::Refused),
                    });
                    ended.extend(each);
                }
                Err(_) => {
                    server.forget(&live).await;
                    ended.extend(part.iter().map(|&index| (index, Ended::MaybeRan)));
                    break;
                }
            }
        }
        Ok(ended)
    }
}
