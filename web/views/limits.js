// The rates: as they hold, as configured, and who changed them.

import { get } from '../api.js';
import * as deeds from '../deeds.js';
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
  const lanes = h('div');
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
    morph(lanes, laneTable(latest, again));
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
    h('section.panel', null, h('h2', null, 'Lanes'), lanes),
    h('section.panel', null, h('h2', null, 'Changes'), changes),
  );
  return { title: 'Limits', body };
}

function buttons(lane, current, changed, again) {
  if (!mayForAll('admin')) return null;
  const of = lane === null ? 'of the whole system' : `of lane ${lane}`;
  const button = (text, deed) =>
    h(
      'button',
      { type: 'button', 'aria-label': `${text} ${of}`, on: { click: async () => (await deed()) && again() } },
      text,
    );
  return h(
    'div.buttons',
    null,
    button('Change rate', () => deeds.changeRate(lane, current)),
    changed && button('Take configured rate', () => deeds.resetRate(lane)),
  );
}

function system(limits, again) {
  const changed = limits.global_rps !== limits.configured_global_rps;
  return h(
    'div',
    null,
    h('p.big', null, h('b', null, rate(limits.global_rps)), h('span.muted', null, ' starts per second')),
    facts([
      [
        'Configured',
        [
          `${rate(limits.configured_global_rps)}/s`,
          changed && h('span.warn-text', null, ' · changed at run time'),
        ],
      ],
      ['Per window', `${count(limits.limit_per_window)} in ${span(limits.window_ms)}`],
    ]),
    buttons(null, limits.global_rps, changed, again),
  );
}

function laneTable(limits, again) {
  const changed = new Map(limits.lanes.map(({ lane, rps }) => [lane, rps]));
  const known = seen.stats?.lanes ?? [];
  const rows = known.map((lane) => ({
    key: lane.id,
    cells: [
      h('span.name', null, lane.id),
      `${rate(lane.configured_rps)}/s`,
      changed.has(lane.id) ? 'at run time' : 'configuration',
      [`${rate(lane.rps)}/s`, lane.rps < lane.configured_rps && h('span.warn-text', null, ' · lowered')],
      buttons(lane.id, lane.configured_rps, changed.has(lane.id), again),
    ],
  }));
  return table({
    caption: 'Rates of lanes',
    columns: [
      ['Lane'],
      ['Allowed', 'number'],
      ['Set by'],
      ['Borne by the downstream', 'number'],
      ['-Deeds', 'end'],
    ],
    rows,
    empty: 'No lanes yet: they come with the first jobs.',
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
        change.lane === undefined ? 'whole system' : `lane ${change.lane}`,
        `${rate(change.from_rps)}/s`,
        `${rate(change.to_rps)}/s`,
        change.why || '–',
      ],
    })),
    empty: 'Nobody has changed a rate at run time.',
  });
}
