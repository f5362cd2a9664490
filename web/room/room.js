// The living page of a waiting room: follows the visitor's place, and says aloud only what matters.
//
// It never takes a place by itself: a browser that fetches pages ahead, or a link in a message, must not stand in line.

import { morph } from '../dom.js';
import { line } from './line.js';
import { safe, sure, viewer } from './view.js';
import { count, fill } from './words.js';

const page = JSON.parse(document.getElementById('handed').textContent);
const { words, texts } = page;
const stage = document.getElementById('stage');
const said = document.getElementById('said');
const title = document.title;
const STORE = `tidegate-room-${page.room}`;

/** From being let in to going on. */
const GO_MS = 5_000;
/** A pass that is nearly over is used even if nobody looks: better early inside than too late. */
const LAST_CALL_MS = 90_000;
/** A short loss of the connection is nobody's business. */
const QUIET_MS = 1_500;
/** Positions that are worth saying aloud. */
const MILESTONES = [100, 50, 10, 5];

function recall() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE)) ?? {};
  } catch {
    return {};
  }
}

function remember(change) {
  kept = { ...kept, ...change };
  try {
    sessionStorage.setItem(STORE, JSON.stringify(kept));
  } catch {
    // A browser that keeps nothing begins its bar anew after a reload.
  }
}

let kept = recall();
let mode = page.place ? 'place' : 'entry';
let place = page.place ?? null;
let closed = null;
let silentSince = null;
let trouble = null;
let copied = false;
let goAt = null;
let work = null;
let ahead = Date.parse(page.at) - Date.now();
const now = () => Date.now() + ahead;

const hears = { heard, superseded, closed: over, none, refused, unavailable, working };
const follow = line(page.room, hears, page.proof, page.keptMs);
const view = viewer(page, { join, again, leave, here, stay, gone, copy });

function draw() {
  const silent = silentSince === null ? 0 : Date.now() - silentSince;
  const had = stage.contains(document.activeElement);
  morph(
    stage,
    view({
      mode,
      place,
      closed,
      trouble,
      copied,
      work,
      first: Math.max(kept.first ?? 0, place?.position ?? 0),
      status: place?.roomStatus ?? page.status,
      opensAt: page.opensAt,
      waiting: page.waiting,
      keptMs: page.keptMs,
      silentMs: silent > QUIET_MS ? silent : null,
      goMs: goAt === null ? null : Math.max(0, goAt - Date.now()),
      now: now(),
    }),
  );
  // What was pressed is gone with what it stood in: the keyboard goes on from the new heading, not from the top.
  if (had && !stage.contains(document.activeElement))
    stage.querySelector('h2[tabindex]')?.focus({ preventScroll: true });
  document.title = tab();
}

function tab() {
  if (mode !== 'place') return title;
  if (place.state === 'GRANTED') return `● ${words.tabTurn} · ${title}`;
  if (place.state !== 'WAITING' || !place.position) return title;
  if (['CLOSED', 'SOLD_OUT'].includes(place.roomStatus)) return title;
  const paused = place.roomStatus === 'PAUSED' ? ` · ${words.tabPaused}` : '';
  return `${count(place.position)}${paused} · ${title}`;
}

function say(text, values = {}) {
  said.textContent = fill(text, values);
}

/** Shows what went wrong, and says it: whoever does not see the page would wait for nothing. */
function warn(text) {
  trouble = text;
  say(text);
}

/** Says what changed if it is a milestone: a voice at every step would be worse than none. */
function announce(before, after, joined) {
  const n = after.position && count(after.position);
  if (after.state === 'GRANTED') {
    if (before?.state !== 'GRANTED') say(words.saidGranted);
  } else if (joined) {
    if (after.state === 'EARLY') say(words.saidEarly);
    else if (n) say(words.saidTaken, { n });
  } else if (before && before.roomStatus !== after.roomStatus && after.roomStatus === 'PAUSED') {
    say(words.saidPaused);
  } else if (before?.roomStatus === 'PAUSED' && after.roomStatus === 'OPEN') {
    say(words.saidResumed);
  } else if (before?.position && after.position) {
    const passed = (mark) => before.position > mark && after.position <= mark;
    if (passed(1)) say(words.saidNext);
    else if (MILESTONES.some(passed)) say(words.saidPosition, { n });
    else if (passed(Math.ceil(kept.first / 2))) say(words.saidHalf, { n });
  } else if (before?.state === 'EARLY' && n) {
    say(words.saidPosition, { n });
  }
}

function heard(seen) {
  const [before, joined] = [place, mode === 'joining'];
  ahead = Date.parse(seen.at) - Date.now();
  place = seen;
  mode = 'place';
  closed = null;
  trouble = null;
  if (joined) remember({ first: 0, stayed: null });
  remember({ placed: true });
  if (seen.position) remember({ first: Math.max(kept.first ?? 0, seen.position) });
  announce(before, seen, joined);
  if (seen.state === 'GRANTED') begin();
  else goAt = null;
  // Who is inside needs no connection any more: the shop has taken over.
  if (seen.state === 'INSIDE') follow.stop();
  draw();
}

function begin() {
  const { pass } = place;
  if (goAt !== null || !pass?.goTo || !safe(pass.goTo) || kept.stayed === pass.expiresAt) return;
  if (document.hidden) return;
  goAt = Date.now() + GO_MS;
}

function go() {
  const address = safe(place.pass.goTo);
  gone();
  location.assign(address);
}

/** Whoever comes back from the shop by the browser's button is not sent there again at once. */
function gone() {
  goAt = null;
  remember({ stayed: place.pass.expiresAt });
}

function stay() {
  gone();
  draw();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(place.pass.token);
    copied = true;
  } catch {
    // Without the permission it can still be selected.
    getSelection().selectAllChildren(stage.querySelector('code'));
  }
  draw();
}

function superseded() {
  mode = 'elsewhere';
  goAt = null;
  say(words.elsewhereHeading);
  draw();
}

function over(why) {
  closed = why;
  mode = 'over';
  goAt = null;
  remember({ placed: false });
  if (why.reason === 'ENDED' && place) place = { ...place, state: 'ENDED', end: why.end };
  draw();
  say(stage.querySelector('h2')?.textContent ?? '');
}

/** Says that the place is gone: nobody is put at the end of the line without having pressed for it. */
function none(late) {
  over({ reason: 'ENDED', end: late ? 'LOST' : null });
}

function refused(problem) {
  mode = place ? mode : 'entry';
  if (problem.status === 404) warn(words.missingHeading);
  else warn(problem.code === 'proof_needed' ? words.workRefused : words.refused);
  draw();
}

function working(how) {
  if (!work) say(words.saidWorking);
  work = how;
  draw();
}

function unavailable(since) {
  silentSince = since;
  draw();
}

function join() {
  if (mode === 'joining') return;
  mode = 'joining';
  place = null;
  trouble = null;
  work = null;
  // The same refusal once more is said once more.
  say('');
  follow.open({ join: true });
  draw();
}

function again() {
  mode = 'joining';
  page.status = place?.roomStatus ?? page.status;
  place = null;
  closed = null;
  work = null;
  follow.open({ anew: true });
  draw();
}

function here() {
  mode = place ? 'place' : 'joining';
  follow.open({ join: !place });
  draw();
}

async function leave() {
  const turn = place.state === 'GRANTED';
  if (!(await sure(words, turn ? words.giveUpQuestion : words.leaveQuestion))) return;
  goAt = null;
  try {
    const left = await follow.leave();
    place = left;
    over({ reason: 'ENDED', end: left.end ?? 'LEFT' });
    stage.querySelector('h2[tabindex]')?.focus({ preventScroll: true });
  } catch {
    // Not heard: the place is still ours, and so is the question.
    warn(words.unavailable);
    follow.open();
    draw();
  }
}

async function look() {
  try {
    heard(await follow.look());
    if (['EARLY', 'WAITING', 'GRANTED'].includes(place.state)) follow.open();
  } catch {
    // What is shown stays until something else is known.
    remember({ placed: false });
  }
}

/** What runs down is drawn every second; the rest when something is heard. */
function tick() {
  if (mode === 'place' && place.state === 'GRANTED') {
    const left = place.pass ? Date.parse(place.pass.expiresAt) - now() : 0;
    const lastCall = document.hidden && left > 0 && left < LAST_CALL_MS;
    begin();
    if (goAt !== null && document.hidden && !lastCall) goAt = Date.now() + GO_MS;
    if (goAt !== null && Date.now() >= goAt) go();
    else if (lastCall && kept.stayed !== place.pass.expiresAt && safe(place.pass.goTo ?? 'about:')) go();
  }
  const runs =
    silentSince !== null ||
    (mode !== 'place' && page.opensAt) ||
    (mode === 'place' && ['EARLY', 'GRANTED'].includes(place.state));
  if (runs) draw();
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden && mode === 'place' && place.state === 'INSIDE') look();
});
document.querySelector('.notice')?.remove();
// NEEDS_SCRIPT is not among them: who runs this has scripts.
const notice = {
  FULL: words.fullText,
  TOO_MANY: words.tooMany,
  UNAVAILABLE: words.unavailable,
  REFUSED: words.refused,
}[page.notice];
if (notice) warn(notice);
if (place?.state === 'ENDED') mode = 'over';
else if (place && place.state !== 'INSIDE') follow.open();
// A browser that goes back may show the page as it was before the place was taken.
else if (!place && kept.placed) look();
if (place?.position) remember({ first: Math.max(kept.first ?? 0, place.position) });
if (place?.state === 'GRANTED') begin();
setInterval(tick, 1_000);
draw();
