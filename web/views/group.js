// One group: where its jobs are, why it waits, its limits, its congestion over time, and its batches.

import { get, path } from '../api.js';
import { chart } from '../chart.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { count, many, percent, short, span, time, weight } from '../format.js';
import { batchBar, finished, legend, stateBar, total, unfinished } from '../parts/bar.js';
import { batchChips, congestionLevel, groupChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { facts, table } from '../parts/table.js';
import { why } from '../parts/why.js';
import { poll } from '../poll.js';
import { href, hrefWith } from '../router.js';
import { may } from '../session.js';
import { eta } from './groups.js';

/** Limit: batches whose progress is read; the latest ones. */
const BATCHES_SHOWN = 20;
const HOUR = 3_600_000;

export default function group({ names: { group: id }, signal }) {
  const parts = Object.fromEntries(
    ['wrong', 'chips', 'buttons', 'counts', 'why', 'limits', 'congestion', 'batches'].map((name) => [
      name,
      h('div'),
    ]),
  );
  const history = (label, name, look, of, format) =>
    chart({
      label,
      series: [{ name, look, of }],
      format,
      height: 130,
      spanMs: [300_000, HOUR],
      gapMs: 60_000,
    });
  const delayed = history(
    'Jobs delayed by congestion, last hour',
    'delayed',
    'delayed',
    (point) => point.nonReadyCount,
    { value: (value) => count(Math.round(value)), axis: short },
  );
  const backoff = history('Backoff in the last hour', 'backoff', 'rate', (point) => point.backoffMs, {
    value: span,
    axis: (value) => `${short(value / 1_000)} s`,
  });

  async function read() {
    try {
      // Alone, so that a group that is not there is asked for once and not five times.
      const group = await get(path`/v1/groups/${id}`, { signal });
      const [reasons, limits, congestion, past] = await Promise.all([
        get(path`/v1/groups/${id}/why`, { signal }),
        get(path`/v1/groups/${id}/limits`, { signal }),
        get(path`/v1/groups/${id}/congestion`, { signal }),
        get(path`/v1/groups/${id}/congestion/history`, { query: { limit: 1_000 }, signal }),
      ]);
      const latest = group.batches.slice(-BATCHES_SHOWN).reverse();
      const batches = await Promise.all(
        latest.map((name) => get(path`/v1/groups/${id}/batches/${name}`, { signal }).catch(() => null)),
      );
      morph(parts.wrong);
      content.hidden = false;
      draw(group, reasons, limits, congestion, batches.filter(Boolean));
      const points = past.items.map((point) => ({ ...point, at: Date.parse(point.timestamp) }));
      delayed.update(points);
      backoff.update(points);
    } catch (error) {
      if (error.name !== 'AbortError') morph(parts.wrong, problem(error));
    }
  }

  function draw(group, reasons, limits, congestion, batches) {
    morph(parts.chips, groupChip(group));
    morph(parts.buttons, buttons(group));
    morph(parts.counts, counts(group));
    morph(parts.why, why(reasons));
    morph(parts.limits, share(group, limits));
    morph(parts.congestion, state(congestion));
    morph(parts.batches, batchTable(group, batches));
  }

  function buttons(group) {
    if (!may('ADMIN', id)) return null;
    const button = (text, command, kind) =>
      h(
        'button',
        { type: 'button', class: kind, key: text, on: { click: async () => (await command()) && again() } },
        text,
      );
    return h(
      'div.buttons',
      null,
      group.paused
        ? button('Resume', () => commands.resumeGroup(id))
        : button('Pause', () => commands.pauseGroup(id)),
      button('Weight', () => commands.weighGroup(group)),
      button('Limits', () => commands.limitGroup(group)),
      button('Reset statistics', () => commands.resetStats(id)),
      button('Cancel jobs', () => commands.cancelGroup(id, unfinished(group.counts)), 'danger-text'),
    );
  }

  const openJob = (event) => {
    event.preventDefault();
    const job = new FormData(event.target).get('job').trim();
    if (job) location.hash = href`/groups/${id}/jobs/${job}`;
  };
  const content = h(
    'div.rows',
    { hidden: true },
    h('section.panel', null, h('h2', null, 'Jobs'), parts.counts),
    h(
      'div.two',
      null,
      h('section.panel', null, h('h2', null, 'Why it waits'), parts.why),
      h('section.panel', null, h('h2', null, 'Share and limits'), parts.limits),
    ),
    h('section.panel', null, h('h2', null, 'Batches'), parts.batches),
    h(
      'section.panel',
      null,
      h('h2', null, 'Congestion'),
      parts.congestion,
      h(
        'div.two.flat',
        null,
        h('div', null, h('h3', null, 'Delayed jobs'), delayed.element),
        h('div', null, h('h3', null, 'Backoff'), backoff.element),
      ),
    ),
    h(
      'section.panel',
      null,
      h('h2', null, 'Find a job'),
      h(
        'form.inline',
        { on: { submit: openJob } },
        h('label', { for: 'job-id' }, 'Job id'),
        h('input', { id: 'job-id', name: 'job', required: true, autocomplete: 'off', spellcheck: 'false' }),
        h('button', { type: 'submit' }, 'Open job'),
      ),
    ),
  );
  const again = poll(read, 2_000, signal);
  const body = h(
    'div',
    null,
    h('nav.crumbs', { 'aria-label': 'Breadcrumb' }, h('a', { href: '#/groups' }, 'Groups')),
    h('div.page-head', null, h('div.title', null, h('h1.name', null, id), parts.chips), parts.buttons),
    parts.wrong,
    content,
  );
  return { title: id, body };
}

function counts(group) {
  const all = total(group.counts);
  return h(
    'div',
    null,
    stateBar(group.counts),
    legend(group.counts),
    facts([
      [
        'Finished',
        `${count(finished(group.counts))} of ${count(all)} (${percent(finished(group.counts), all)})`,
      ],
      ['Done in', eta(group)],
      ['Next job waiting for', group.waitingSince ? time(group.waitingSince, 'for') : 'nothing waiting'],
      [
        'Dead jobs',
        group.counts.dead > 0
          ? h('a', { href: hrefWith('#/dead', { group: group.id }) }, many(group.counts.dead, 'dead job'))
          : 'none',
      ],
    ]),
  );
}

function share(group, limits) {
  const limit = ({ rate, maxRunning }) =>
    [rate, maxRunning && `${count(maxRunning)} running`].filter(Boolean).join(', ') || 'none';
  return facts([
    ['Weight', weight(group.weight)],
    [
      'Equal share',
      `${count(limits.perGroupLimit)} per window, with ${many(Math.max(0, limits.activeGroupCount - (group.active ? 1 : 0)), 'other active group')}`,
    ],
    [
      'Started in this window',
      `${count(limits.groupCount)}; all groups: ${count(limits.globalCount)} of ${count(limits.globalLimit)}`,
    ],
    ['Limit', limit(group.limits)],
    ...Object.entries(group.limits.queues ?? {}).map(([queue, own]) => [`Limit in queue ${queue}`, limit(own)]),
  ]);
}

function state(congestion) {
  return facts([
    ['Level', congestionLevel(congestion.congestionLevel)],
    ['Delayed jobs', count(congestion.nonReadyCount)],
    ['Next backoff', span(congestion.currentBackoffMs)],
    [
      'Throttles',
      `${count(congestion.totalThrottleCount)}, ${short(congestion.avgThrottlePerJob)} per job`,
    ],
    [
      'Last throttle',
      congestion.lastThrottleAt
        ? [time(congestion.lastThrottleAt), ` for ${span(congestion.lastBackoffMs)}`]
        : 'never',
    ],
  ]);
}

function batchTable(group, batches) {
  const more = group.batches.length - BATCHES_SHOWN;
  return [
    table({
      caption: 'Batches, the latest first',
      columns: [
        ['Batch'],
        ['State'],
        ['Progress', 'wide'],
        ['Jobs', 'number'],
        ['Failed', 'number'],
        ['Opened'],
      ],
      rows: batches.map((batch) => ({
        key: batch.id,
        cells: [
          h('a.name', { href: href`/groups/${group.id}/batches/${batch.id}` }, batch.id),
          h('div.chips', null, batchChips(batch)),
          batchBar(batch.counts),
          count(batch.counts.total),
          count(batch.counts.failed),
          time(batch.createdAt),
        ],
      })),
      empty: 'No batches.',
    }),
    more > 0 && h('p.muted.small', null, `${many(more, 'earlier batch', 'earlier batches')} not shown.`),
  ];
}
