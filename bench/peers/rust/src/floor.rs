//! The floor: what Redis itself allows with a fair order and nothing else. No limits, no leases, no retries.
//!
//! `jobs` maps an identifier to its payload, `g:NAME` lists a group's identifiers, and `groups` holds the
//! groups that have work, the one whose turn is longest ago first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{Connection, Script};
use serde_json::{Value, json};

use crate::{Args, Fallible, PAYLOAD, due, percentiles, ranges, sleep_until, text};

/// ARGV: first identifier, then group and payload of each job.
const ENQUEUE: &str = r"
local id = tonumber(ARGV[1])
local ids, fields = {}, {}
for i = 2, #ARGV, 2 do
  local group, text = ARGV[i], tostring(id)
  local list = ids[group]
  if not list then list = {}; ids[group] = list end
  list[#list + 1] = text
  fields[#fields + 1] = text
  fields[#fields + 1] = ARGV[i + 1]
  id = id + 1
end
redis.call('HSET', 'jobs', unpack(fields))
for group, list in pairs(ids) do
  if redis.call('RPUSH', 'g:' .. group, unpack(list)) == #list then
    redis.call('ZADD', 'groups', redis.call('INCR', 'turn'), group)
  end
end
if redis.call('LLEN', 'wake') == 0 then redis.call('LPUSH', 'wake', 1) end
";

/// ARGV: how many jobs. One of each group in turn; a group that was served goes to the end.
const POP: &str = r"
local want = tonumber(ARGV[1])
local groups = redis.call('ZRANGE', 'groups', 0, want - 1)
if #groups == 0 then return {} end
local share = math.max(1, math.floor(want / #groups))
local lists, longest = {}, 0
local turn = tonumber(redis.call('GET', 'turn'))
local order, gone = {}, {}
for i, group in ipairs(groups) do
  local list = redis.call('LPOP', 'g:' .. group, share)
  lists[i] = list
  if #list > longest then longest = #list end
  if #list < share or redis.call('EXISTS', 'g:' .. group) == 0 then
    gone[#gone + 1] = group
  else
    turn = turn + 1
    order[#order + 1] = turn
    order[#order + 1] = group
  end
end
if #gone > 0 then redis.call('ZREM', 'groups', unpack(gone)) end
if #order > 0 then redis.call('ZADD', 'groups', unpack(order)) end
redis.call('SET', 'turn', turn)
local ids = {}
for round = 1, longest do
  for i = 1, #lists do
    ids[#ids + 1] = lists[i][round]
  end
end
return { ids, redis.call('HMGET', 'jobs', unpack(ids)) }
";

/// ARGV: identifiers of finished jobs.
const ACK: &str = r"
redis.call('INCRBY', 'done', redis.call('HDEL', 'jobs', unpack(ARGV)))
";

struct Client {
    redis: Connection,
    enqueue: Script,
    pop: Script,
    ack: Script,
}

type Batch = (Vec<String>, Vec<String>);

impl Client {
    fn open(url: &str) -> Fallible<Self> {
        let mut redis = redis::Client::open(url)?.get_connection()?;
        let (enqueue, pop, ack) = (Script::new(ENQUEUE), Script::new(POP), Script::new(ACK));
        for script in [&enqueue, &pop, &ack] {
            script.prepare_invoke().load(&mut redis)?;
        }
        Ok(Self {
            redis,
            enqueue,
            pop,
            ack,
        })
    }

    fn enqueue(&mut self, first: usize, jobs: impl Iterator<Item = (String, String)>) -> Fallible<()> {
        let mut call = self.enqueue.arg(first);
        for (group, payload) in jobs {
            call.arg(group).arg(payload);
        }
        Ok(call.invoke(&mut self.redis)?)
    }

    /// Acknowledges the last batch and takes the next in one round trip.
    fn next(&mut self, finished: &[String], want: usize) -> Fallible<Batch> {
        let mut pipe = redis::pipe();
        if !finished.is_empty() {
            pipe.cmd("EVALSHA")
                .arg(self.ack.get_hash())
                .arg(0)
                .arg(finished)
                .ignore();
        }
        pipe.cmd("EVALSHA").arg(self.pop.get_hash()).arg(0).arg(want);
        let (reply,): (Vec<Vec<String>>,) = pipe.query(&mut self.redis)?;
        let mut parts = reply.into_iter();
        Ok((parts.next().unwrap_or_default(), parts.next().unwrap_or_default()))
    }
}

pub fn run(mode: &str, args: &Args) -> Fallible<Value> {
    let chunk = args.get("chunk", 1_000);
    let batch = args.get("batch", 1_000);
    let mut client = Client::open(&args.url)?;
    match mode {
        "enqueue" => {
            let groups = args.get("groups", 100);
            let start = Instant::now();
            for range in ranges(args.jobs(), chunk) {
                let first = range.start;
                client.enqueue(
                    first,
                    range.map(|i| ((i % groups).to_string(), text('A', i, PAYLOAD))),
                )?;
            }
            Ok(json!({ "enqueueSec": start.elapsed().as_secs_f64() }))
        }
        "process" => {
            let start = Instant::now();
            let (mut done, mut finished) = (0, Vec::new());
            loop {
                let (ids, payloads) = client.next(&finished, batch)?;
                done += finished.len();
                if ids.is_empty() {
                    break;
                }
                std::hint::black_box(payloads);
                finished = ids;
            }
            let elapsed = start.elapsed().as_secs_f64();
            if done != args.jobs() {
                return Err(format!("{done} jobs done").into());
            }
            Ok(json!({ "processSec": elapsed }))
        }
        "latency" => latency(client, args),
        "fairness" => {
            let (a, b) = args.customers();
            for (customer, jobs, base) in [('A', a, 0), ('B', b, a)] {
                for range in ranges(jobs, chunk) {
                    let first = base + range.start;
                    client.enqueue(
                        first,
                        range.map(|i| (customer.to_string(), text(customer, i, PAYLOAD))),
                    )?;
                }
            }
            let (mut done, mut last_b, mut finished) = (0, 0, Vec::new());
            loop {
                let (ids, payloads) = client.next(&finished, batch)?;
                if ids.is_empty() {
                    break;
                }
                for payload in payloads {
                    done += 1;
                    if payload.starts_with('B') {
                        last_b = done;
                    }
                }
                finished = ids;
            }
            Ok(json!({ "bDoneAfter": last_b, "of": done }))
        }
        other => Err(format!("no mode {other}").into()),
    }
}

fn latency(mut client: Client, args: &Args) -> Fallible<Value> {
    let (adds, per_sec) = (args.get("adds", 1_000), args.get("rate", 200));
    let starts = Arc::new(Mutex::new(HashMap::new()));
    let worker = {
        let (mut client, starts) = (Client::open(&args.url)?, Arc::clone(&starts));
        std::thread::spawn(move || -> Fallible<()> {
            let mut finished = Vec::new();
            let mut done = 0;
            while done < adds {
                let (ids, payloads) = client.next(&finished, 100)?;
                let now = Instant::now();
                for payload in &payloads {
                    starts
                        .lock()
                        .map_err(|_| "poisoned")?
                        .insert(crate::number(payload), now);
                }
                done += ids.len();
                if ids.is_empty() {
                    redis::cmd("BLPOP")
                        .arg("wake")
                        .arg(1)
                        .query::<Option<(String, String)>>(&mut client.redis)?;
                }
                finished = ids;
            }
            Ok(())
        })
    };
    std::thread::sleep(Duration::from_millis(200));
    let begin = Instant::now();
    let mut added = Vec::new();
    for i in 0..adds {
        sleep_until(due(begin, i, per_sec));
        let payload = text('A', i, PAYLOAD);
        added.push(Instant::now());
        client.enqueue(i, std::iter::once(("A".to_owned(), payload)))?;
    }
    worker.join().map_err(|_| "the worker panicked")??;
    let starts = starts.lock().map_err(|_| "poisoned")?;
    Ok(percentiles(
        added
            .iter()
            .enumerate()
            .map(|(i, t)| (starts[&i] - *t).as_secs_f64() * 1e3)
            .collect(),
    ))
}
