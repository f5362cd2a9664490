// Starts the dashboard: who is asking, which page, and the frame around the pages.

import { Problem, get, onStale, onUnauthorized } from './api.js';
import { h, morph } from './dom.js';
import { absolute, clock, count, plain, startClock } from './format.js';
import * as live from './live.js';
import { failure } from './parts/notices.js';
import { match } from './router.js';
import * as session from './session.js';
import batch from './views/batch.js';
import audit from './views/audit.js';
import dead from './views/dead.js';
import group from './views/group.js';
import groups from './views/groups.js';
import job from './views/job.js';
import deadLetters from './views/dead-letters.js';
import limits from './views/limits.js';
import login from './views/login.js';
import overview from './views/overview.js';
import refresh from './views/refresh.js';
import room from './views/room.js';
import rooms from './views/rooms.js';
import targets from './views/targets.js';

const ROUTES = [
  ['/', overview],
  ['/groups', groups],
  ['/groups/:group', group],
  ['/groups/:group/batches/:batch', batch],
  ['/groups/:group/jobs/:job', job],
  ['/dead', dead],
  ['/targets', targets],
  ['/refresh', refresh],
  ['/refresh/dead-letters', deadLetters],
  ['/rooms', rooms],
  ['/rooms/:room', room],
  ['/limits', limits],
  ['/audit', audit],
];

/** Address, name, and whether the key may see it. */
const PAGES = [
  ['#/', 'Overview', () => session.mayForAll('READ')],
  ['#/groups', 'Groups', () => session.may('READ')],
  ['#/dead', 'Dead jobs', () => session.may('READ')],
  ['#/targets', 'Targets', () => session.mayForAll('READ')],
  ['#/refresh', 'Refresh', () => session.mayForAll('READ')],
  ['#/rooms', 'Rooms', () => hasRooms && session.mayForAll('READ')],
  ['#/limits', 'Limits', () => session.mayForAll('READ')],
  ['#/audit', 'Audit', () => session.mayForAll('ADMIN')],
];

const at = (id) => document.getElementById(id);
let leave = new AbortController();
let staleAge = null;
// Most services have no waiting rooms; a page that is always empty would only be in the way.
let hasRooms = false;

function show(page, focus) {
  const main = at('main');
  main.replaceChildren(page.body);
  document.title = `${page.title} · Tidegate`;
  const heading = main.querySelector('h1');
  heading?.setAttribute('tabindex', '-1');
  if (focus) heading?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function route(focus) {
  leave.abort();
  leave = new AbortController();
  const allowed = PAGES.filter(([, , may]) => may());
  let hash = location.hash || '#/';
  if (hash === '#/' && allowed[0]?.[0] !== '#/') hash = allowed[0]?.[0] ?? '#/';
  const found = match(ROUTES, hash);
  const page = found
    ? found.view({ ...found, signal: leave.signal })
    : {
        title: 'Not found',
        body: h(
          'div',
          null,
          h('h1', null, 'Page not found'),
          h('p', null, h('a', { href: '#/' }, 'Go to the overview')),
        ),
      };
  navigation(allowed);
  show(page, focus);
}

function navigation(allowed) {
  const nav = at('nav');
  nav.hidden = allowed.length === 0;
  const here = location.hash || '#/';
  const deadJobs = live.seen.stats?.counts.dead ?? 0;
  morph(
    nav,
    h(
      'ul',
      null,
      allowed.map(([href, name]) => {
        const current =
          href === '#/'
            ? here === '#/'
            : here === href || here.startsWith(`${href}/`) || here.startsWith(`${href}?`);
        const badge = href === '#/dead' && deadJobs > 0 && h('span.badge', null, count(deadJobs));
        return h(
          'li',
          { key: href },
          h('a', { href, 'aria-current': current ? 'page' : null }, name, badge && ' ', badge),
        );
      }),
    ),
  );
}

function who() {
  const me = session.identity();
  morph(
    at('who'),
    me?.keysRequired && [
      h('span.muted.who-name', { title: `Roles: ${me.roles.map(plain).join(', ')}` }, me.name),
      ' ',
      h('button.quiet', { type: 'button', on: { click: leaveSession } }, 'Log out'),
    ],
  );
}

async function leaveSession() {
  try {
    await session.logout();
    askForKey();
  } catch (error) {
    failure(error);
  }
}

const LIVE_WORDS = { live: 'Live', connecting: 'Connecting', reconnecting: 'Reconnecting' };

function frame({ state, stats }) {
  const mark = at('live');
  mark.hidden = state === 'off';
  if (mark.dataset.state !== state) {
    mark.dataset.state = state;
    mark.textContent = LIVE_WORDS[state] ?? '';
  }
  banner(stats);
  if (stats)
    morph(
      at('foot'),
      `Tidegate ${stats.version} · ${stats.store.backend.toLowerCase()} store · ${count(stats.started)} jobs started since it was opened`,
    );
  if (!at('nav').hidden) navigation(PAGES.filter(([, , may]) => may()));
}

function banner(stats) {
  const since = stats?.store.available === false ? stats.store.unavailableSince : null;
  let text = null;
  // No ticking time: this is read aloud whenever it changes.
  if (since)
    text = [
      'It has been unavailable since ',
      h('time', { datetime: since, title: absolute(since) }, clock(since)),
      '. ',
    ];
  else if (staleAge !== null) text = [];
  morph(
    at('banner'),
    text &&
      h(
        'p.banner',
        null,
        h('strong', null, 'Store unavailable.'),
        ' ',
        text,
        'This page shows the last known state; changes are refused until the store is back.',
      ),
  );
}

function askForKey() {
  leave.abort();
  live.stop();
  session.forget();
  at('nav').hidden = true;
  who();
  show(login(begin), true);
}

async function begin() {
  try {
    await session.load();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) askForKey();
    else unreachable(error);
    return;
  }
  who();
  if (session.mayForAll('READ')) live.start();
  route(false);
  await findRooms();
}

async function findRooms() {
  hasRooms = false;
  if (!session.mayForAll('READ')) return;
  try {
    hasRooms = (await get('/v1/rooms', { quiet: true })).rooms.length > 0;
  } catch {
    // Shown without it; a reload asks again.
  }
  if (hasRooms && !at('nav').hidden) navigation(PAGES.filter(([, , may]) => may()));
}

function unreachable(error) {
  const body = h(
    'div',
    null,
    h('h1', null, 'The service is not responding'),
    h('p', null, error.message),
    h('button', { type: 'button', on: { click: begin } }, 'Try again'),
  );
  show({ title: 'Not responding', body }, false);
}

onUnauthorized(() => {
  if (session.identity()) askForKey();
});
onStale((age) => {
  if ((age === null) === (staleAge === null)) return;
  staleAge = age;
  banner(live.seen.stats);
});
document.querySelector('.skip').addEventListener('click', (event) => {
  // Its address is no page: following it would leave the one that is shown.
  event.preventDefault();
  at('main').focus();
});
window.addEventListener('hashchange', () => {
  if (session.identity()) route(true);
});
startClock();
live.follow(frame);
begin();
