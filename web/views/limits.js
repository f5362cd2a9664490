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
  const changed = limits.globalRps !== limits.configuredGlobalRps;
  return h(
    'div',
    null,
    h('p.big', null, h('b', null, rate(limits.globalRps)), h('span.muted', null, ' starts per second')),
    facts([
      ['Adaptive control', limits.adaptive ? 'on: queues follow what their downstream sustains' : 'off'],
      [
        'Configured',
        [
          `${rate(limits.configuredGlobalRps)}/s`,
          changed && h('span.warn-text', null, ' · changed at run time'),
        ],
      ],
      ['Per window', `${count(limits.limitPerWindow)} in ${span(limits.windowMs)}`],
    ]),
    buttons(null, limits.globalRps, changed, again, [
      limits.adaptive ? 'Switch adaptive control off' : 'Switch adaptive control on',
      () => commands.switchAdaptive(!limits.adaptive),
    ]),
  );
}

function queueTable(limits, again) {
  const changed = new Set(limits.queues.map(({ queue }) => queue));
  const known = seen.stats?.queues ?? [];
  const rows = known.map((queue) => ({
    key: queue.id,
    cells: [
      h('span.name', null, queue.id),
      `${rate(queue.configuredRps)}/s`,
      changed.has(queue.id) ? 'at run time' : 'configuration',
      [`${rate(queue.rps)}/s`, queue.rps < queue.configuredRps && h('span.warn-text', null, ' · lowered')],
      queue.maxRunning === undefined ? count(queue.running) : `${count(queue.running)} of ${count(queue.maxRunning)}`,
      buttons(queue.id, queue.configuredRps, changed.has(queue.id), again),
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
      ['-Actions', 'end'],
    ],
    rows,
    empty: 'No queues yet. They appear with the first jobs.',
  });
}

// How the value of a limit reads; absent without a limit.
const SETTINGS = {
  RPS: (value) => `${rate(value)}/s`,
  MAX_RUNNING: (value) => (value === undefined ? 'no limit' : `${count(value)} running`),
  ADAPTIVE: (value) => (value > 0 ? 'adaptive' : 'not adaptive'),
};

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
        SETTINGS[change.setting](change.from),
        SETTINGS[change.setting](change.to),
        change.why || '–',
      ],
    })),
    empty: 'No limit has been changed at run time.',
  });
}
