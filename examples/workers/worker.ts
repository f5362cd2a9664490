// A pull worker for Tidegate in TypeScript, with Node's standard library only.
//
// It leases jobs in batches (a call waits until there is work), runs `handle` for each, extends the leases of long
// runs, and settles in batches. On SIGTERM or Ctrl-C it finishes running jobs, or releases them.
//
//     TIDEGATE_URL=http://127.0.0.1:7171 TIDEGATE_KEY=tg_... node --experimental-strip-types worker.ts --queue default
//
// Node 22 strips the types itself (from 22.18 on without the flag); for Node 20 compile it first. Replace `handle`
// with your work. Jobs run at least once: make the work safe to repeat.

import { hostname } from "node:os";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

/** The job can never succeed: it is dead. */
class Failed extends Error {}

/** The downstream throttles, which uses up no attempt. */
class Throttled extends Error {
  readonly retryAfterMs: number | undefined;

  constructor(retryAfterMs?: number) {
    super(`retry after ${retryAfterMs} ms`);
    this.retryAfterMs = retryAfterMs;
  }
}

interface Job {
  lease: string;
  group: string;
  batch: string;
  id: string;
  type: string;
  priority: "HIGH" | "NORMAL" | "LOW";
  attempt: number;
  deadline: string;
  timeoutMs: number;
  payload: unknown;
}

interface Settlement {
  lease: string;
  outcome: "COMPLETED" | "FAILED" | "THROTTLED" | "RETRY" | "RELEASED";
  result?: unknown;
  error?: string;
  retryAfterMs?: number;
}

/** What the example does, as the payload says. */
interface Orders {
  sleep_ms?: number;
  throttle_ms?: number;
  fail?: string;
  retry?: string;
}

/**
 * Does the work of one job and returns its result, any JSON. Throw `Failed` if it can never succeed, `Throttled` if the
 * downstream is overloaded, anything else if it may succeed later. `lost` signals that the job runs elsewhere.
 */
async function handle(job: Job, lost: AbortSignal): Promise<unknown> {
  const orders: Orders = typeof job.payload === "object" && job.payload !== null ? job.payload : {};
  await sleep(orders.sleep_ms ?? 0, undefined, { signal: lost });
  if (orders.fail !== undefined) throw new Failed(orders.fail);
  if (orders.retry !== undefined && job.attempt === 1) throw new Error(orders.retry);
  if (orders.throttle_ms !== undefined && throttledOnce(job)) throw new Throttled(orders.throttle_ms);
  return { by: "typescript", id: job.id };
}

const throttled = new Set<string>();

/** True the first time a job is seen: throttling uses up no attempt, so the attempt number does not show it. */
function throttledOnce(job: Job): boolean {
  const name = JSON.stringify([job.group, job.id]);
  const first = !throttled.has(name);
  throttled.add(name);
  return first;
}

/** The service refused a call. */
class Refused extends Error {
  readonly status: number;
  readonly retryAfterMs: number;

  constructor(status: number, text: string, retryAfterMs: number) {
    super(text);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

const options = parseArgs({
  options: {
    url: { type: "string", default: process.env.TIDEGATE_URL ?? "http://127.0.0.1:7171" },
    key: { type: "string", default: process.env.TIDEGATE_KEY ?? "" },
    queue: { type: "string", default: "default" },
    name: { type: "string", default: `${hostname()}-${process.pid}` },
    // Jobs at once.
    concurrency: { type: "string", default: "8" },
    // Most jobs of one lease call, up to 1000.
    batch: { type: "string", default: "100" },
    // How long a lease call waits, up to 60000.
    "wait-ms": { type: "string", default: "10000" },
    // How long running jobs may go on after a stop.
    "grace-ms": { type: "string", default: "30000" },
  },
}).values;

const concurrency = Number(options.concurrency);
const waitMs = Number(options["wait-ms"]);
const MAX_CALL = 1000;

async function call<T>(path: string, body: unknown, timeoutMs = 30_000): Promise<T> {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "user-agent": "tidegate-example-worker-ts",
  };
  if (options.key) headers.authorization = `Bearer ${options.key}`;
  const answer = await fetch(`${String(options.url).replace(/\/+$/, "")}${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text) as T;
  let reason = text.slice(0, 200);
  try {
    const problem = JSON.parse(text) as { detail: string; code: string };
    reason = `${problem.detail} (${problem.code})`;
  } catch {
    // Not a problem document: a proxy answered.
  }
  throw new Refused(answer.status, reason, Number(answer.headers.get("retry-after") ?? 0) * 1000);
}

/** The same call may succeed later: every error that is no refusal is a broken connection. */
function isTransient(error: unknown): boolean {
  return !(error instanceof Refused) || [429, 502, 503, 504].includes(error.status);
}

/** Backoff: what the service says, or exponential with jitter. */
function pauses(): (error: unknown) => number {
  let next = 100;
  return (error) => {
    const guess = next * (0.5 + Math.random() / 2);
    next = Math.min(next * 2, 5_000);
    return Math.max(guess, error instanceof Refused ? error.retryAfterMs : 0);
  };
}

function text(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}

interface Held {
  timeoutMs: number;
  extendAt: number;
  lost: AbortController;
}

/** Leased and not settled yet. */
const running = new Map<string, Held>();
const stop = new AbortController();

// Outcomes for the next call; one call at a time, so that they are batched.
let answers: Settlement[] = [];
let settling: Promise<void> | undefined;

function answer(one: Settlement): void {
  answers.push(one);
  settling ??= settle().finally(() => {
    settling = undefined;
  });
}

async function settle(): Promise<void> {
  // Whatever ends at the same moment goes out together.
  await sleep(1);
  while (answers.length > 0) {
    const batch = answers.slice(0, MAX_CALL);
    answers = answers.slice(MAX_CALL);
    const pause = pauses();
    const until = Date.now() + 60_000;
    for (;;) {
      try {
        const { settled } = await call<{ settled: { state: string }[] }>("/v1/leases/settle", { settlements: batch });
        const late = settled.filter((one) => one.state === "STALE").length;
        if (late > 0) console.error(`${late} outcomes were too late; their jobs run elsewhere`);
        break;
      } catch (error) {
        const wait = pause(error);
        if (!isTransient(error) || Date.now() + wait > until) {
          console.error(`could not settle ${batch.length} jobs: ${text(error)}; they run again`);
          break;
        }
        await sleep(wait);
      }
    }
  }
}

let freed: () => void = () => {};

async function work(job: Job, held: Held): Promise<void> {
  const settlement: Settlement = { lease: job.lease, outcome: "COMPLETED" };
  try {
    settlement.result = await handle(job, held.lost.signal);
  } catch (error) {
    if (error instanceof Throttled) {
      settlement.outcome = "THROTTLED";
      if (error.retryAfterMs !== undefined) settlement.retryAfterMs = error.retryAfterMs;
    } else {
      settlement.outcome = error instanceof Failed ? "FAILED" : "RETRY";
      settlement.error = text(error);
    }
  }
  // Released or lost meanwhile: nobody needs the outcome.
  if (running.delete(job.lease)) answer(settlement);
  freed();
}

/** Extends leases after half of the timeout: early enough, as a lease lasts a little longer than the timeout. */
async function extend(): Promise<void> {
  const now = Date.now();
  const due = [...running].filter(([, held]) => held.extendAt <= now).slice(0, MAX_CALL);
  if (due.length === 0) return;
  const by = Math.max(...due.map(([, held]) => held.timeoutMs));
  try {
    const body = { leases: due.map(([lease]) => lease), durationMs: by };
    const { extended } = await call<{ extended: { until?: string }[] }>("/v1/leases/extend", body);
    due.forEach(([lease, held], index) => {
      if (extended[index]?.until !== undefined) {
        held.extendAt = Date.now() + held.timeoutMs / 2;
      } else if (running.delete(lease)) {
        console.error("a lease has expired; its job runs elsewhere");
        held.lost.abort();
      }
    });
  } catch (error) {
    console.error(`could not extend leases: ${text(error)}; retrying`);
  }
}

/** Leases and starts jobs until the stop; a permanent error ends it with 1. */
async function lease(): Promise<number> {
  let pause = pauses();
  while (!stop.signal.aborted) {
    const free = Math.min(concurrency - running.size, Number(options.batch));
    if (free <= 0) {
      await new Promise<void>((resolve) => {
        freed = resolve;
        stop.signal.addEventListener("abort", () => resolve(), { once: true });
      });
      continue;
    }
    const begun = Date.now();
    const request = { queue: options.queue, max: free, waitMs, worker: options.name };
    try {
      // A stop waits for this call: to abort it could strand the jobs that it returns.
      const { jobs } = await call<{ jobs: Job[] }>("/v1/leases", request, 30_000 + waitMs);
      pause = pauses();
      for (const job of jobs) {
        if (stop.signal.aborted) {
          answer({ lease: job.lease, outcome: "RELEASED" });
          continue;
        }
        const held: Held = {
          timeoutMs: job.timeoutMs,
          extendAt: Date.now() + job.timeoutMs / 2,
          lost: new AbortController(),
        };
        running.set(job.lease, held);
        void work(job, held);
      }
      // A stopping service answers at once.
      if (jobs.length === 0 && Date.now() - begun < 100) await sleep(100);
    } catch (error) {
      if (!isTransient(error)) {
        console.error(`cannot work: ${text(error)}`);
        return 1;
      }
      const wait = pause(error);
      console.error(`no work: ${text(error)}; retrying in ${Math.round(wait)} ms`);
      await sleep(wait, undefined, { signal: stop.signal }).catch(() => {});
    }
  }
  return 0;
}

for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => stop.abort());

const extending = setInterval(() => void extend(), 250);
const code = await lease();
// Running jobs may finish within the grace period; the rest is released.
const deadline = Date.now() + Number(options["grace-ms"]);
while (running.size > 0 && Date.now() < deadline) await sleep(20);
clearInterval(extending);
for (const held of [...running.keys()]) {
  running.delete(held);
  answer({ lease: held, outcome: "RELEASED" });
}
while (settling !== undefined) await settling;
process.exit(code);
