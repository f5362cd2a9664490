// Refresh: budgets, what waits, how fresh the records are, what came of refreshes, and what stands in their way.

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
import { reasonOf } from './letters.js';

const KEPT_MS = 600_000;
const LETTERS_SHOWN = 5;
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
  const letters = h('div');
  const waiting = chart({
    label: 'Events that wait, since this page was opened',
    series: [
      { name: 'HIGH', look: 'leased', of: (sample) => sample.high },
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
          h('a', { href: '#/refresh/letters' }, 'All dead letters'),
        ),
        letters,
      ),
    ),
  ];
  let sources = [];
  let panels = new Map();
  let lettersRead = false;

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

  async function readLetters() {
    if (sources.length === 0) return;
    try {
      const page = await get('/v1/refresh/dead-letters', { query: { limit: LETTERS_SHOWN }, signal });
      morph(letters, letterTable(page));
    } catch (error) {
      if (error.name !== 'AbortError') morph(letters, problem(error));
    }
  }

  function draw(seen) {
    if (!notes.isConnected) content.replaceChildren(...whole);
    if (!lettersRead) poll(readLetters, 5_000, signal);
    lettersRead = true;
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

const DOES = { query: 'answers reads', work: 'fetches', plan: 'prefetches' };
const does = (roles) => `This process ${roles.map((role) => DOES[role] ?? role).join(', ')}.`;

function unconfigured() {
  return h(
    'section.panel.unconfigured',
    { 'aria-label': 'Nothing is refreshed here' },
    h('h2', null, 'Nothing is refreshed here'),
    h(
      'p',
      null,
      'No source is configured. With one, records of a limited API are kept as snapshots, read at once and refreshed within the provider’s limits:',
    ),
    h(
      'pre.json',
      { tabindex: 0 },
      '[budgets.provider]\nrate = 450\n\n[sources.character]\ntarget = "provider"\nurl = "https://api.example.com/character?id={key}"\nfields = ["name", "level"]',
    ),
    h('p.muted', null, 'Add it to the settings and start the service again.'),
  );
}

/** What is away, and what that means for whom. */
function troubles({ at, storeAvailable, breakers, lag }) {
  const note = (key, head, text) =>
    h('div.problem', { role: 'alert', key }, h('strong', null, head), ' ', text);
  const looked = lag.lookedAt && Date.parse(at) - Date.parse(lag.lookedAt) > OLD_LOOK_MS;
  return [
    (!storeAvailable || breakers.store !== 'CLOSED') &&
      note(
        'store',
        'The store does not answer.',
        'Budgets are shown as they were last seen. Nothing is called and nothing more is queued until it is back; reads are answered from snapshots.',
      ),
    breakers.database !== 'CLOSED' &&
      note(
        'database',
        'The database does not take writes.',
        'What was fetched waits and is not committed, so nothing is lost. Reads are answered as far as it answers.',
      ),
    looked &&
      note(
        'log',
        'The log does not answer.',
        `How much waits is as it was seen ${span(Date.parse(at) - Date.parse(lag.lookedAt))} ago.`,
      ),
  ];
}

const BREAKERS = {
  CLOSED: 'calls go through',
  HALF_OPEN: 'a few calls are tried',
  OPEN: 'not called for a while: too many failed',
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
        ? 'nothing waits'
        : `oldest ${span(of.oldestMs ?? 0)} · ${measured(of.rate)}/s done`,
    );
  const breaker = (name, state) =>
    tile(
      name,
      `${name} breaker`,
      'Opens when too many calls fail, and tries again by itself',
      breakerChip(state),
      small(BREAKERS[state]),
    );
  return h(
    'ul.tiles.six',
    { 'aria-label': 'Refresh at this moment' },
    tile(
      'high',
      'HIGH waiting',
      'Somebody reads these records',
      waits(lag.high, [1_000, 5_000]),
      oldest(lag.high),
    ),
    tile(
      'low',
      ['LOW waiting', lag.lowPaused && chip('Stands back', 'warn', 'bars', 'HIGH goes first')],
      'Fetched ahead of being asked for',
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
      h('p.muted.small', null, 'No records yet: they come with the first reads.'),
    retrying + failed > 0 &&
      h(
        'p.small.chips',
        null,
        retrying > 0 && chip(`${count(retrying)} tried again later`, 'warn', 'triangle'),
        failed > 0 && chip(`${count(failed)} failed or absent`, 'bad', 'cross'),
      ),
  ];
}

function outcomesOf(counters) {
  const failed = Object.values(counters.failures).reduce((sum, value) => sum + value, 0);
  const causes = Object.entries(counters.failures).filter(([, value]) => value > 0);
  return [
    spread(
      [
        ['done', counters.updated, 'updated'],
        ['ready', counters.unchanged, 'unchanged'],
        ['waiting', counters.obsolete + counters.superseded, 'obsolete'],
        ['dead', failed, 'failed'],
      ],
      'nothing refreshed yet',
    ),
    facts([
      ['Coalesced', hint(counters.coalesced, 'Asked for while a refresh was on its way')],
      ['Upgraded', hint(counters.upgraded, 'LOW became HIGH because somebody read it')],
      ['Just refreshed', hint(counters.justRefreshed, 'Asked for while one came to its end')],
      ['Prefetched', hint(counters.prefetched, 'Asked for ahead of being read')],
      ['Retried', hint(counters.retried, 'Attempts after the first')],
      ['Throttled', hint(counters.throttled, 'Answers that asked to wait')],
      ['Put aside', hint(counters.parked, 'Their wait was long')],
      ['Not queued', hint(counters.asksRefused, 'Store, log or queue had no room')],
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

function letterTable({ items, next }) {
  return [
    table({
      caption: 'The first dead letters',
      columns: [['Record'], ['Reason'], ['Failed', 'number']],
      rows: items.map((letter) => ({
        key: letter.position,
        cells: [
          [
            h('span.name', null, letter.key ?? 'not readable'),
            h('div.muted.small', null, letter.source ?? `at ${letter.position}`),
          ],
          reasonOf(letter.failureReason),
          time(letter.failedAt ?? letter.writtenAt),
        ],
      })),
      empty: next ? 'None of the first.' : 'No dead letters. Good.',
    }),
    next && items.length > 0 && h('p.muted.small', null, 'There are more.'),
  ];
}
