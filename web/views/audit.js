// Who did what, the latest first.

import { get } from '../api.js';
import { h, morph } from '../dom.js';
import { time } from '../format.js';
import { problem } from '../parts/notices.js';
import { json, table } from '../parts/table.js';
import { poll } from '../poll.js';

const ENTRIES = 200;

export default function audit({ signal }) {
  const wrong = h('div');
  const list = h('div');
  poll(
    async () => {
      try {
        const { items } = await get('/v1/audit', { query: { limit: ENTRIES }, signal });
        morph(wrong);
        morph(list, entries(items));
      } catch (error) {
        if (error.name !== 'AbortError') morph(wrong, problem(error));
      }
    },
    5_000,
    signal,
  );
  const body = h(
    'div',
    null,
    h('div.page-head', null, h('h1', null, 'Audit')),
    wrong,
    h('section.panel', { 'aria-label': 'Audit' }, list),
  );
  return { title: 'Audit', body };
}

function entries(items) {
  return table({
    caption: `The latest ${ENTRIES} entries of the audit log`,
    columns: [['When'], ['Who'], ['What'], ['On'], ['Why', 'wide'], ['Request', 'wide']],
    rows: items.map((entry) => ({
      key: `${entry.at} ${entry.who} ${entry.what} ${entry.on} ${entry.refused ?? ''}`,
      cells: [
        time(entry.at),
        entry.who,
        h('code', null, entry.what),
        h('span.name', null, entry.on),
        entry.refused === undefined
          ? (entry.why ?? h('span.muted', null, 'no reason given'))
          : h('span.bad-text', null, `Refused: ${entry.refused}`),
        entry.detail === undefined
          ? '–'
          : h('details', null, h('summary.one-line', null, JSON.stringify(entry.detail)), json(entry.detail)),
      ],
    })),
    empty: 'No entries yet.',
  });
}
