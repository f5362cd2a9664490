// The service under test: the real binary on a free port, with a data folder of its own; a target and a simulated provider
// for it.

import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

const ROOT = resolve(import.meta.dirname, '../..');
const BINARY = resolve(ROOT, process.env.TIDEGATE_BIN ?? 'target/debug/tidegate');
/** The simulated provider is built beside it. */
const UPSTREAM = process.env.TIDEGATE_UPSTREAM ?? join(dirname(BINARY), 'examples/serve');

/** Queues for pull workers, and one target. */
const CONFIG = (data, rps, target) => `
[server]
listen = "127.0.0.1:0"
[store]
data = ${JSON.stringify(data)}
durability = "buffered"
[backpressure]
global_rps = ${rps}
[worker_pool]
max_retry_count = 1
[job_types."mail.send"]
backoff_ms = 50
[job_types."sms.send"]
queue = "sms"
[job_types.step]
queue = "steps"
[queues.sms]
rate = 30
[targets.crm]
url = ${JSON.stringify(target)}
types = ["crm.sync"]
rate = 40
`;

/** Two kinds of records behind one limited API: one is prefetched, the other is soon stale. */
const SOURCES = (upstream) => `
[budgets.game]
hard_limit = 60
rate = 50
burst = 5
low_cap = 40
low_burst = 4
per_day = 4000000
day_reserve = 800000
[sources.character]
url = "${upstream}/character/{key}"
target = "game"
fields = ["character_name", "character_level"]
[sources.guild]
url = "${upstream}/character/{key}"
target = "game"
fields = ["character_guild_name"]
ttl_ms = { hot = 1000, warm = 1000, cold = 1000 }
prefetch = false
[refresh.tiers]
hot_ms = 4000
warm_ms = 4000
cold_ms = 4000
hot_fresh_ms = 8000
warm_fresh_ms = 8000
cold_fresh_ms = 8000
[refresh.prefetch]
tick_ms = 1000
peak_rate = 30
other_rate = 30
[refresh.query]
cache_ttl_ms = 400
[refresh.work]
retries = 1
backoff_ms = 20
[refresh.watch]
lag_every_ms = 500
census_every_ms = 500
follow_every_ms = 100
`;

/** A room of its own for each test that changes one; of the others, one has not opened, two end, one requires a proof of work. */
export const ROOMS = ['concert', 'tabs', 'stage', 'plain', 'seoul', 'looks', 'offline', 'door'];
const WAITING = (shop) =>
  ROOMS.map(
    (room) => `
[rooms.${room}]
capacity = { seats = 500, inside = 4, per_second = 4 }
shop = ${JSON.stringify(shop)}
presence_ms = 6000
grace_ms = 60000
[rooms.${room}.texts.en]
title = "Winter tour"
[rooms.${room}.texts.ko]
title = "겨울 투어"
`,
  ).join('') +
  `
# All visitors of the tests come from one address.
[room.joins]
per_address = 300
address_burst = 300
[rooms.later]
opens_at = "2099-01-01T00:00:00Z"
[rooms.sold]
capacity = { seats = 1, inside = 1, per_second = 4 }
[rooms.shut]
capacity = { inside = 0 }
[rooms.works]
capacity = { inside = 0 }
proof = { bits = 16 }
`;

/** A push target that throttles now and then. */
async function startTarget() {
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    request.resume();
    request.on('end', () => {
      response.writeHead(calls % 12 === 0 ? 429 : 200, {
        'content-type': 'application/json',
        'retry-after': '1',
      });
      response.end('{"taken":true}');
    });
  });
  await new Promise((done) => {
    server.listen(0, '127.0.0.1', done);
  });
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}/jobs`, stop };
}

/** A program that prints its address on its first lines. */
async function startProgram(program, args) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr.on('data', (text) => {
    errors += text;
  });
  const ended = new Promise((done) => {
    child.once('exit', done);
    child.once('error', (error) => {
      errors += error;
      done();
    });
  });
  const url = await new Promise((found, failed) => {
    ended.then(() => failed(new Error(`${program} ended: ${errors}`)));
    createInterface({ input: child.stdout }).on('line', (line) => {
      const address = /http:\/\/\S+/.exec(line)?.[0];
      if (address) found(address);
    });
  });
  return {
    url,
    async stop() {
      child.kill('SIGTERM');
      const force = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await ended;
      clearTimeout(force);
    },
  };
}

/** The simulated provider, with limits of its own; `settings` are those of `crates/upstream`. */
const startUpstream = (settings) => startProgram(UPSTREAM, [JSON.stringify(settings)]);

/** Without `sources` nothing is refreshed; with `shop`, where visitors go, there are waiting rooms. */
export async function startService({ rps = 120, sources = true, shop = null } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-browser-'));
  const config = join(folder, 'tidegate.toml');
  const target = await startTarget();
  const upstream =
    sources &&
    (await startUpstream({
      payload_bytes: 3_000,
      per_second: 60,
      latency_min_ms: 20,
      latency_max_ms: 120,
      change_every_ms: 30_000,
    }));
  const text = CONFIG(join(folder, 'data'), rps, target.url) + (upstream ? SOURCES(upstream.url) : '');
  const rooms = shop ? WAITING(shop) : '';
  await writeFile(config, text + rooms);
  const others = async () => {
    if (upstream) await upstream.stop();
    target.stop();
    await rm(folder, { recursive: true, force: true });
  };
  // What is left running would keep the test program from ending.
  const service = await startProgram(BINARY, ['serve', '--config', config]).catch(async (error) => {
    await others();
    throw error;
  });
  return {
    url: service.url,
    upstream: upstream && client(upstream.url),
    async stop() {
      await service.stop();
      await others();
    },
  };
}

/** Calls the API, and fails on every refusal. */
export function client(url) {
  async function call(method, path, body) {
    const response = await fetch(url + path, {
      method,
      headers: body === undefined ? {} : { 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }
  return {
    get: (path) => call('GET', path),
    post: (path, body = {}) => call('POST', path, body),
    put: (path, body = {}) => call('PUT', path, body),
    patch: (path, body) => call('PATCH', path, body),
    jobs: (
      group,
      batch,
      count,
      { type = 'mail.send', from = 0, seal = false, payload = (n) => ({ to: `user${n}@example.com` }) } = {},
    ) =>
      call(
        'POST',
        `/v1/groups/${encodeURIComponent(group)}/batches/${encodeURIComponent(batch)}/jobs?seal=${seal}`,
        {
          jobs: Array.from({ length: count }, (_, n) => ({
            id: `${batch}-${from + n}`,
            type,
            payload: payload(from + n),
          })),
        },
      ),
  };
}

/** A visitor in the queue without a browser, who sends heartbeats until `gone`. */
export async function startVisitor(url, room) {
  let cookie = '';
  const call = async (method, command, body) => {
    const response = await fetch(`${url}/v1/rooms/${room}/${command}`, {
      method,
      headers: { cookie, ...(body && { 'content-type': 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    const given = response.headers.getSetCookie().map((one) => one.split(';')[0]);
    if (given.length > 0) cookie = given.join('; ');
    if (!response.ok) throw new Error(`${command}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  await call('POST', 'join', {});
  const alive = setInterval(() => call('GET', 'ticket').catch(() => {}), 2_000);
  return {
    ticket: () => call('GET', 'ticket'),
    leave: () => call('POST', 'leave', {}),
    gone: () => clearInterval(alive),
  };
}

/** A pull worker: leases jobs and settles them as `outcome` says, until it is stopped. */
export function startWorker(
  url,
  { queue = 'default', outcome = () => ({ outcome: 'COMPLETED' }), max = 50, pauseMs = 20 } = {},
) {
  const api = client(url);
  let running = true;
  const loop = (async () => {
    while (running) {
      const { jobs } = await api.post('/v1/leases', { queue, max, waitMs: 200, worker: 'browser-test' });
      if (jobs.length > 0) {
        // A moment of work, so that there is something to see as running.
        await new Promise((done) => {
          setTimeout(done, pauseMs);
        });
        await api.post('/v1/leases/settle', {
          settlements: jobs.map((job) => ({ lease: job.lease, ...outcome(job) })),
        });
      }
    }
  })();
  return {
    async stop() {
      running = false;
      await loop;
    },
  };
}

/** Waits until `condition` holds: returns its value, or fails with what it waited for. */
export async function until(what, condition, ms = 180_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const answer = await condition();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`waited ${ms} ms for ${what}`);
    await new Promise((done) => {
      setTimeout(done, 50);
    });
  }
}
