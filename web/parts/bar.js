// Bars: how far something is, and how things are spread over the states that they can have.

import { h } from '../dom.js';
import { count, percent } from '../format.js';

/** The states of a job as counts name them, in the order of a bar: finished ones first. */
export const STATES = ['completed', 'dead', 'running', 'ready', 'delayed', 'waiting'];

export const total = (counts) => STATES.reduce((sum, state) => sum + counts[state], 0);
export const finished = (counts) => counts.completed + counts.dead;
export const unfinished = (counts) => total(counts) - finished(counts);

/** `parts` are `[name, value]`, or `[name, value, words]` where the style sheet's name is not the reader's. */
export function stacked(parts, all, label) {
  // What is there at all stays visible, however little it is.
  const width = (value) => `max(2px, ${((100 * value) / all).toFixed(3)}%)`;
  return h(
    'div.stack',
    { role: 'img', 'aria-label': label },
    parts
      .filter(([, value]) => value > 0)
      .map(([name, value, words = name]) =>
        h('span', {
          class: name,
          key: name,
          title: `${count(value)} ${words}`,
          style: { width: width(value) },
        }),
      ),
  );
}

/** Jobs per state as one bar. */
export function stateBar(counts) {
  const parts = STATES.map((state) => [state, counts[state]]);
  const label = parts
    .filter(([, value]) => value > 0)
    .map(([name, value]) => `${count(value)} ${name}`)
    .join(', ');
  return stacked(parts, Math.max(1, total(counts)), label || 'no jobs');
}

/** A group's progress: the bar, and what it says in words. */
export function progress(counts) {
  const all = total(counts);
  return h(
    'div.progress',
    null,
    stateBar(counts),
    h(
      'div.small',
      null,
      h('span', null, `${percent(finished(counts), all)} of ${count(all)}`),
      counts.dead > 0 && h('span.bad-text', null, ` · ${count(counts.dead)} dead`),
    ),
  );
}

/** A batch's progress. */
export function batchBar({ total: all, success, failed }) {
  const label = `${count(success)} completed, ${count(failed)} failed, ${count(all - success - failed)} to do`;
  return stacked(
    [
      ['completed', success],
      ['dead', failed],
      ['waiting', all - success - failed],
    ],
    Math.max(1, all),
    label,
  );
}

/** A value against its limit. */
export function meter(value, limit, label) {
  const share = limit > 0 ? Math.min(100, (100 * value) / limit) : 0;
  return h(
    'div.meter',
    { role: 'img', 'aria-label': label },
    h('span', { style: { width: `${share.toFixed(2)}%` } }),
  );
}

/** The parts as one bar with what each look means below it. */
export function spread(parts, nothing) {
  const all = parts.reduce((sum, [, value]) => sum + value, 0);
  const words = parts
    .filter(([, value]) => value > 0)
    .map(([name, value, text = name]) => `${count(value)} ${text}`)
    .join(', ');
  return [stacked(parts, Math.max(1, all), words || nothing), keys(parts)];
}

/** Which look means which state. */
export const legend = (counts, states = STATES) => keys(states.map((state) => [state, counts[state]]));

function keys(parts) {
  return h(
    'ul.legend',
    null,
    parts.map(([name, value, words = name]) =>
      h(
        'li',
        { key: name },
        h('span.swatch', { class: name, 'aria-hidden': 'true' }),
        `${words} `,
        h('b', null, count(value)),
      ),
    ),
  );
}

const at = (value, all) => `${Math.min(100, (100 * value) / all).toFixed(2)}%`;

/**
 * A value on a scale that ends at `end`, with a zone from `zone` to the end that is not for everybody, and a mark where
 * it begins.
 */
export function gauge({ value, zone, end, label, tone = '' }) {
  const zoned = zone < end;
  return h(
    'div.gauge',
    { role: 'img', 'aria-label': label, class: tone },
    zoned && h('span.zone', { key: 'zone', style: { left: at(zone, end) } }),
    h('span.fill', { key: 'fill', style: { width: at(value, end) } }),
    zoned && h('span.mark', { key: 'mark', style: { left: at(zone, end) } }),
  );
}
