// The live page of a waiting room: follows the visitor's ticket, and announces only important changes.
//
// It never joins without a click: a browser that prefetches the page, or a link preview, must not take a ticket.

import { morph } from '../dom.js';
import { createConnection } from './connection.js';
import { confirmLeave, createView, safe } from './view.js';
import { count, fill } from './words.js';

const page = JSON.parse(document.getElementById('page-data').textContent);
const { words } = page;
const content = document.getElementById('content');
const announcer = document.getElementById('announcer');
const title = document.title;
const STORAGE_KEY = `tidegate-room-${page.room}`;

/** The countdown from admission to the redirect to the shop. */
const REDIRECT_DELAY_MS = 5_000;
/** A hidden page redirects when its pass is about to expire: it is better to enter early than to lose the turn. */
const PASS_EXPIRING_MS = 90_000;
/** The page does not show a shorter disconnect. */
const SHOW_DISCONNECT_MS = 1_500;
/** Positions that the page announces. */
const MILESTONES = [100, 50, 10, 5];

function loadSession() {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE_KEY)) ?? {};
  } catch {
    return {};
  }
}

function saveSession(change) {
  session = { ...session, ...change };
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(session));
  } catch {
    // Without storage the progress bar starts over after a reload.
  }
}

/**
 * What survives a reload: `hasTicket`; `startPosition`, where the progress bar starts; and `redirectDoneFor`, the expiry of
 * the pass for which the page has already redirected or the visitor chose to stay.
 */
let session = loadSession();
let mode = page.ticket ? 'ticket' : 'entry';
let ticket = page.ticket ?? null;
let closed = null;
let disconnectedSince = null;
let errorText = null;
let copied = false;
let redirectAt = null;
let proofProgress = null;
let clockOffset = Date.parse(page.at) - Date.now();
/** The server's time. */
const now = () => Date.now() + clockOffset;

const connection = createConnection(
  page.room,
  { onTicket, onSuperseded, onClosed, onNoTicket, onRefused, onDisconnected, onProofProgress },
  { needsProof: page.needsProof, graceMs: page.graceMs },
);
const view = createView(page, { join, joinAgain, leave, useHere, stay, endRedirect, copyPass });

function render() {
  const disconnectedMs = disconnectedSince === null ? 0 : Date.now() - disconnectedSince;
  const hadFocus = content.contains(document.activeElement);
  morph(
    content,
    view({
      mode,
      ticket,
      closed,
      errorText,
      copied,
      proofProgress,
      startPosition: Math.max(session.startPosition ?? 0, ticket?.position ?? 0),
      status: ticket?.roomStatus ?? page.status,
      opensAt: page.opensAt,
      waiting: page.waiting,
      graceMs: page.graceMs,
      disconnectedMs: disconnectedMs > SHOW_DISCONNECT_MS ? disconnectedMs : null,
      redirectMs: redirectAt === null ? null : Math.max(0, redirectAt - Date.now()),
      now: now(),
    }),
  );
  // If the focused button is gone, the focus moves to the new heading and not to the top of the page.
  if (hadFocus && !content.contains(document.activeElement))
    content.querySelector('h2[tabindex]')?.focus({ preventScroll: true });
  document.title = tabTitle();
}

function tabTitle() {
  if (mode !== 'ticket') return title;
  if (ticket.state === 'GRANTED') return `● ${words.tabTurn} · ${title}`;
  if (ticket.state !== 'WAITING' || !ticket.position) return title;
  if (['CLOSED', 'SOLD_OUT'].includes(ticket.roomStatus)) return title;
  const paused = ticket.roomStatus === 'PAUSED' ? ` · ${words.tabPaused}` : '';
  return `${count(ticket.position)}${paused} · ${title}`;
}

/** Makes screen readers say a text. */
function announce(text, values = {}) {
  announcer.textContent = fill(text, values);
}

/** Shows and announces an error: otherwise people who do not see the page would wait in vain. */
function showError(text) {
  errorText = text;
  announce(text);
}

/** Announces milestones only: a voice at every step would be worse than none. */
function announceChange(before, after, joined) {
  const n = after.position && count(after.position);
  if (after.state === 'GRANTED') {
    if (before?.state !== 'GRANTED') announce(words.announceGranted);
  } else if (joined) {
    if (after.state === 'EARLY') announce(words.announceEarly);
    else if (n) announce(words.announceJoined, { n });
  } else if (before && before.roomStatus !== after.roomStatus && after.roomStatus === 'PAUSED') {
    announce(words.announcePaused);
  } else if (before?.roomStatus === 'PAUSED' && after.roomStatus === 'OPEN') {
    announce(words.announceResumed);
  } else if (before?.position && after.position) {
    const reached = (milestone) => before.position > milestone && after.position <= milestone;
    if (reached(1)) announce(words.announceNext);
    else if (MILESTONES.some(reached)) announce(words.announcePosition, { n });
    else if (reached(Math.ceil(session.startPosition / 2))) announce(words.announceHalfway, { n });
  } else if (before?.state === 'EARLY' && n) {
    announce(words.announcePosition, { n });
  }
}

function onTicket(received) {
  const [before, joined] = [ticket, mode === 'joining'];
  clockOffset = Date.parse(received.at) - Date.now();
  ticket = received;
  mode = 'ticket';
  closed = null;
  errorText = null;
  if (joined) saveSession({ startPosition: 0, redirectDoneFor: null });
  saveSession({ hasTicket: true });
  if (ticket.position) saveSession({ startPosition: Math.max(session.startPosition ?? 0, ticket.position) });
  announceChange(before, ticket, joined);
  if (ticket.state === 'GRANTED') startRedirect();
  else redirectAt = null;
  // Inside, the shop keeps the visit alive, so the page needs no connection.
  if (ticket.state === 'INSIDE') connection.stop();
  render();
}

/** Starts the countdown, unless it runs already or this pass has had its redirect. */
function startRedirect() {
  const { pass } = ticket;
  if (redirectAt !== null || !pass?.goTo || !safe(pass.goTo) || session.redirectDoneFor === pass.expiresAt) return;
  if (document.hidden) return;
  redirectAt = Date.now() + REDIRECT_DELAY_MS;
}

function redirect() {
  const address = safe(ticket.pass.goTo);
  endRedirect();
  location.assign(address);
}

/** Ends the countdown for good, so that the browser's back button does not lead to the next redirect. */
function endRedirect() {
  redirectAt = null;
  saveSession({ redirectDoneFor: ticket.pass.expiresAt });
}

function stay() {
  endRedirect();
  render();
}

async function copyPass() {
  try {
    await navigator.clipboard.writeText(ticket.pass.token);
    copied = true;
  } catch {
    // Without the permission, select the pass, so that the visitor can copy it.
    getSelection().selectAllChildren(content.querySelector('code'));
  }
  render();
}

function onSuperseded() {
  mode = 'superseded';
  redirectAt = null;
  announce(words.supersededHeading);
  render();
}

function onClosed(event) {
  closed = event;
  mode = 'ended';
  redirectAt = null;
  saveSession({ hasTicket: false });
  if (closed.reason === 'ENDED' && ticket) ticket = { ...ticket, state: 'ENDED', end: closed.end };
  render();
  announce(content.querySelector('h2')?.textContent ?? '');
}

/** Shows that the ticket is gone. The page does not join again without a click. */
function onNoTicket(pastGrace) {
  onClosed({ reason: 'ENDED', end: pastGrace ? 'LOST' : null });
}

function onRefused(problem) {
  mode = ticket ? mode : 'entry';
  if (problem.status === 404) showError(words.missingHeading);
  else showError(problem.code === 'proof_needed' ? words.proofRefused : words.refused);
  render();
}

function onProofProgress(progress) {
  if (!proofProgress) announce(words.announceProof);
  proofProgress = progress;
  render();
}

function onDisconnected(since) {
  disconnectedSince = since;
  render();
}

function join() {
  if (mode === 'joining') return;
  mode = 'joining';
  ticket = null;
  errorText = null;
  proofProgress = null;
  // Screen readers announce changes only: clear the text, so that they announce the same error again.
  announce('');
  connection.open({ join: true });
  render();
}

function joinAgain() {
  mode = 'joining';
  page.status = ticket?.roomStatus ?? page.status;
  ticket = null;
  closed = null;
  proofProgress = null;
  connection.open({ again: true });
  render();
}

/** Takes the ticket back from another tab. */
function useHere() {
  mode = ticket ? 'ticket' : 'joining';
  connection.open({ join: !ticket });
  render();
}

async function leave() {
  const granted = ticket.state === 'GRANTED';
  if (!(await confirmLeave(words, granted ? words.giveUpQuestion : words.leaveQuestion))) return;
  redirectAt = null;
  try {
    ticket = await connection.leave();
    onClosed({ reason: 'ENDED', end: ticket.end ?? 'LEFT' });
    content.querySelector('h2[tabindex]')?.focus({ preventScroll: true });
  } catch {
    // The request failed, so the visitor still has the ticket and can try again.
    showError(words.unavailable);
    connection.open();
    render();
  }
}

/** Reads the ticket once, and follows it if it is still valid. */
async function refresh() {
  try {
    onTicket(await connection.getTicket());
    if (['EARLY', 'WAITING', 'GRANTED'].includes(ticket.state)) connection.open();
  } catch {
    // The page keeps showing the last known state.
    saveSession({ hasTicket: false });
  }
}

/** Redirects in time, and renders countdowns every second. Events render everything else. */
function tick() {
  if (mode === 'ticket' && ticket.state === 'GRANTED') {
    const left = ticket.pass ? Date.parse(ticket.pass.expiresAt) - now() : 0;
    const expiring = document.hidden && left > 0 && left < PASS_EXPIRING_MS;
    startRedirect();
    if (redirectAt !== null && document.hidden && !expiring) redirectAt = Date.now() + REDIRECT_DELAY_MS;
    if (redirectAt !== null && Date.now() >= redirectAt) redirect();
    else if (expiring && session.redirectDoneFor !== ticket.pass.expiresAt && safe(ticket.pass.goTo ?? 'about:'))
      redirect();
  }
  const hasCountdown =
    disconnectedSince !== null ||
    (mode !== 'ticket' && page.opensAt) ||
    (mode === 'ticket' && ['EARLY', 'GRANTED'].includes(ticket.state));
  if (hasCountdown) render();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && mode === 'ticket' && ticket.state === 'INSIDE') refresh();
});
document.querySelector('.notice')?.remove();
// NEEDS_SCRIPT is absent, because a browser that runs this has scripts.
const notice = {
  FULL: words.fullText,
  TOO_MANY: words.tooMany,
  UNAVAILABLE: words.unavailable,
  REFUSED: words.refused,
}[page.notice];
if (notice) showError(notice);
if (ticket?.state === 'ENDED') mode = 'ended';
else if (ticket && ticket.state !== 'INSIDE') connection.open();
// The back button may show the page as it was before the visitor joined.
else if (!ticket && session.hasTicket) refresh();
if (ticket?.position) saveSession({ startPosition: Math.max(session.startPosition ?? 0, ticket.position) });
if (ticket?.state === 'GRANTED') startRedirect();
setInterval(tick, 1_000);
render();
