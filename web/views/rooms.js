// All waiting rooms: status, how many wait, and how full they are.

import { get } from '../api.js';
import { h, morph } from '../dom.js';
import { count, measured, span, time } from '../format.js';
import { meter } from '../parts/bar.js';
import { roomChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { table } from '../parts/table.js';
import { poll } from '../poll.js';
import { href } from '../router.js';

/** A seat is taken as soon as somebody is let in for it. */
export const taken = ({ counts, granted, inside }) => counts.completed + granted + inside;

const UNITS = [
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
];

/** How long someone who joins now waits: a range in one unit, because it is an estimate. */
export function newcomer({ status, eta }) {
  if (!eta || status !== 'OPEN') return h('span.muted', null, '–');
  if (eta.highMs < 1_000) return 'no wait';
  const [unit, name] = UNITS.find(([size]) => eta.highMs >= 2 * size) ?? UNITS.at(-1);
  const [low, high] = [Math.floor(eta.lowMs / unit), Math.ceil(eta.highMs / unit)];
  const text = low === 0 || low === high ? `≤ ${high} ${name}` : `${low}–${high} ${name}`;
  return h('span', { title: `Most likely ${span(eta.likelyMs)}` }, text);
}

/** `said` is what the numbers are of, where nothing else says it. */
export function insideBar({ granted, inside, capacity }, said = '') {
  const held = granted + inside;
  const words = `${count(held)} of ${count(capacity.inside)} inside`;
  return h(
    'div.progress',
    null,
    meter(held, capacity.inside, words),
    h(
      'div.small',
      null,
      `${count(held)} of ${count(capacity.inside)}${said}`,
      granted > 0 && h('span.muted', null, ` · ${count(granted)} on their way`),
      held > capacity.inside && h('span.warn-text', null, ' · over the limit until some leave'),
    ),
  );
}

export const seats = (room) =>
  room.capacity.seats === undefined
    ? h('span.muted', { title: 'Seats are not counted here' }, count(taken(room)))
    : `${count(taken(room))} of ${count(room.capacity.seats)}`;

export const admitted = ({ admittedPerSecond: rate }) =>
  rate === undefined ? h('span.muted', null, '–') : `${measured(rate)}/s`;

export default function rooms({ signal }) {
  const wrong = h('div');
  const list = h('div');
  poll(
    async () => {
      try {
        const seen = await get('/v1/rooms', { signal });
        morph(wrong);
        morph(list, roomTable(seen.rooms));
      } catch (error) {
        if (error.name !== 'AbortError') morph(wrong, problem(error));
      }
    },
    2_000,
    signal,
  );
  const body = h(
    'div',
    null,
    h('div.page-head', null, h('h1', null, 'Rooms')),
    wrong,
    h('section.panel', { 'aria-label': 'Rooms' }, list),
  );
  return { title: 'Rooms', body };
}

function roomTable(items) {
  return table({
    caption: 'Waiting rooms',
    columns: [
      ['Room'],
      ['Status'],
      ['Waiting', 'number'],
      ['Inside', 'wide'],
      ['Seats sold', 'number'],
      ['Let in', 'number'],
      ['Wait for newcomers', 'number'],
    ],
    rows: items.map((room) => ({
      key: room.room,
      cells: [
        h('a.name', { href: href`/rooms/${room.room}` }, room.room),
        [
          roomChip(room.status),
          room.status === 'NOT_OPEN' &&
            h('div.muted.small', null, 'opens ', time(room.opensAt, 'until')),
        ],
        [
          count(room.waiting + room.early),
          room.early > 0 && h('span.muted.small', null, ` · ${count(room.early)} early`),
        ],
        insideBar(room, ' inside'),
        seats(room),
        admitted(room),
        newcomer(room),
      ],
    })),
    empty: 'No waiting rooms are configured.',
  });
}
