// The first page: the rate against its limit, what waits where, the last minutes, lanes, and the busiest groups.

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

const DEPTHS = ['leased', 'ready', 'delayed', 'waiting'];
const HINTS = {
  waiting: 'Not yet their turn',
  ready: 'Next, as soon as a worker asks',
  delayed: 'Not before a time: throttled, retried or scheduled',
  leased: 'With a worker',
  dead: 'Failed, expired or cancelled; can be replayed',
};

export default function overview({ signal }) {
  const head = h('div.hero');
  const lanes = h('div');
  const groups = h('div');
  const rates = chart({
    label: 'Starts per second in the last ten minutes',
    series: [{ name: 'started', look: 'rate', of: (sample) => sample.start_rate }],
    limit: { name: 'limit', look: 'limit', of: (sample) => sample.global_rps },
    format: { value: (value) => `${measured(value)}/s`, axis: short },
  });
  const depths = chart({
    label: 'Unfinished jobs in the last ten minutes',
    series: DEPTHS.map((phase) => ({ name: phase, look: phase, of: (sample) => sample.counts[phase] })),
    stacked: true,
    format: { value: (value) => count(Math.round(value)), axis: short },
  });
  follow(({ stats, samples }) => {
    rates.update(smooth(samples, 'start_rate', RATE_OVER_MS));
    depths.update(samples);
    if (!stats) return;
    morph(head, rateNow(stats), tiles(stats));
    morph(lanes, laneTable(stats));
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
    h('section.panel', null, h('h2', null, 'Lanes'), lanes),
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
  const words = `${measured(stats.start_rate)} of ${rate(stats.global_rps)} starts per second`;
  return h(
    'section.panel.rate-now',
    { 'aria-label': 'Rate' },
    h(
      'p.big',
      null,
      h('b', null, measured(stats.start_rate)),
      h('span.muted', null, ` of ${rate(stats.global_rps)} starts/s`),
    ),
    meter(stats.start_rate, stats.global_rps, words),
    h(
      'p.muted.small',
      null,
      `${percent(stats.start_rate, stats.global_rps)} of the limit · at most ${count(stats.most_started_per_window)} of ${count(stats.limit_per_window)} in one window`,
    ),
  );
}

function tiles(stats) {
  const { counts, oldest_wait: oldest } = stats;
  const tile = (phase) =>
    h(
      'li.tile',
      { key: phase, title: HINTS[phase] },
      h('span.label', null, h('span.swatch', { class: phase, 'aria-hidden': 'true' }), phase),
      phase === 'dead'
        ? h('a.value', { href: '#/dead' }, count(counts[phase]))
        : h('span.value', null, count(counts[phase])),
    );
  return h(
    'ul.tiles',
    { 'aria-label': 'Jobs at this moment' },
    ['waiting', 'ready', 'delayed', 'leased', 'dead'].map(tile),
    h(
      'li.tile',
      { key: 'groups' },
      h('span.label', null, 'active groups'),
      h('a.value', { href: '#/groups' }, count(stats.active_groups)),
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
        : h('span.value', null, 'nothing waits'),
    ),
  );
}

function workers({ workers: some }) {
  const parts = [];
  if (some.push > 0) parts.push(`${count(some.push_busy)} of ${count(some.push)} push busy`);
  if (some.pull_waiting > 0) parts.push(`${count(some.pull_waiting)} pull waiting`);
  if (parts.length > 0) return parts.join(' · ');
  return some.pull_last_at ? ['pull, asked ', time(some.pull_last_at)] : h('span.muted', null, 'none seen');
}

export function borne(rps, configured) {
  const words = `${rate(rps)} of ${rate(configured)} starts per second`;
  return h(
    'div.borne',
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

function laneTable({ lanes }) {
  return table({
    caption: 'Lanes: the rate that each bears against the configured one, ready jobs and workers',
    columns: [
      ['Lane'],
      ['Rate borne', 'wide'],
      ['Ready', 'number'],
      ['Groups waiting', 'number'],
      ['Workers'],
      ['Last cut'],
    ],
    rows: lanes.map((lane) => ({
      key: lane.id,
      cells: [
        h('span.name', null, lane.id),
        borne(lane.rps, lane.configured_rps),
        count(lane.ready),
        count(lane.groups_waiting),
        workers(lane),
        time(lane.last_cut_at),
      ],
    })),
    empty: 'No lanes yet: they come with the first jobs.',
  });
}

function busiest(page) {
  const active = page.items.filter((group) => group.active);
  const busy = active.sort((a, b) => unfinished(b.counts) - unfinished(a.counts)).slice(0, GROUPS_SHOWN);
  return [
    table({
      caption: 'Groups with most to do',
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
      empty: 'No group has anything to do.',
    }),
    page.next && h('p.muted.small', null, `Among the first ${count(GROUPS_READ)} groups.`),
  ];
}
