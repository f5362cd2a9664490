// The whole system, second by second: one stream of events that comes back by itself.
//
// While the tab is hidden the stream is closed: a browser allows only a few connections to one server, and tabs
// that nobody looks at would use them up. What was missed is read from the history afterwards.

import { get } from './api.js';
import { serverTime } from './format.js';

const KEPT_MS = 600_000;
/** The server speaks every second; silence means that the connection is dead. */
const SILENCE_MS = 10_000;
const PAUSES_MS = [500, 1_000, 2_000, 5_000, 10_000];

let source = null;
let timer = null;
let failures = 0;
let wanted = false;
let first = true;

const listeners = new Set();
export const seen = { state: 'off', stats: null, samples: [] };

/** Calls `listener` with `seen` whenever it has changed, and once at the beginning. */
export function follow(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener('abort', () => listeners.delete(listener), { once: true });
  listener(seen);
}

function tell() {
  for (const listener of listeners) listener(seen);
}

function become(state) {
  if (seen.state === state) return;
  seen.state = state;
  tell();
}

export function start() {
  wanted = true;
  open();
}

export function stop() {
  wanted = false;
  close();
  become('off');
}

function close() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

function open() {
  close();
  if (!wanted || document.hidden) return;
  if (seen.state === 'off') become('connecting');
  first = true;
  source = new EventSource('/v1/events');
  source.addEventListener('stats', (event) => heard(JSON.parse(event.data)));
  source.addEventListener('open', readHistory);
  source.addEventListener('error', again);
  timer = setTimeout(again, SILENCE_MS);
}

function again() {
  close();
  if (!wanted) return;
  become('reconnecting');
  const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
  failures += 1;
  timer = setTimeout(async () => {
    // A stream that is refused does not say why; a read does, and asks for a key where one is needed.
    await get('/v1/stats').catch(() => {});
    open();
  }, pause);
}

function heard(stats) {
  clearTimeout(timer);
  timer = setTimeout(again, SILENCE_MS);
  failures = 0;
  if (stats.store.available) serverTime(stats.at);
  add(stats);
  seen.stats = stats;
  seen.state = 'live';
  tell();
}

/** A sample like those of the history. */
function add(stats) {
  const at = Date.parse(stats.at);
  // The first event is made for us, between two of the server's looks.
  const made = first;
  first = false;
  if (made || at <= (seen.samples.at(-1)?.at ?? 0)) return;
  keep([{ at, startRate: stats.startRate, globalRps: stats.globalRps, counts: stats.counts }]);
}

function keep(more) {
  const from = (more.at(-1)?.at ?? 0) - KEPT_MS;
  seen.samples = [...seen.samples, ...more].filter((sample) => sample.at >= from);
}

async function readHistory() {
  try {
    const { samples } = await get('/v1/history');
    seen.samples = [];
    keep(samples.map((sample) => ({ ...sample, at: Date.parse(sample.at) })));
    tell();
  } catch {
    // The stream goes on without the past.
  }
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) close();
  else if (wanted) open();
});
