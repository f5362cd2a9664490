// The first page: the rate against its limit, jobs by state, the last minutes, queues, and the busiest groups.

import { get } from '../api.js';
import { chart } from '../chart.js';
import { h, morph } from '../dom.js';
import { count, measured, percent, rate, short, time } from '../format.js';
import { follow } from '../live.js';
import { meter, progress, unfinished } from '../parts/bar.js';
import { groupChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { table } from '../parts/table.js';
import { poll } from '../poll.js';
import { href } from '../router.js';
import { smooth } from '../scale.js';
import { eta } from './groups.js';

/** Like the server's figure, so that the picture ends at the number beside it. */
const RATE_OVER_MS = 5_000;
const GROUPS_SHOWN = 8;
/** Limit: groups looked at for the busiest ones. */
const GROUPS_READ = 200;

const DEPTHS = ['running', 'ready', 'delayed', 'waiting'];
const HINTS = {
  waiting: 'Waiting for their turn',
  ready: 'Taken by the next worker that asks',
  delayed: 'Due later: throttled, retried or scheduled',
  running: 'Being worked on',
  dead: 'Failed, expired or cancelled; can be replayed',
};

export default function overview({ signal }) {
  const head = h('div.hero');
  const queues = h('div');
  const groups = h('div');
  const rates = chart({
    label: 'Starts per second in the last ten minutes',
    series: [{ name: 'started', look: 'rate', of: (sample) => sample.startRate }],
    limit: { name: 'limit', look: 'limit', of: (sample) => sample.globalRps },
    format: { value: (value) => `${measured(value)}/s`, axis: short },
  });
  const depths = chart({
    label: 'Unfinished jobs in the last ten minutes',
    series: DEPTHS.map((state) => ({ name: state, look: state, of: (sample) => sample.counts[state] })),
    stacked: true,
    format: { value: (value) => count(Math.round(value)), axis: short },
  });
  follow(({ stats, samples }) => {
    rates.update(smooth(samples, 'startRate', RATE_OVER_MS));
    depths.update(samples);
    if (!stats) return;
    morph(head, rateNow(stats), tiles(stats));
    morph(queues, queueTable(stats));
  }, signal);
  poll(
    async () => {
      try {
        const page = await get('/v1/groups', { query: { limit: GROUPS_READ }, signal });
        morph(groups, busiest(page));
      } catch (error) {
        if (error.name !== 'AbortError') morph(groups, problem(error));
      }
    },
    3_000,
    signal,
  );
  const body = h(
    'div',
    null,
    h('h1.unseen', null, 'Overview'),
    head,
    h(
      'div.two',
      null,
      h('section.panel', null, h('h2', null, 'Starts per second'), rates.element),
      h('section.panel', null, h('h2', null, 'Unfinished jobs'), depths.element),
    ),
    h('section.panel', null, h('h2', null, 'Queues'), queues),
    h(
      'section.panel',
      null,
      h('div.panel-head', null, h('h2', null, 'Busiest groups'), h('a', { href: '#/groups' }, 'All groups')),
      groups,
    ),
  );
  return { title: 'Overview', body };
}

function rateNow(stats) {
  const words = `${measured(stats.startRate)} of ${rate(stats.globalRps)} starts per second`;
  return h(
    'section.panel.rate-now',
    { 'aria-label': 'Rate' },
    h(
      'p.big',
      null,
      h('b', null, measured(stats.startRate)),
      h('span.muted', null, ` of ${rate(stats.globalRps)} starts/s`),
    ),
    meter(stats.startRate, stats.globalRps, words),
    h(
      'p.muted.small',
      null,
      `${percent(stats.startRate, stats.globalRps)} of the limit · at most ${count(stats.mostStartedPerWindow)} of ${count(stats.limitPerWindow)} in one window`,
    ),
  );
}

function tiles(stats) {
  const { counts, oldestWait: oldest } = stats;
  const tile = (state) =>
    h(
      'li.tile',
      { key: state, title: HINTS[state] },
      h('span.label', null, h('span.swatch', { class: state, 'aria-hidden': 'true' }), state),
      state === 'dead'
        ? h('a.value', { href: '#/dead' }, count(counts[state]))
        : h('span.value', null, count(counts[state])),
    );
  return h(
    'ul.tiles',
    { 'aria-label': 'Jobs at this moment' },
    ['waiting', 'ready', 'delayed', 'running', 'dead'].map(tile),
    h(
      'li.tile',
      { key: 'groups' },
      h('span.label', null, 'active groups'),
      h('a.value', { href: '#/groups' }, count(stats.activeGroups)),
      h('span.muted.small', null, `of ${count(stats.groups)}`),
    ),
    h(
      'li.tile.wide',
      { key: 'oldest' },
      h('span.label', null, 'oldest wait'),
      oldest
        ? [
            h('span.value', null, time(oldest.since, 'for')),
            h('a.name', { href: href`/groups/${oldest.group}` }, oldest.group),
          ]
        : h('span.value', null, 'none'),
    ),
  );
}

function workers({ workers: some }) {
  const parts = [];
  if (some.push > 0) parts.push(`${count(some.pushBusy)} of ${count(some.push)} push busy`);
  if (some.pullWaiting > 0) parts.push(`${count(some.pullWaiting)} pull waiting`);
  if (parts.length > 0) return parts.join(' · ');
  return some.pullLastAt ? ['pull, last asked ', time(some.pullLastAt)] : h('span.muted', null, 'none seen');
}

/** The rate that holds now, against the configured one. */
export function effectiveRate(rps, configured) {
  const words = `${rate(rps)} of ${rate(configured)} starts per second`;
  return h(
    'div.effective-rate',
    null,
    meter(rps, configured, words),
    h(
      'span.small',
      null,
      `${rate(rps)} of ${rate(configured)}/s`,
      rps < configured && h('span.warn-text', null, ' · lowered'),
    ),
  );
}

function queueTable({ queues }) {
  return table({
    caption: 'Queues: effective rate against the configured one, ready jobs and workers',
    columns: [
      ['Queue'],
      ['Effective rate', 'wide'],
      ['Ready', 'number'],
      ['Groups waiting', 'number'],
      ['Workers'],
      ['Last lowered'],
    ],
    rows: queues.map((queue) => ({
      key: queue.id,
      cells: [
        h('span.name', null, queue.id),
        effectiveRate(queue.rps, queue.configuredRps),
        count(queue.ready),
        count(queue.groupsWaiting),
        workers(queue),
        time(queue.lastCutAt),
      ],
    })),
    empty: 'No queues yet. They appear with the first jobs.',
  });
}

function busiest(page) {
  const active = page.items.filter((group) => group.active);
  const busy = active.sort((a, b) => unfinished(b.counts) - unfinished(a.counts)).slice(0, GROUPS_SHOWN);
  return [
    table({
      caption: 'Groups with the most unfinished jobs',
      columns: [['Group'], ['State'], ['Progress', 'wide'], ['To do', 'number'], ['Done in', 'number']],
      rows: busy.map((group) => ({
        key: group.id,
        cells: [
          h('a.name', { href: href`/groups/${group.id}` }, group.id),
          groupChip(group),
          progress(group.counts),
          count(unfinished(group.counts)),
          eta(group),
        ],
      })),
      empty: 'No group has unfinished jobs.',
    }),
    page.next && h('p.muted.small', null, `Among the first ${count(GROUPS_READ)} groups.`),
  ];
}
