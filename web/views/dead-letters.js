// Dead letters: refresh events that failed for good, and why.

import * as commands from '../commands.js';
import { h } from '../dom.js';
import { capital, count, plain, time } from '../format.js';
import { chip } from '../parts/chip.js';
import { deadItems } from '../parts/dead-items.js';
import { facts, json } from '../parts/table.js';
import { mayForAll } from '../session.js';

const REASONS = {
  API_4XX: '4xx response',
  API_5XX: '5xx response',
  PARSE_ERROR: 'invalid response',
  TOO_LARGE: 'response too large',
  TIMEOUT: 'timeout',
  REDIRECTED: 'redirected',
  UNKNOWN_SOURCE: 'unknown source',
};

export const reasonOf = (reason) => (reason ? (REASONS[reason] ?? plain(reason)) : 'unreadable');

export default function deadLetters({ query, signal }) {
  const handled = query.handled === 'true';
  return deadItems({
    one: 'dead letter',
    several: 'dead letters',
    caption: 'Dead letters by partition, the oldest first',
    home: '#/refresh/dead-letters',
    path: '/v1/refresh/dead-letters',
    signal,
    filter: { source: query.source ?? '', reason: query.reason ?? '' },
    options: { handled: handled || null },
    fields: [
      { name: 'source', label: 'Source' },
      { name: 'reason', label: 'Reason', options: [['', 'any'], ...Object.entries(REASONS)] },
      {
        name: 'handled',
        label: 'Show',
        options: [
          ['', 'open'],
          ['true', 'open and handled'],
        ],
      },
    ],
    admin: mayForAll('ADMIN'),
    keyOf: ({ position }) => position,
    labelOf: ({ key, source, position }) => (key ? `${key} of ${source}` : position),
    isOpen: (deadLetter) => !deadLetter.handled,
    selection: (some) => ({ positions: some.map(({ position }) => position) }),
    replay: commands.replayDeadLetters,
    purge: commands.purgeDeadLetters,
    columns: [
      ['Record'],
      ['Source'],
      ['Reason'],
      ['Error', 'wide'],
      ['Retries', 'number'],
      ['Failed'],
      ...(handled ? [['Handled']] : []),
    ],
    cells: (deadLetter) => [
      h('span.name', { title: `At ${deadLetter.position}` }, deadLetter.key ?? deadLetter.position),
      deadLetter.source ?? '–',
      capital(reasonOf(deadLetter.failureReason)),
      details(deadLetter),
      count(deadLetter.retryCount),
      time(deadLetter.failedAt ?? deadLetter.writtenAt),
      ...(handled ? [handling(deadLetter)] : []),
    ],
    before: h('p.crumbs', null, h('a', { href: '#/refresh' }, 'Refresh')),
  });
}

/** Everything that the log keeps of a dead letter. */
function details(deadLetter) {
  const causes = deadLetter.stackTrace ?? [];
  return h(
    'details',
    null,
    h('summary.one-line', null, deadLetter.errorMessage ?? 'The dead letter cannot be read'),
    facts([
      ['Position', deadLetter.position],
      deadLetter.workerId && ['Worker', deadLetter.workerId],
      ['Written', time(deadLetter.writtenAt)],
    ]),
    deadLetter.errorMessage && [
      h('h3', null, 'Error'),
      h('pre.json', { tabindex: 0 }, deadLetter.errorMessage),
    ],
    causes.length > 0 && [h('h3', null, 'Causes'), h('pre.json', { tabindex: 0 }, causes.join('\n'))],
    deadLetter.originalEvent && [h('h3', null, 'Event'), json(deadLetter.originalEvent)],
    deadLetter.rawEvent && [
      h('h3', null, 'Raw event'),
      h('pre.json', { tabindex: 0 }, deadLetter.rawEvent),
    ],
  );
}

function handling({ handled }) {
  if (!handled) return h('span.muted', null, 'no');
  const shape = handled.how === 'REPLAYED' ? ['good', 'check'] : ['calm', 'bars'];
  return [
    chip(capital(plain(handled.how)), ...shape),
    h('div.muted.small', null, `${handled.by}, `, time(handled.at)),
  ];
}
