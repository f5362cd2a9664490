// One waiting room: its figures, the last minutes, its limits, its commands, and who changed what.

import { get, path } from '../api.js';
import { chart } from '../chart.js';
import * as commands from '../commands.js';
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
    label: 'People waiting, in the last minutes',
    series: [{ name: 'waiting', look: 'rate', of: (sample) => sample.waiting }],
    format: whole,
    height: 150,
  });
  const inside = chart({
    label: 'People inside and on their way, in the last minutes',
    series: [
      { name: 'inside', look: 'running', of: (sample) => sample.inside },
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
    if (!mayForAll('ADMIN')) return null;
    const button = (text, command, kind) =>
      h(
        'button',
        { type: 'button', class: kind, key: text, on: { click: async () => (await command()) && again() } },
        text,
      );
    const shut = ['PAUSED', 'CLOSED'].includes(seen.status);
    return h(
      'div.buttons',
      null,
      shut
        ? button(seen.status === 'CLOSED' ? 'Open again' : 'Resume', () => commands.resumeRoom(id))
        : button('Pause', () => commands.pauseRoom(id)),
      button('Void passes', () => commands.voidPasses(seen), 'danger-text'),
      seen.status !== 'CLOSED' && button('Close', () => commands.closeRoom(seen), 'danger-text'),
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
      h('section.panel.outcomes', null, h('h2', null, 'Since the room was created'), parts.counts),
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
function sampled(samples, { inside, perSecond: most }) {
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
    seen.status === 'NOT_OPEN'
      ? tile(
          'early',
          'early',
          'Joined before the opening; a draw decides the order',
          count(seen.early),
          small('opens ', time(seen.opensAt, 'until')),
        )
      : tile(
          'waiting',
          'waiting',
          'In the queue',
          count(seen.waiting),
          seen.early > 0 && small(`${count(seen.early)} not drawn yet`),
        ),
    tile(
      'inside',
      'inside',
      'People who redeemed their pass, and people on their way with one',
      count(seen.inside + seen.granted),
      insideBar(seen),
    ),
    tile(
      'seats',
      'seats sold',
      'Completed, inside, and on their way',
      count(taken(seen)),
      small(
        capacity.seats === undefined
          ? 'not counted'
          : `of ${count(capacity.seats)} · ${percent(taken(seen), capacity.seats)}`,
      ),
    ),
    tile('rate', 'let in', 'Recent rate', admitted(seen), small(`at most ${count(capacity.perSecond)}/s`)),
    tile('eta', 'wait for newcomers', 'At the recent rate', newcomer(seen)),
    tile(
      'streams',
      'streams',
      'Visitor pages connected to this process',
      count(seen.streams),
      small('of this process'),
    ),
  );
}

const LIMITS = [
  ['seats', 'Total seats', 'Completed visits and people inside, together'],
  ['inside', 'Inside at once', 'Including people on their way'],
  ['perSecond', 'Let in per second', 'In any second'],
];

const limit = (value) => (value === undefined || value === null ? 'not counted' : count(value));

function limitTable(seen, again) {
  const used = {
    seats: count(taken(seen)),
    inside: count(seen.inside + seen.granted),
    perSecond: admitted(seen),
  };
  const admin = mayForAll('ADMIN');
  const row = ([name, label, title]) => {
    const [held, configured] = [seen.capacity[name], seen.configured[name]];
    const button = (text, full, command) =>
      h(
        'button',
        {
          type: 'button',
          key: text,
          'aria-label': `${full} ${label.toLowerCase()}`,
          on: { click: async () => (await command()) && again() },
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
            button('Set', 'Set', () => commands.setLimit(seen, name, label)),
            held !== undefined && button('Add', 'Add to', () => commands.addToLimit(seen, name, label)),
            held !== configured &&
              button('Reset', 'Reset', () => commands.resetLimit(seen, name, label)),
          ),
      ],
    };
  };
  return table({
    caption: 'Limits of the room',
    columns: [['Limit'], ['In effect', 'number'], ['Configured', 'number'], ['Used', 'number'], ['-Actions', 'end']],
    rows: LIMITS.map(row),
  });
}

function counts({ counts: all, wave, voided }) {
  const hint = (value, title) => h('span', { title }, count(value));
  return facts([
    ['Joined', hint(all.joined, 'Joined the queue')],
    ['Let in', hint(all.admitted, 'Got a pass')],
    ['Arrived', hint(all.redeemed, 'Redeemed the pass')],
    ['Completed', hint(all.completed, 'Kept their seat')],
    ['Left the queue', hint(all.left, 'Before they were let in')],
    ['Left while inside', hint(all.leftInside, 'Gave their slot back')],
    ['Lost', hint(all.lost, 'Were disconnected for longer than the grace time')],
    ['No-shows', hint(all.noShows, 'Were let in, but did not redeem their pass in time')],
    ['Expired', hint(all.expired, 'Stayed inside for too long')],
    [
      'Void through wave',
      hint(voided, `Passes up to this wave of admissions are void; the latest wave is ${count(wave)}`),
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
        count(change.capacity.perSecond),
        change.why || h('span.muted', null, 'no reason given'),
      ],
    })),
    empty: 'No limit has been changed at run time.',
  });
}
