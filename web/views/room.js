// One waiting room: its figures, the last minutes, its limits, the door, and who changed what.

import { get, path } from '../api.js';
import { chart } from '../chart.js';
import * as deeds from '../deeds.js';
import { h, morph } from '../dom.js';
import { count, measured, percent, short, time } from '../format.js';
import { roomChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { facts, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { smooth } from '../scale.js';
import { mayForAll } from '../session.js';
import { admitted, insideBar, newcomer, taken } from './rooms.js';

/** People are let in by waves: second by second the rate would be a saw. */
const RATE_OVER_MS = 5_000;

export default function room({ names: { room: id }, signal }) {
  const parts = Object.fromEntries(
    ['wrong', 'chips', 'buttons', 'tiles', 'limits', 'counts', 'changes'].map((name) => [name, h('div')]),
  );
  const whole = { value: (value) => count(Math.round(value)), axis: short };
  const waiting = chart({
    label: 'People who wait, in the last minutes',
    series: [{ name: 'waiting', look: 'rate', of: (sample) => sample.waiting }],
    format: whole,
    height: 150,
  });
  const inside = chart({
    label: 'People inside and on their way, in the last minutes',
    series: [
      { name: 'inside', look: 'leased', of: (sample) => sample.inside },
      { name: 'on their way', look: 'ready', of: (sample) => sample.granted },
    ],
    limit: { name: 'limit', look: 'limit', of: (sample) => sample.limit },
    stacked: true,
    format: whole,
    height: 150,
  });
  const rates = chart({
    label: 'Let in per second, in the last minutes',
    series: [{ name: 'let in', look: 'rate', of: (sample) => sample.rate }],
    limit: { name: 'limit', look: 'limit', of: (sample) => sample.most },
    format: { value: (value) => `${measured(value)}/s`, axis: short },
    height: 150,
  });

  async function read() {
    try {
      const seen = await get(path`/v1/rooms/${id}`, { signal });
      const { samples } = await get(path`/v1/rooms/${id}/history`, { signal });
      morph(parts.wrong);
      content.hidden = false;
      draw(seen, sampled(samples, seen.capacity));
    } catch (error) {
      if (error.name !== 'AbortError') morph(parts.wrong, problem(error));
    }
  }

  function draw(seen, samples) {
    morph(parts.chips, roomChip(seen.status));
    morph(parts.buttons, buttons(seen));
    morph(parts.tiles, tiles(seen));
    morph(parts.limits, limitTable(seen, again));
    morph(parts.counts, counts(seen));
    morph(parts.changes, changeTable(seen));
    waiting.update(samples);
    inside.update(samples);
    rates.update(smooth(samples, 'rate', RATE_OVER_MS));
  }

  function buttons(seen) {
    if (!mayForAll('admin')) return null;
    const button = (text, deed, kind) =>
      h(
        'button',
        { type: 'button', class: kind, key: text, on: { click: async () => (await deed()) && again() } },
        text,
      );
    const shut = ['paused', 'closed'].includes(seen.status);
    return h(
      'div.buttons',
      null,
      shut
        ? button(seen.status === 'closed' ? 'Open again' : 'Resume', () => deeds.resumeRoom(id))
        : button('Pause', () => deeds.pauseRoom(id)),
      button('Void passes', () => deeds.voidPasses(seen), 'danger-text'),
      seen.status !== 'closed' && button('Close', () => deeds.closeRoom(seen), 'danger-text'),
    );
  }

  const panel = (name, content, ...more) => h('section.panel', null, h('h2', null, name), content, ...more);
  const content = h(
    'div.rows',
    { hidden: true },
    parts.tiles,
    h('div.two', null, panel('Waiting', waiting.element), panel('Inside', inside.element)),
    h(
      'div.two',
      null,
      panel('Let in per second', rates.element),
      h('section.panel.outcomes', null, h('h2', null, 'Since the room was made'), parts.counts),
    ),
    panel('Limits', parts.limits),
    panel('Changes of limits', parts.changes),
  );
  const again = poll(read, 2_000, signal);
  const body = h(
    'div',
    null,
    h('p.crumbs', null, h('a', { href: '#/rooms' }, 'Rooms')),
    h(
      'div.page-head',
      null,
      h('div.title', null, h('h1.name', null, id), parts.chips),
      parts.buttons,
    ),
    parts.wrong,
    content,
  );
  return { title: id, body };
}

/** Samples with the rate between each and the one before, and the limits as they hold now. */
function sampled(samples, { inside, per_second: most }) {
  const at = (sample) => Date.parse(sample.at);
  const rate = (index) => {
    // Nothing is known before the first: it is taken to be like the second.
    const [before, sample] = [samples[Math.max(0, index - 1)], samples[Math.max(1, index)]];
    const lasted = sample ? (at(sample) - at(before)) / 1_000 : 0;
    return lasted > 0 ? Math.max(0, sample.admitted - before.admitted) / lasted : 0;
  };
  return samples.map((sample, index) => ({
    ...sample,
    at: at(sample),
    rate: rate(index),
    limit: inside,
    most,
  }));
}

function tiles(seen) {
  const tile = (key, label, title, value, ...below) =>
    h('li.tile', { key, title }, h('span.label', null, label), h('span.value', null, value), ...below);
  const small = (...content) => h('span.muted.small', null, ...content);
  const { capacity } = seen;
  return h(
    'ul.tiles.six',
    { 'aria-label': 'The room at this moment' },
    seen.status === 'not_open'
      ? tile(
          'early',
          'early',
          'Came before the opening; the draw gives the order',
          count(seen.early),
          small('opens ', time(seen.opens_at, 'until')),
        )
      : tile(
          'waiting',
          'waiting',
          'In line',
          count(seen.waiting),
          seen.early > 0 && small(`${count(seen.early)} not drawn yet`),
        ),
    tile(
      'inside',
      'inside',
      'Whose pass was redeemed, and who is on the way with one',
      count(seen.inside + seen.granted),
      insideBar(seen),
    ),
    tile(
      'seats',
      'seats sold',
      'Completed, inside, and on the way',
      count(taken(seen)),
      small(
        capacity.seats === undefined
          ? 'not counted'
          : `of ${count(capacity.seats)} · ${percent(taken(seen), capacity.seats)}`,
      ),
    ),
    tile('rate', 'let in', 'Lately', admitted(seen), small(`at most ${count(capacity.per_second)}/s`)),
    tile('eta', 'a newcomer waits', 'If it goes on as it went', newcomer(seen)),
    tile(
      'streams',
      'streams',
      'Pages that follow their place through this process',
      count(seen.streams),
      small('of this process'),
    ),
  );
}

const LIMITS = [
  ['seats', 'Seats in all', 'Those who completed and those who are inside, together'],
  ['inside', 'Inside at once', 'Those on their way included'],
  ['per_second', 'Let in per second', 'In any second'],
];

const limit = (value) => (value === undefined || value === null ? 'not counted' : count(value));

function limitTable(seen, again) {
  const used = {
    seats: count(taken(seen)),
    inside: count(seen.inside + seen.granted),
    per_second: admitted(seen),
  };
  const admin = mayForAll('admin');
  const row = ([name, label, title]) => {
    const [held, configured] = [seen.capacity[name], seen.configured[name]];
    const button = (text, full, deed) =>
      h(
        'button',
        {
          type: 'button',
          key: text,
          'aria-label': `${full} ${label.toLowerCase()}`,
          on: { click: async () => (await deed()) && again() },
        },
        text,
      );
    return {
      key: name,
      cells: [
        [h('span.name', null, label), h('div.muted.small', null, title)],
        [h('b', null, limit(held)), held !== configured && h('span.warn-text', null, ' · changed')],
        limit(configured),
        used[name],
        admin &&
          h(
            'div.buttons',
            null,
            button('Set', 'Set', () => deeds.setLimit(seen, name, label)),
            held !== undefined && button('Add', 'Add to', () => deeds.addToLimit(seen, name, label)),
            held !== configured &&
              button('Reset', 'Take the configured', () => deeds.resetLimit(seen, name, label)),
          ),
      ],
    };
  };
  return table({
    caption: 'Limits of the room',
    columns: [['Limit'], ['Holds', 'number'], ['Configured', 'number'], ['Used', 'number'], ['-Deeds', 'end']],
    rows: LIMITS.map(row),
  });
}

function counts({ counts: all, wave, voided }) {
  const hint = (value, title) => h('span', { title }, count(value));
  return facts([
    ['Joined', hint(all.joined, 'Took a place')],
    ['Let in', hint(all.admitted, 'Got a pass')],
    ['Came', hint(all.redeemed, 'Redeemed the pass')],
    ['Completed', hint(all.completed, 'Keep their seat')],
    ['Left the line', hint(all.left, 'Before they were let in')],
    ['Left inside', hint(all.left_inside, 'Gave their slot back')],
    ['Lost', hint(all.lost, 'Were away for longer than the grace time')],
    ['Did not come', hint(all.no_shows, 'Were let in and did not redeem in time')],
    ['Expired', hint(all.expired, 'Stayed inside for too long')],
    [
      'Passes void',
      hint(voided, `Through this wave of admissions; the latest is ${count(wave)}`),
    ],
  ]);
}

function changeTable({ changes }) {
  return table({
    caption: 'Changes of limits, the latest first',
    columns: [
      ['When'],
      ['Who'],
      ['Seats', 'number'],
      ['Inside', 'number'],
      ['Per second', 'number'],
      ['Why', 'wide'],
    ],
    rows: changes.toReversed().map((change, index) => ({
      key: `${change.at} ${changes.length - index}`,
      cells: [
        time(change.at),
        change.by,
        limit(change.capacity.seats),
        count(change.capacity.inside),
        count(change.capacity.per_second),
        change.why || h('span.muted', null, 'no reason given'),
      ],
    })),
    empty: 'Nobody has changed a limit at run time.',
  });
}
