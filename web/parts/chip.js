// A state as a word with a shape: colour alone would not do for everybody.

import { h, s } from '../dom.js';
import { capital, plain } from '../format.js';

const SHAPES = {
  dot: 'M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z',
  ring: 'M6 1.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9Zm0 1.6a2.9 2.9 0 1 1 0 5.8 2.9 2.9 0 0 1 0-5.8Z',
  bars: 'M2.5 2h2.6v8H2.5V2Zm4.4 0h2.6v8H6.9V2Z',
  triangle: 'M6 1.2 11 10.4H1L6 1.2Z',
  cross: 'M3 1.6 6 4.6l3-3L10.4 3l-3 3 3 3L9 10.4l-3-3-3 3L1.6 9l3-3-3-3L3 1.6Z',
  check: 'M4.7 9.8 1.2 6.3l1.3-1.3 2.2 2.2 4.8-4.8 1.3 1.3-6.1 6.1Z',
};

/** `tone` is `good`, `warn`, `bad`, `busy` or `calm`. */
export function chip(text, tone, shape, title) {
  return h(
    'span.chip',
    { class: tone, title },
    s('svg', { viewBox: '0 0 12 12', 'aria-hidden': 'true' }, s('path', { d: SHAPES[shape] })),
    text,
  );
}

export function groupChip(group) {
  if (group.paused) return chip('Paused', 'warn', 'bars', 'Not scheduled until it is resumed');
  if (group.held)
    return chip('Held', 'calm', 'bars', 'At a limit of its own until its rate allows the next start, or until one of its jobs ends');
  if (group.active) return chip('Active', 'busy', 'dot', 'Has unfinished jobs');
  return chip('Idle', 'calm', 'ring', 'Has no unfinished jobs');
}

const TARGETS = {
  IDLE: ['calm', 'ring'],
  HEALTHY: ['good', 'check'],
  THROTTLED: ['warn', 'triangle'],
  FAILING: ['bad', 'cross'],
  DISABLED: ['calm', 'bars'],
};
export const targetChip = (state) => chip(capital(plain(state)), ...(TARGETS[state] ?? ['calm', 'ring']));

const BATCHES = {
  COMPLETED: ['good', 'check'],
  FAILED: ['bad', 'cross'],
  CANCELLED: ['bad', 'cross'],
  PAUSED: ['warn', 'bars'],
  CREATED: ['calm', 'ring'],
};
export function batchChips(batch) {
  const [tone, shape] = BATCHES[batch.status] ?? ['busy', 'dot'];
  return [
    chip(capital(plain(batch.status)), tone, shape),
    batch.cancelled && batch.status !== 'CANCELLED' && chip('Being cancelled', 'bad', 'cross'),
    !batch.sealed && chip('Open', 'calm', 'ring', 'Accepts more jobs until it is sealed'),
  ];
}

const BREAKERS = {
  CLOSED: ['Closed', 'good', 'check'],
  HALF_OPEN: ['Half open', 'warn', 'triangle'],
  OPEN: ['Open', 'bad', 'cross'],
};
export const breakerChip = (state) => chip(...(BREAKERS[state] ?? [capital(plain(state)), 'calm', 'ring']));

const ROOMS = {
  NOT_OPEN: ['Not open yet', 'calm', 'ring'],
  OPEN: ['Open', 'good', 'dot'],
  PAUSED: ['Paused', 'warn', 'bars'],
  SOLD_OUT: ['Sold out', 'busy', 'check'],
  CLOSED: ['Closed', 'bad', 'cross'],
};
export const roomChip = (status) => chip(...(ROOMS[status] ?? [capital(plain(status)), 'calm', 'ring']));

const STATES = {
  WAITING: ['calm', 'ring'],
  READY: ['busy', 'ring'],
  RUNNING: ['busy', 'dot'],
  DELAYED: ['warn', 'triangle'],
  COMPLETED: ['good', 'check'],
  DEAD: ['bad', 'cross'],
};
export const stateChip = (state) => chip(capital(plain(state)), ...(STATES[state] ?? ['calm', 'ring']));

const LEVELS = ['NONE', 'LOW', 'MODERATE', 'HIGH', 'CRITICAL'];

/** How congested a group is: a word, and steps. */
export function congestionLevel(level) {
  const steps = LEVELS.indexOf(level);
  return h(
    'span.level',
    { class: `level-${level.toLowerCase()}` },
    s(
      'svg',
      { viewBox: '0 0 19 10', 'aria-hidden': 'true' },
      [1, 2, 3, 4].map((step) =>
        s('rect', {
          x: 5 * (step - 1),
          y: 8 - 2 * step,
          width: 4,
          height: 2 + 2 * step,
          class: step <= steps ? 'on' : 'off',
        }),
      ),
    ),
    capital(level.toLowerCase()),
  );
}
