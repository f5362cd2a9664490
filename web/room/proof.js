// The proof of work that a room may require before joining: a nonce whose hash begins with enough zero bits.
//
// The search runs in short slices, so that the page stays responsive. The number of attempts depends on luck, so it
// reports how many it has made and how many are expected on average, never how many remain.

import { prefixHasher } from './sha256.js';

/** How long a slice takes before other tasks of the page may run. */
const SLICE_MS = 12;
/** Attempts between two reads of the clock. */
const ATTEMPTS_PER_CHECK = 250;
/** How often it reports progress. */
const REPORT_MS = 150;

// Browsers throttle the timers of a hidden tab, but not its messages.
const yieldToPage = () =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });

/** Returns the proof for a challenge, or null if `signal` aborted the search. */
export async function solve({ challenge, bits }, report, signal) {
  const hash = prefixHasher(challenge);
  let attempts = 0;
  let reportedAt = -Infinity;
  while (!signal.aborted) {
    const startedAt = performance.now();
    if (startedAt - reportedAt > REPORT_MS) {
      reportedAt = startedAt;
      report({ attempts, expected: 2 ** bits });
    }
    do {
      for (const until = attempts + ATTEMPTS_PER_CHECK; attempts < until; attempts += 1)
        if (Math.clz32(hash(String(attempts))[0]) >= bits) return `${challenge}.${attempts}`;
    } while (performance.now() - startedAt < SLICE_MS);
    await yieldToPage();
  }
  return null;
}
