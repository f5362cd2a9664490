// Refresh: budgets, backlog, freshness of the records, outcomes of refreshes, and what is unavailable.

import { get } from '../api.js';
import { chart } from '../chart.js';
import { h, morph } from '../dom.js';
import { count, measured, percent, short, span, time } from '../format.js';
import { spread } from '../parts/bar.js';
import { budgetPanel } from '../parts/budget.js';
import { breakerChip, chip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { facts, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { reasonOf } from './dead-letters.js';

const KEPT_MS = 600_000;
const DEAD_LETTERS_SHOWN = 5;
/** The log is looked at every few seconds; what is older is no news. */
const OLD_LOOK_MS = 60_000;
const HALF_AN_HOUR_MS = 1_800_000;

// The service keeps no history of these: what this tab has seen stays while it is open.
let samples = [];

export default function refresh({ signal }) {
  const wrong = h('div');
  const roles = h('p.muted.small');
  const content = h('div.rows');
  const notes = h('div.rows');
  const tiles = h('div');
  const budgets = h('div.rows');
  const fresh = h('div');
  const outcomes = h('div');
  const deadLetters = h('div');
  const waiting = chart({
    label: 'Waiting events since this page was opened',
    series: [
      { name: 'HIGH', look: 'running', of: (sample) => sample.high },
      { name: 'LOW', look: 'waiting', of: (sample) => sample.low },
    ],
    stacked: true,
    format: { value: (value) => count(Math.round(value)), axis: short },
  });
  const whole = [
    notes,
    tiles,
    budgets,
    h(
      'div.two',
      null,
      h('section.panel', null, h('h2', null, 'Freshness'), fresh),
      h('section.panel', null, h('h2', null, 'Waiting events'), waiting.element),
    ),
    h(
      'div.two',
      null,
      h('section.panel.outcomes', null, h('h2', null, 'Outcomes'), outcomes),
      h(
        'section.panel',
        null,
        h(
          'div.panel-head',
          null,
          h('h2', null, 'Dead letters'),
          h('a', { href: '#/refresh/dead-letters' }, 'All dead letters'),
        ),
        deadLetters,
      ),
    ),
  ];
  let sources = [];
  let panels = new Map();
  let deadLettersRead = false;

  async function read() {
    try {
      if (sources.length === 0) sources = (await get('/v1/sources', { signal })).items;
      const seen = sources.length > 0 ? await get('/v1/refresh', { signal }) : null;
      morph(wrong);
      if (!seen) return morph(content, unconfigured());
      keep(seen);
      return draw(seen);
    } catch (error) {
      // Another process may run by now, with other settings.
      sources = [];
      if (error.name !== 'AbortError') morph(wrong, problem(error));
      return undefined;
    }
  }

  async function readDeadLetters() {
    if (sources.length === 0) return;
    try {
      const page = await get('/v1/refresh/dead-letters', { query: { limit: DEAD_LETTERS_SHOWN }, signal });
      morph(deadLetters, deadLetterTable(page));
    } catch (error) {
      if (error.name !== 'AbortError') morph(deadLetters, problem(error));
    }
  }

  function draw(seen) {
    if (!notes.isConnected) content.replaceChildren(...whole);
    if (!deadLettersRead) poll(readDeadLetters, 5_000, signal);
    deadLettersRead = true;
    morph(roles, does(seen.roles));
    morph(notes, troubles(seen));
    morph(tiles, tilesOf(seen));
    const names = seen.budgets.map(({ name }) => name);
    if (names.join('\n') !== [...panels.keys()].join('\n')) {
      panels = new Map(names.map((name) => [name, budgetPanel(name)]));
      budgets.replaceChildren(...[...panels.values()].map((panel) => panel.element));
    }
    for (const budget of seen.budgets) {
      const of = samples.filter(({ calls }) => calls[budget.name] !== undefined);
      const own = of.map(({ at, calls }) => ({ at, calls: calls[budget.name], limit: budget.hardLimit }));
      panels.get(budget.name).update(budget, sources, own);
    }
    morph(fresh, freshness(sources, seen.freshness));
    waiting.update(samples);
    morph(outcomes, outcomesOf(seen.counters));
  }

  poll(read, 1_000, signal);
  const body = h(
    'div',
    null,
    h('div.page-head', null, h('h1', null, 'Refresh'), roles),
    wrong,
    content,
  );
  return { title: 'Refresh', body };
}

function keep({ at, lag, budgets }) {
  const sample = {
    at: Date.parse(at),
    high: lag.high.records,
    low: lag.low.records,
    calls: Object.fromEntries(budgets.map(({ name, seen }) => [name, seen?.callsPerSecond])),
  };
  if (sample.at <= (samples.at(-1)?.at ?? 0)) return;
  samples = [...samples, sample].filter((one) => one.at >= sample.at - KEPT_MS);
}

const DOES = { QUERY: 'answers reads', WORK: 'fetches', PLAN: 'prefetches' };
const does = (roles) => `This process ${roles.map((role) => DOES[role] ?? role).join(', ')}.`;

function unconfigured() {
  return h(
    'section.panel.unconfigured',
    { 'aria-label': 'Refresh is not configured' },
    h('h2', null, 'Refresh is not configured'),
    h(
      'p',
      null,
      'There is no source. With one, records of a rate-limited API are kept as snapshots, served immediately and refreshed within the provider’s limits:',
    ),
    h(
      'pre.json',
      { tabindex: 0 },
      '[budgets.provider]\nrate = 450\n\n[sources.character]\ntarget = "provider"\nurl = "https://api.example.com/character?id={key}"\nfields = ["name", "level"]',
    ),
    h('p.muted', null, 'Add it to the configuration and restart the service.'),
  );
}

/** What is unavailable, and what that means. */
function troubles({ at, storeAvailable, breakers, lag }) {
  const note = (key, head, text) =>
    h('div.problem', { role: 'alert', key }, h('strong', null, head), ' ', text);
  const looked = lag.measuredAt && Date.parse(at) - Date.parse(lag.measuredAt) > OLD_LOOK_MS;
  return [
    (!storeAvailable || breakers.store !== 'CLOSED') &&
      note(
        'store',
        'The store is unavailable.',
        'Budgets are shown as last seen. No calls are made and no refreshes are queued until it is back; reads are answered from snapshots.',
      ),
    breakers.database !== 'CLOSED' &&
      note(
        'database',
        'The database does not accept writes.',
        'Fetched data waits and is not committed, so nothing is lost. Reads are answered as far as the database responds.',
      ),
    looked &&
      note(
        'log',
        'The log is unavailable.',
        `The backlog is shown as it was ${span(Date.parse(at) - Date.parse(lag.measuredAt))} ago.`,
      ),
  ];
}

const BREAKERS = {
  CLOSED: 'calls go through',
  HALF_OPEN: 'trying a few calls',
  OPEN: 'no calls for a while: too many failed',
};

function tilesOf({ lag, breakers, counters }) {
  const tile = (key, label, title, value, ...below) =>
    h('li.tile', { key, title }, h('span.label', null, label), h('span.value', null, value), ...below);
  const small = (...content) => h('span.muted.small', null, ...content);
  const tone = (records, oldest, limits) => {
    if (records > limits[1]) return 'bad-text';
    return records > limits[0] || (oldest ?? 0) > HALF_AN_HOUR_MS ? 'warn-text' : '';
  };
  const waits = (of, limits) =>
    h('span', { class: tone(of.records, of.oldestMs, limits) }, count(of.records));
  const oldest = (of) =>
    small(
      of.records === 0
        ? 'nothing waiting'
        : `oldest ${span(of.oldestMs ?? 0)} · ${measured(of.rate)}/s done`,
    );
  const breaker = (name, state) =>
    tile(
      name,
      `${name} breaker`,
      'Opens when too many calls fail, and recovers automatically',
      breakerChip(state),
      small(BREAKERS[state]),
    );
  return h(
    'ul.tiles.six',
    { 'aria-label': 'Refresh at this moment' },
    tile(
      'high',
      'HIGH waiting',
      'Records that are being read',
      waits(lag.high, [1_000, 5_000]),
      oldest(lag.high),
    ),
    tile(
      'low',
      ['LOW waiting', lag.lowPaused && chip('Paused for HIGH', 'warn', 'bars', 'HIGH goes first')],
      'Fetched ahead of reads',
      waits(lag.low, [Infinity, Infinity]),
      oldest(lag.low),
    ),
    breaker('Store', breakers.store),
    breaker('Database', breakers.database),
    tile(
      'reads',
      'Reads',
      'Since this process started',
      count(counters.reads),
      small(`${percent(counters.cacheHits, counters.reads)} from memory`),
      counters.readErrors > 0 && h('span.small.bad-text', null, `${count(counters.readErrors)} failed`),
    ),
    tile(
      'calls',
      'Calls',
      'To providers, since this process started',
      count(counters.attempts.high + counters.attempts.low),
      small(`${short(counters.attempts.high)} HIGH · ${short(counters.attempts.low)} LOW`),
    ),
  );
}

function freshness(sources, counted) {
  return h(
    'ul.sources',
    null,
    sources.map((source) => {
      const mix = counted[source.name];
      return h(
        'li',
        { key: source.name },
        h(
          'p.ends',
          null,
          h('span', null, h('b.name', null, source.name), h('span.muted.small', null, ` ${source.address}`)),
          h('span.muted.small', null, mix ? ['counted ', time(mix.countedAt)] : 'not counted yet'),
        ),
        mix && mixOf(mix),
      );
    }),
  );
}

function mixOf({ fresh, stale, missing, retrying, failed }) {
  return [
    spread(
      [
        ['fresh', fresh],
        ['stale', stale],
        ['missing', missing, 'never fetched'],
      ],
      'no records yet',
    ),
    fresh + stale + missing === 0 &&
      h('p.muted.small', null, 'No records yet. They appear with the first reads.'),
    retrying + failed > 0 &&
      h(
        'p.small.chips',
        null,
        retrying > 0 && chip(`${count(retrying)} waiting for a retry`, 'warn', 'triangle'),
        failed > 0 && chip(`${count(failed)} failed or not found`, 'bad', 'cross'),
      ),
  ];
}

function outcomesOf(counters) {
  const failed = Object.values(counters.failures).reduce((sum, value) => sum + value, 0);
  const causes = Object.entries(counters.failures).filter(([, value]) => value > 0);
  return [
    spread(
      [
        ['completed', counters.updated, 'updated'],
        ['ready', counters.unchanged, 'unchanged'],
        ['waiting', counters.obsolete + counters.superseded, 'obsolete'],
        ['dead', failed, 'failed'],
      ],
      'nothing refreshed yet',
    ),
    facts([
      ['Coalesced', hint(counters.coalesced, 'Requested while a refresh was already under way')],
      ['Upgraded', hint(counters.upgraded, 'LOW became HIGH because the record was read')],
      ['Just refreshed', hint(counters.justRefreshed, 'Requested just as a refresh finished')],
      ['Prefetched', hint(counters.prefetched, 'Requested ahead of reads')],
      ['Retried', hint(counters.retried, 'Attempts after the first')],
      ['Throttled', hint(counters.throttled, 'Responses that asked to wait')],
      ['Parked', hint(counters.parked, 'Waiting out a long delay')],
      ['Not queued', hint(counters.requestsRefused, 'The store, the log or the queue was full or unavailable')],
    ]),
    causes.length > 0 &&
      h(
        'p.small',
        null,
        h('span.muted', null, 'Failed: '),
        causes.map(([reason, value]) => `${reasonOf(reason)} ${count(value)}`).join(' · '),
      ),
    h('p.muted.small', null, 'Since this process started.'),
  ];
}

const hint = (value, title) => h('span', { title }, count(value));

function deadLetterTable({ items, next }) {
  return [
    table({
      caption: 'The first dead letters',
      columns: [['Record'], ['Reason'], ['Failed', 'number']],
      rows: items.map((deadLetter) => ({
        key: deadLetter.position,
        cells: [
          [
            h('span.name', null, deadLetter.key ?? 'unreadable'),
            h('div.muted.small', null, deadLetter.source ?? `at ${deadLetter.position}`),
          ],
          reasonOf(deadLetter.failureReason),
          time(deadLetter.failedAt ?? deadLetter.writtenAt),
        ],
      })),
      empty: next ? 'None among the first.' : 'No dead letters.',
    }),
    next && items.length > 0 && h('p.muted.small', null, 'There are more.'),
  ];
}
