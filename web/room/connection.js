// Keeps the visitor's ticket up to date: by a stream of events that reconnects, or by polling if streams fail.
//
// A browser does not say why the server refused a stream, so a plain request follows a failed first attempt. Delays
// are random: when a server stops, thousands of pages lose it at the same moment and must not return all at once.
//
// If the room requires a proof of work, the page solves the challenge first and joins by a plain request.

import { solve } from './proof.js';

const TICKET_EVENTS = ['queued', 'position', 'early', 'granted', 'paused', 'resumed'];
/** Consecutive failures after which the page polls instead. */
const MAX_STREAM_FAILURES = 3;
/** A stream starts with an event; without one in this time it is dead. */
const FIRST_EVENT_TIMEOUT_MS = 12_000;
/** Scripts do not see heartbeats: a stream without events for this long may be dead although the browser reported no error. */
const STREAM_TIMEOUT_MS = 90_000;
/** When the visitor returns to the tab, a stream without events for this long is opened again. */
const STALE_MS = 10_000;
const POLL_MS = 5_000;
const POLL_NEAR_FRONT_MS = 2_000;
/** Up to this position the page polls more often. */
const NEAR_FRONT = 20;
/** Polls after which the page tries the stream again. */
const POLLS_BEFORE_STREAM = 12;

const jitter = (ms) => ms * (0.5 + Math.random());

/**
 * Creates the connection to a room. It does nothing until `open`.
 *
 * `handlers`:
 * - `onTicket(ticket)`: the ticket changed, or was read again.
 * - `onSuperseded()`: another tab follows the ticket now.
 * - `onClosed({ reason, end })`: the stream ended for good.
 * - `onNoTicket(pastGrace)`: the server has no ticket of this visitor; `pastGrace` says whether the page was disconnected
 *   for longer than the grace period.
 * - `onRefused(problem)`: the server refused the request, and another attempt would not help.
 * - `onDisconnected(since)`: the time of the disconnect, or null when connected again.
 * - `onProofProgress(progress)`: the progress of the proof of work.
 *
 * `needsProof` says whether joining needs a proof of work. `graceMs` is how long a disconnected visitor keeps the ticket.
 */
export function createConnection(room, handlers, { needsProof, graceMs }) {
  const name = encodeURIComponent(room);
  let active = false;
  /** The visitor asked for a new ticket after the last one ended. */
  let rejoin = false;
  /** The visitor asked to join, and the server has not answered yet. */
  let joining = false;
  let source = null;
  let timer = null;
  let request = null;
  let failures = 0;
  let polls = 0;
  let lastTicketAt = Date.now();
  let disconnectedSince = null;
  /** The store cannot read the ticket. A room that fails open admits visitors by the stream, so the page uses that. */
  let storeUnavailable = false;
  /** Aborts the proof of work in progress. */
  let solving = null;
  let proof = null;
  /** How often the server may still reject a join for a missing or expired proof. */
  let proofRetries = 0;

  function disconnect() {
    clearTimeout(timer);
    source?.close();
    source = null;
    request?.abort();
    request = null;
  }

  function stop() {
    active = false;
    disconnect();
    solving?.abort();
    solving = null;
    proof = null;
    setDisconnected(null);
  }

  function setDisconnected(since) {
    if (disconnectedSince === since) return;
    disconnectedSince = since;
    handlers.onDisconnected(since);
  }

  function schedule(ms, task) {
    clearTimeout(timer);
    timer = setTimeout(task, ms);
  }

  function receive(ticket) {
    failures = 0;
    joining = false;
    storeUnavailable = false;
    // From here on the page only resumes this ticket. A new one needs another click.
    rejoin = false;
    lastTicketAt = Date.now();
    setDisconnected(null);
    handlers.onTicket(ticket);
  }

  function finish(closed) {
    stop();
    handlers.onClosed(closed);
  }

  /** Whether the page was disconnected for so long that the ticket may have been lost and deleted. */
  const pastGrace = () => Date.now() - lastTicketAt > graceMs;

  function connect() {
    disconnect();
    if (!active) return;
    // A stream takes a new ticket if there is none. Unless the visitor asked to join, the page reads the old ticket first.
    const needsRequest = joining ? needsProof : pastGrace() && !storeUnavailable;
    if (failures >= MAX_STREAM_FAILURES || !window.EventSource || needsRequest) {
      requestTicket();
      return;
    }
    storeUnavailable = false;
    source = new EventSource(`/events/${name}/tickets/waiting${rejoin ? '?again=1' : ''}`);
    for (const event of TICKET_EVENTS)
      source.addEventListener(event, ({ data }) => {
        schedule(STREAM_TIMEOUT_MS + jitter(STREAM_TIMEOUT_MS / 3), connect);
        receive(JSON.parse(data));
      });
    source.addEventListener('superseded', () => {
      stop();
      handlers.onSuperseded();
    });
    source.addEventListener('closed', ({ data }) => finish(JSON.parse(data)));
    source.addEventListener('error', onStreamError);
    schedule(FIRST_EVENT_TIMEOUT_MS, onStreamError);
  }

  function onStreamError() {
    disconnect();
    if (!active) return;
    failures += 1;
    setDisconnected(disconnectedSince ?? Date.now());
    schedule(jitter(Math.min(8_000, 600 * 2 ** (failures - 1))), joining ? requestTicket : connect);
  }

  /** Sends a request and aborts the one before. */
  async function send(method, path, body) {
    request?.abort();
    request = new AbortController();
    return fetchJson(method, path, body, request.signal);
  }

  async function fetchJson(method, path, body, signal) {
    const response = await fetch(`/v1/rooms/${name}/${path}`, {
      method,
      headers: body ? { 'content-type': 'application/json' } : {},
      body: body && JSON.stringify(body),
      cache: 'no-store',
      signal,
    });
    if (response.ok) return response.json();
    const problem = await response.json().catch(() => ({}));
    throw Object.assign(new Error(problem.detail ?? `the server returned ${response.status}`), {
      status: response.status,
      code: problem.code ?? '',
      retryAfterMs: 1_000 * (Number(response.headers.get('retry-after')) || 0),
    });
  }

  /** One retry for an expired proof, and one more if the page did not know that the room requires a proof. */
  function resetProofRetries() {
    proofRetries = needsProof ? 1 : 2;
  }

  /** Solves the challenge, then connects. A reconnect does not interrupt it. */
  async function solveChallenge() {
    if (solving) return;
    solving = new AbortController();
    const { signal } = solving;
    try {
      const challenge = await fetchJson('GET', 'challenge', null, signal);
      if (challenge.challenge) {
        setDisconnected(null);
        proof = await solve(challenge, handlers.onProofProgress, signal);
      } else {
        needsProof = false;
      }
      if (signal.aborted) return;
      solving = null;
      connect();
    } catch (error) {
      if (signal.aborted) return;
      solving = null;
      onRequestError(error);
    }
  }

  /** Joins or reads the ticket by a plain request, then continues with the stream or with polls. */
  async function requestTicket() {
    disconnect();
    if (!active) return;
    if (joining && needsProof && !proof) {
      solveChallenge();
      return;
    }
    try {
      const joined = joining;
      const joinRequest = { again: rejoin, ...(proof && { proof }) };
      const ticket = await (joined ? send('POST', 'join', joinRequest) : send('GET', 'ticket'));
      if (!active) return;
      proof = null;
      const canStream = window.EventSource && failures < MAX_STREAM_FAILURES;
      const failuresBefore = failures;
      receive(ticket);
      if (ticket.state === 'ENDED') {
        finish({ reason: 'ENDED', end: ticket.end });
        return;
      }
      if (!canStream || !joined) failures = failuresBefore;
      if (canStream) {
        connect();
        return;
      }
      polls += 1;
      if (polls % POLLS_BEFORE_STREAM === 0) failures = MAX_STREAM_FAILURES - 1;
      const near = ticket.state !== 'WAITING' || (ticket.position ?? Infinity) <= NEAR_FRONT;
      schedule((near ? POLL_NEAR_FRONT_MS : POLL_MS) * (0.9 + 0.2 * Math.random()), connect);
    } catch (error) {
      if (error.name === 'AbortError' || !active) return;
      onRequestError(error);
    }
  }

  function onRequestError(error) {
    if (error.status === 404 && error.code === 'no_ticket') {
      stop();
      handlers.onNoTicket(pastGrace());
      return;
    }
    if (error.code === 'proof_needed' && joining && proofRetries > 0) {
      proofRetries -= 1;
      needsProof = true;
      proof = null;
      requestTicket();
      return;
    }
    if (error.status >= 400 && error.status < 500 && error.status !== 429) {
      stop();
      handlers.onRefused(error);
      return;
    }
    // What remains is temporary: too many requests, an unavailable store, or no network. An existing ticket stays valid.
    if (error.code?.includes('full')) {
      finish({ reason: 'FULL' });
      return;
    }
    storeUnavailable = error.code === 'store_unavailable';
    resetProofRetries();
    setDisconnected(disconnectedSince ?? Date.now());
    schedule(Math.max(error.retryAfterMs ?? 0, jitter(3_000)), joining ? requestTicket : connect);
  }

  /** Connects at once if the page waits for a retry, if the stream is stale, or if `force` is set. */
  function reconnect(force = false) {
    if (!active) return;
    const stale = Date.now() - lastTicketAt > STALE_MS;
    if (disconnectedSince !== null || force || stale) connect();
  }

  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) reconnect();
  });
  window.addEventListener('online', () => reconnect(true));
  window.addEventListener('offline', () => {
    if (active) setDisconnected(disconnectedSince ?? Date.now());
  });
  window.addEventListener('pageshow', (event) => {
    if (event.persisted) reconnect(true);
  });
  // A page in the back/forward cache must not hold a connection; `pageshow` opens another.
  window.addEventListener('pagehide', disconnect);

  return {
    /** Follows the ticket. `join` takes one if there is none; `again` takes a new one at the end if the last one has ended. */
    open({ join = false, again = false } = {}) {
      active = true;
      joining = join || again;
      rejoin = again;
      storeUnavailable = false;
      failures = 0;
      resetProofRetries();
      if (joining) lastTicketAt = Date.now();
      connect();
    },
    stop,
    async leave() {
      stop();
      return send('POST', 'leave', {});
    },
    getTicket: () => send('GET', 'ticket'),
  };
}
