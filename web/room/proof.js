// The work that a room may ask for before it gives a place: a nonce whose hash begins with enough zero bits.
//
// It is done in slices, so that the page stays alive. How many tries it takes is luck: it reports how many were made
// and how many it takes on average, never how many are left.

import { beginning } from './sha256.js';

/** Work between two breaths of the page. */
const SLICE_MS = 12;
/** Tries between two looks at the clock. */
const TRIES = 250;
/** How often it reports progress. */
const REPORT_MS = 150;

// Unlike timers, messages are not held back in a tab that nobody looks at.
const breath = () =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });

/** The proof for a challenge; null if `signal` has ended the work. */
export async function prove({ challenge, bits }, report, signal) {
  const hash = beginning(challenge);
  let tries = 0;
  let reportedAt = -Infinity;
  while (!signal.aborted) {
    const begun = performance.now();
    if (begun - reportedAt > REPORT_MS) {
      reportedAt = begun;
      report({ tries, likely: 2 ** bits });
    }
    do {
      for (const until = tries + TRIES; tries < until; tries += 1)
        if (Math.clz32(hash(String(tries))[0]) >= bits) return `${challenge}.${tries}`;
    } while (performance.now() - begun < SLICE_MS);
    await breath();
  }
  return null;
}
