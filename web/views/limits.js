// The limits: in effect, as configured, and who changed them.

import { get } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { count, rate, span, time } from '../format.js';
import { follow, seen } from '../live.js';
import { problem } from '../parts/notices.js';
import { facts, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { mayForAll } from '../session.js';

export default function limits({ signal }) {
  const wrong = h('div');
  const whole = h('div');
  const queues = h('div');
  const changes = h('div');
  let latest = null;

  async function read() {
    try {
      latest = await get('/v1/limits', { signal });
      morph(wrong);
      draw();
    } catch (error) {
      if (error.name !== 'AbortError') morph(wrong, problem(error));
    }
  }

  function draw() {
    if (!latest) return;
    morph(whole, system(latest, again));
    morph(queues, queueTable(latest, again));
    morph(changes, changeTable(latest));
  }
  const again = poll(read, 5_000, signal);
  follow(draw, signal);

  const body = h(
    'div.slim',
    null,
    h('div.page-head', null, h('h1', null, 'Limits')),
    wrong,
    h('section.panel', null, h('h2', null, 'Whole system'), whole),
    h('section.panel', null, h('h2', null, 'Queues'), queues),
    h('section.panel', null, h('h2', null, 'Changes'), changes),
  );
  return { title: 'Limits', body };
}

function buttons(queue, current, changed, again, other) {
  if (!mayForAll('ADMIN')) return null;
  const of = queue === null ? 'of the whole system' : `of queue ${queue}`;
  const button = (text, command) =>
    h(
      'button',
      { type: 'button', 'aria-label': `${text} ${of}`, on: { click: async () => (await command()) && again() } },
      text,
    );
  return h(
    'div.buttons',
    null,
    button('Change rate', () => commands.changeRate(queue, current)),
    changed && button('Reset to configured limits', () => commands.resetLimits(queue)),
    other && button(...other),
  );
}

function system(limits, again) {
  const changed = limits.rate !== limits.configuredRate;
  return h(
    'div',
    null,
    h('p.big', null, h('b', null, limits.rate), h('span.muted', null, ' starts')),
    facts([
      ['Adaptive control', limits.adaptive ? 'on: queues follow what their downstream sustains' : 'off'],
      [
        'Configured',
        [
          limits.configuredRate,
          changed && h('span.warn-text', null, ' · changed at run time'),
        ],
      ],
      ['Per window', `${count(limits.limitPerWindow)} in ${span(limits.windowMs)}`],
    ]),
    buttons(null, limits.rate, changed, again, [
      limits.adaptive ? 'Switch adaptive control off' : 'Switch adaptive control on',
      () => commands.switchAdaptive(!limits.adaptive),
    ]),
  );
}

function queueTable(limits, again) {
  const changed = new Map(limits.queues.map((set) => [set.queue, set]));
  const known = seen.stats?.queues ?? [];
  const rows = known.map((queue) => ({
    key: queue.id,
    cells: [
      h('span.name', null, queue.id),
      `${rate(queue.configuredRps)}/s`,
      changed.has(queue.id) ? 'at run time' : 'configuration',
      [`${rate(queue.rps)}/s`, queue.rps < queue.configuredRps && h('span.warn-text', null, ' · lowered')],
      queue.maxRunning === undefined ? count(queue.running) : `${count(queue.running)} of ${count(queue.maxRunning)}`,
      perGroup(changed.get(queue.id)?.perGroup),
      buttons(queue.id, changed.get(queue.id)?.rate ?? `${queue.configuredRps}/s`, changed.has(queue.id), again),
    ],
  }));
  return table({
    caption: 'Limits of queues',
    columns: [
      ['Queue'],
      ['Limit', 'number'],
      ['Set by'],
      ['Effective rate', 'number'],
      ['Running', 'number'],
      ['Per group'],
      ['-Actions', 'end'],
    ],
    rows,
    empty: 'No queues yet. They appear with the first jobs.',
  });
}

// The limit of every group in a queue, as somebody set it at run time.
function perGroup(limit) {
  const most = limit?.maxRunning === undefined ? undefined : `${count(limit.maxRunning)} running`;
  return [limit?.rate, most].filter(Boolean).join(', ') || '–';
}

// How the value of a limit reads.
const SETTINGS = {
  RATE: (value) => value,
  MAX_RUNNING: (value) => `${value} running`,
  GROUP_RATE: (value) => `${value} per group`,
  GROUP_MAX_RUNNING: (value) => `${value} running per group`,
  ADAPTIVE: (value) => `adaptive control ${value}`,
};
const setting = (change, value) => (value === undefined ? 'no limit' : SETTINGS[change.setting](value));

function changeTable({ changes }) {
  return table({
    caption: 'Changes of limits, the latest first',
    columns: [['When'], ['Who'], ['What'], ['From', 'number'], ['To', 'number'], ['Why', 'wide']],
    rows: changes.toReversed().map((change, index) => ({
      key: `${change.at} ${index}`,
      cells: [
        time(change.at),
        change.by,
        change.queue === undefined ? 'whole system' : `queue ${change.queue}`,
        setting(change, change.from),
        setting(change, change.to),
        change.why || '–',
      ],
    })),
    empty: 'No limit has been changed at run time.',
  });
}
