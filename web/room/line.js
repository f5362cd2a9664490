// The connection that holds the place: a stream of events that comes back by itself, and polling where there is none.
//
// A stream that was refused does not say why, so a failed first try is asked again by a plain request. Pauses are
// random: when a server goes, thousands of pages lose it in the same moment, and must not return in the same one.
//
// Where a room asks for work, it is done first, and the place is taken by a plain request too.

import { prove } from './proof.js';

const EVENTS = ['queued', 'position', 'early', 'granted', 'paused', 'resumed'];
/** Failures in a row after which the page polls instead. */
const FAILURES = 3;
/** The stream begins with an event; one that does not is dead. */
const FIRST_MS = 12_000;
/** Heartbeats are not seen here; after this much silence a stream may be dead although no error was reported. */
const SILENCE_MS = 90_000;
/** Silence after which a page that is looked at again does not trust its stream. */
const SUSPECT_MS = 10_000;
const POLL_MS = 5_000;
const POLL_NEAR_MS = 2_000;
const NEAR = 20;
/** Polls after which the stream is tried again. */
const POLLS = 12;

const spread = (ms) => ms * (0.5 + Math.random());

/**
 * `on` has `heard(place)`, `superseded()`, `closed(why)`, `none(late)` if there is no place any more, and whether nothing
 * was heard for longer than one is kept, `refused(problem)`, `unavailable(since)`: since when nothing is heard, or null, and
 * `working(how)`: how far the work before a place is. `asks` is whether the room asks for such work, `keptMs` how long it
 * keeps the place of an absent visitor.
 */
export function line(room, on, asks, keptMs) {
  const name = encodeURIComponent(room);
  let wanted = false;
  let again = false;
  let fresh = false;
  let source = null;
  let timer = null;
  let asking = null;
  let failures = 0;
  let polls = 0;
  let heardAt = Date.now();
  let silentSince = null;
  /** The store is unavailable: nobody knows the place, and a room that may let everybody in then does so by the stream. */
  let unknown = false;
  /** The work that is being done, and what came of it. */
  let work = null;
  let proof = null;
  /** How often a place may still be refused for want of work. */
  let chances = 0;

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
    asking?.abort();
    asking = null;
  }

  function stop() {
    wanted = false;
    close();
    work?.abort();
    work = null;
    proof = null;
    unavailable(null);
  }

  function unavailable(since) {
    if (silentSince === since) return;
    silentSince = since;
    on.unavailable(since);
  }

  function later(ms, work) {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  }

  function heard(place) {
    failures = 0;
    fresh = false;
    unknown = false;
    // From here on it is resumed: a new place is only ever taken by pressing for it.
    again = false;
    heardAt = Date.now();
    unavailable(null);
    on.heard(place);
  }

  function ended(why) {
    stop();
    on.closed(why);
  }

  /** Nothing was heard for so long that the place may be lost, and forgotten. */
  const late = () => Date.now() - heardAt > keptMs;

  function start() {
    close();
    if (!wanted) return;
    // A stream takes a new place where there is none: whoever did not press for one asks for the old one first.
    if (failures >= FAILURES || !window.EventSource || (fresh ? asks : late() && !unknown)) {
      ask();
      return;
    }
    unknown = false;
    source = new EventSource(`/events/${name}/tickets/waiting${again ? '?again=1' : ''}`);
    for (const event of EVENTS)
      source.addEventListener(event, ({ data }) => {
        later(SILENCE_MS + spread(SILENCE_MS / 3), start);
        heard(JSON.parse(data));
      });
    source.addEventListener('superseded', () => {
      stop();
      on.superseded();
    });
    source.addEventListener('closed', ({ data }) => ended(JSON.parse(data)));
    source.addEventListener('error', failed);
    later(FIRST_MS, failed);
  }

  function failed() {
    close();
    if (!wanted) return;
    failures += 1;
    unavailable(silentSince ?? Date.now());
    later(spread(Math.min(8_000, 600 * 2 ** (failures - 1))), fresh ? ask : start);
  }

  async function call(method, address, body) {
    asking?.abort();
    asking = new AbortController();
    return answer(method, address, body, asking.signal);
  }

  async function answer(method, address, body, signal) {
    const response = await fetch(`/v1/rooms/${name}/${address}`, {
      method,
      headers: body ? { 'content-type': 'application/json' } : {},
      body: body && JSON.stringify(body),
      cache: 'no-store',
      signal,
    });
    if (response.ok) return response.json();
    const problem = await response.json().catch(() => ({}));
    throw Object.assign(new Error(problem.detail ?? `the server answered ${response.status}`), {
      status: response.status,
      code: problem.code ?? '',
      afterMs: 1_000 * (Number(response.headers.get('retry-after')) || 0),
    });
  }

  /** One is refused where the page does not know that work is asked for, and one where the work was too old. */
  function chancesAgain() {
    chances = asks ? 1 : 2;
  }

  /** Does the work, and goes on. What is begun lives on when the connection is opened again. */
  async function begin() {
    if (work) return;
    work = new AbortController();
    const { signal } = work;
    try {
      const asked = await answer('GET', 'challenge', null, signal);
      if (asked.challenge) {
        unavailable(null);
        proof = await prove(asked, on.working, signal);
      } else {
        asks = false;
      }
      if (signal.aborted) return;
      work = null;
      start();
    } catch (error) {
      if (signal.aborted) return;
      work = null;
      missed(error);
    }
  }

  /** Asks once, by a plain request; goes on with polls or the stream. */
  async function ask() {
    close();
    if (!wanted) return;
    if (fresh && asks && !proof) {
      begin();
      return;
    }
    try {
      const first = fresh;
      const wish = { again, ...(proof && { proof }) };
      const place = await (first ? call('POST', 'join', wish) : call('GET', 'ticket'));
      if (!wanted) return;
      proof = null;
      const streams = window.EventSource && failures < FAILURES;
      const kept = failures;
      heard(place);
      if (place.state === 'ENDED') {
        ended({ reason: 'ENDED', end: place.end });
        return;
      }
      if (!streams || !first) failures = kept;
      if (streams) {
        start();
        return;
      }
      polls += 1;
      if (polls % POLLS === 0) failures = FAILURES - 1;
      const near = place.state !== 'WAITING' || (place.position ?? Infinity) <= NEAR;
      later((near ? POLL_NEAR_MS : POLL_MS) * (0.9 + 0.2 * Math.random()), start);
    } catch (error) {
      if (error.name === 'AbortError' || !wanted) return;
      missed(error);
    }
  }

  function missed(error) {
    if (error.status === 404 && error.code === 'no_ticket') {
      stop();
      on.none(late());
      return;
    }
    if (error.code === 'proof_needed' && fresh && chances > 0) {
      chances -= 1;
      asks = true;
      proof = null;
      ask();
      return;
    }
    if (error.status >= 400 && error.status < 500 && error.status !== 429) {
      stop();
      on.refused(error);
      return;
    }
    // Too many at once, the store is unavailable, or no network: a place is kept meanwhile, as far as there is one.
    if (error.code?.includes('full')) {
      ended({ reason: 'FULL' });
      return;
    }
    unknown = error.code === 'store_unavailable';
    chancesAgain();
    unavailable(silentSince ?? Date.now());
    later(Math.max(error.afterMs ?? 0, spread(3_000)), fresh ? ask : start);
  }

  /** Tries at once what is waited for; a stream that was quiet for a while is opened again. */
  function wake(suspect = false) {
    if (!wanted) return;
    const quiet = Date.now() - heardAt > SUSPECT_MS;
    if (silentSince !== null || suspect || quiet) start();
  }

  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) wake();
  });
  window.addEventListener('online', () => wake(true));
  window.addEventListener('offline', () => {
    if (wanted) unavailable(silentSince ?? Date.now());
  });
  window.addEventListener('pageshow', (event) => {
    if (event.persisted) wake(true);
  });
  // A page that is left holds no connection; one that comes back opens another.
  window.addEventListener('pagehide', close);

  return {
    /** Takes a place or finds the one there is; `anew` at the end of the line if the last one has ended. */
    open({ join = false, anew = false } = {}) {
      wanted = true;
      fresh = join || anew;
      again = anew;
      unknown = false;
      failures = 0;
      chancesAgain();
      if (fresh) heardAt = Date.now();
      start();
    },
    stop,
    async leave() {
      stop();
      return call('POST', 'leave', {});
    },
    look: () => call('GET', 'ticket'),
  };
}
