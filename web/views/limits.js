// The rates: in effect, as configured, and who changed them.

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

function buttons(queue, current, changed, again) {
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
    changed && button('Reset to configured rate', () => commands.resetRate(queue)),
  );
}

function system(limits, again) {
  const changed = limits.globalRps !== limits.configuredGlobalRps;
  return h(
    'div',
    null,
    h('p.big', null, h('b', null, rate(limits.globalRps)), h('span.muted', null, ' starts per second')),
    facts([
      [
        'Configured',
        [
          `${rate(limits.configuredGlobalRps)}/s`,
          changed && h('span.warn-text', null, ' · changed at run time'),
        ],
      ],
      ['Per window', `${count(limits.limitPerWindow)} in ${span(limits.windowMs)}`],
    ]),
    buttons(null, limits.globalRps, changed, again),
  );
}

function queueTable(limits, again) {
  const changed = new Map(limits.queues.map(({ queue, rps }) => [queue, rps]));
  const known = seen.stats?.queues ?? [];
  const rows = known.map((queue) => ({
    key: queue.id,
    cells: [
      h('span.name', null, queue.id),
      `${rate(queue.configuredRps)}/s`,
      changed.has(queue.id) ? 'at run time' : 'configuration',
      [`${rate(queue.rps)}/s`, queue.rps < queue.configuredRps && h('span.warn-text', null, ' · lowered')],
      buttons(queue.id, queue.configuredRps, changed.has(queue.id), again),
    ],
  }));
  return table({
    caption: 'Rates of queues',
    columns: [
      ['Queue'],
      ['Limit', 'number'],
      ['Set by'],
      ['Effective rate', 'number'],
      ['-Actions', 'end'],
    ],
    rows,
    empty: 'No queues yet. They appear with the first jobs.',
  });
}

function changeTable({ changes }) {
  return table({
    caption: 'Changes of rates, the latest first',
    columns: [['When'], ['Who'], ['What'], ['From', 'number'], ['To', 'number'], ['Why', 'wide']],
    rows: changes.toReversed().map((change, index) => ({
      key: `${change.at} ${index}`,
      cells: [
        time(change.at),
        change.by,
        change.queue === undefined ? 'whole system' : `queue ${change.queue}`,
        `${rate(change.fromRps)}/s`,
        `${rate(change.toRps)}/s`,
        change.why || '–',
      ],
    })),
    empty: 'No rate has been changed at run time.',
  });
}
