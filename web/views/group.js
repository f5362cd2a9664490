// One group: where its jobs are, why it waits, its limits, its congestion over time, and its actions.

import { get, path } from '../api.js';
import { chart } from '../chart.js';
import * as deeds from '../deeds.js';
import { h, morph } from '../dom.js';
import { count, many, percent, short, span, time, weight } from '../format.js';
import { actionBar, finished, legend, phaseBar, total, unfinished } from '../parts/bar.js';
import { actionChips, congestionLevel, groupChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { facts, table } from '../parts/table.js';
import { why } from '../parts/why.js';
import { poll } from '../poll.js';
import { href, hrefWith } from '../router.js';
import { may } from '../session.js';
import { eta } from './groups.js';

/** Limit: actions whose progress is read; the latest ones. */
const ACTIONS_SHOWN = 20;
const HOUR = 3_600_000;

export default function group({ names: { group: id }, signal }) {
  const parts = Object.fromEntries(
    ['wrong', 'chips', 'buttons', 'counts', 'why', 'limits', 'congestion', 'actions'].map((name) => [
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
    (point) => point.non_ready_count,
    { value: (value) => count(Math.round(value)), axis: short },
  );
  const backoff = history('Backoff in the last hour', 'backoff', 'rate', (point) => point.backoff_ms, {
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
      const latest = group.actions.slice(-ACTIONS_SHOWN).reverse();
      const actions = await Promise.all(
        latest.map((name) => get(path`/v1/groups/${id}/actions/${name}`, { signal }).catch(() => null)),
      );
      morph(parts.wrong);
      content.hidden = false;
      draw(group, reasons, limits, congestion, actions.filter(Boolean));
      const points = past.items.map((point) => ({ ...point, at: Date.parse(point.timestamp) }));
      delayed.update(points);
      backoff.update(points);
    } catch (error) {
      if (error.name !== 'AbortError') morph(parts.wrong, problem(error));
    }
  }

  function draw(group, reasons, limits, congestion, actions) {
    morph(parts.chips, groupChip(group));
    morph(parts.buttons, buttons(group));
    morph(parts.counts, counts(group));
    morph(parts.why, why(reasons));
    morph(parts.limits, share(group, limits));
    morph(parts.congestion, state(congestion));
    morph(parts.actions, actionTable(group, actions));
  }

  function buttons(group) {
    if (!may('admin', id)) return null;
    const button = (text, deed, kind) =>
      h(
        'button',
        { type: 'button', class: kind, key: text, on: { click: async () => (await deed()) && again() } },
        text,
      );
    return h(
      'div.buttons',
      null,
      group.paused
        ? button('Resume', () => deeds.resumeGroup(id))
        : button('Pause', () => deeds.pauseGroup(id)),
      button('Weight', () => deeds.weighGroup(group)),
      button('Ceilings', () => deeds.limitGroup(group)),
      button('Reset statistics', () => deeds.resetStats(id)),
      button('Cancel jobs', () => deeds.cancelGroup(id, unfinished(group.counts)), 'danger-text'),
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
    h('section.panel', null, h('h2', null, 'Actions'), parts.actions),
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
    h('nav.crumbs', { 'aria-label': 'Where this is' }, h('a', { href: '#/groups' }, 'Groups')),
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
    phaseBar(group.counts),
    legend(group.counts),
    facts([
      [
        'Finished',
        `${count(finished(group.counts))} of ${count(all)} (${percent(finished(group.counts), all)})`,
      ],
      ['Done in', eta(group)],
      ['Next job waits', group.waiting_since ? time(group.waiting_since, 'for') : 'nothing waits'],
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
  const { ceilings } = group;
  return facts([
    ['Weight', weight(group.weight)],
    [
      'Equal share',
      `${count(limits.per_group_limit)} per window, beside ${many(Math.max(0, limits.active_group_count - (group.active ? 1 : 0)), 'other active group')}`,
    ],
    [
      'Started in this window',
      `${count(limits.group_count)}; by all ${count(limits.global_count)} of ${count(limits.global_limit)}`,
    ],
    [
      'Ceiling of starts',
      ceilings.starts_per_window ? `${count(ceilings.starts_per_window)} per window` : 'none',
    ],
    ['Ceiling of running jobs', ceilings.leased_at_once ? count(ceilings.leased_at_once) : 'none'],
  ]);
}

function state(congestion) {
  return facts([
    ['Level', congestionLevel(congestion.congestion_level)],
    ['Delayed by it', count(congestion.non_ready_count)],
    ['Next backoff', span(congestion.current_backoff_ms)],
    [
      'Throttles',
      `${count(congestion.total_throttle_count)}, ${short(congestion.avg_throttle_per_job)} per job`,
    ],
    [
      'Last throttle',
      congestion.last_throttle_at
        ? [time(congestion.last_throttle_at), ` for ${span(congestion.last_backoff_ms)}`]
        : 'never',
    ],
  ]);
}

function actionTable(group, actions) {
  const more = group.actions.length - ACTIONS_SHOWN;
  return [
    table({
      caption: 'Actions, the latest first',
      columns: [
        ['Action'],
        ['State'],
        ['Progress', 'wide'],
        ['Jobs', 'number'],
        ['Failed', 'number'],
        ['Opened'],
      ],
      rows: actions.map((action) => ({
        key: action.id,
        cells: [
          h('a.name', { href: href`/groups/${group.id}/actions/${action.id}` }, action.id),
          h('div.chips', null, actionChips(action)),
          actionBar(action.counts),
          count(action.counts.total),
          count(action.counts.failed),
          time(action.created_at),
        ],
      })),
      empty: 'No actions are kept.',
    }),
    more > 0 && h('p.muted.small', null, `${many(more, 'earlier action')} not shown.`),
  ];
}
