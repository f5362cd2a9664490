// Dead letters: refreshes that were given up, and why; replayed or purged one by one, as selected, or all that match a
// filter.

import { get } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { capital, count, many, plain, time } from '../format.js';
import { chip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { Pager, facts, json, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { hrefWith } from '../router.js';
import { mayForAll } from '../session.js';

const PAGE = 50;
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

const nameOf = ({ key, source, position }) => (key ? `${key} of ${source}` : position);
const named = (deadLetters) => ({ positions: deadLetters.map(({ position }) => position) });

export default function deadLetters({ query, signal }) {
  const filter = { source: query.source ?? '', reason: query.reason ?? '' };
  const handled = query.handled === 'true';
  const filtered = Object.values(filter).some(Boolean);
  const wrong = h('div');
  const toolbar = h('div');
  const list = h('div');
  const pages = h('div');
  const selected = new Map();
  let shown = [];
  let more = false;

  const pager = new Pager(() => {
    selected.clear();
    again();
  });
  const again = poll(read, 5_000, signal);

  async function read() {
    try {
      const asked = { ...filter, handled: handled || null, limit: PAGE, cursor: pager.cursor };
      const page = await get('/v1/refresh/dead-letters', { query: asked, signal });
      pager.saw(page.next);
      more = Boolean(page.next);
      shown = page.items;
      const open = new Set(shown.filter((deadLetter) => !deadLetter.handled).map(({ position }) => position));
      for (const position of selected.keys()) if (!open.has(position)) selected.delete(position);
      morph(wrong);
      draw();
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.code === 'no_refresh') morph(list, h('p.empty', null, error.message));
      else morph(wrong, problem(error));
    }
  }

  async function after(command) {
    if (!(await command)) return;
    selected.clear();
    pager.restart();
    again();
  }

  function select(deadLetter, on) {
    if (on) selected.set(deadLetter.position, deadLetter);
    else selected.delete(deadLetter.position);
    draw();
  }

  function tools() {
    if (!mayForAll('ADMIN')) return null;
    const some = [...selected.values()];
    const all = filtered
      ? Object.fromEntries(Object.entries(filter).filter(([, value]) => value))
      : { all: true };
    const words = filtered ? 'all dead letters that match the filter' : 'all dead letters';
    const few = many(some.length, 'selected dead letter');
    const none = some.length === 0;
    const empty = !more && !shown.some((deadLetter) => !deadLetter.handled);
    const button = (text, click, disabled, kind) =>
      h('button', { type: 'button', class: kind, disabled, key: text, on: { click } }, text);
    return h(
      'div.toolbar',
      null,
      h('span.muted', null, none ? 'Nothing selected' : `${count(some.length)} selected`),
      h(
        'div.buttons',
        null,
        button('Replay selected', () => after(commands.replayDeadLetters(named(some), few)), none),
        button('Purge selected', () => after(commands.purgeDeadLetters(named(some), few)), none, 'danger-text'),
      ),
      h(
        'div.buttons',
        null,
        button(
          filtered ? 'Replay all matching' : 'Replay all',
          () => after(commands.replayDeadLetters(all, words)),
          empty,
        ),
        button(
          filtered ? 'Purge all matching' : 'Purge all',
          () => after(commands.purgeDeadLetters(all, words)),
          empty,
          'danger-text',
        ),
      ),
    );
  }

  function draw() {
    const admin = mayForAll('ADMIN');
    morph(toolbar, tools());
    const box = (deadLetter) =>
      h('input', {
        type: 'checkbox',
        checked: selected.has(deadLetter.position),
        'aria-label': `Select ${nameOf(deadLetter)}`,
        on: { change: (event) => select(deadLetter, event.target.checked) },
      });
    const replay = (deadLetter) =>
      h(
        'button',
        {
          type: 'button',
          'aria-label': `Replay ${nameOf(deadLetter)}`,
          on: { click: () => after(commands.replayDeadLetters(named([deadLetter]), nameOf(deadLetter))) },
        },
        'Replay',
      );
    const columns = [
      ['Record'],
      ['Source'],
      ['Reason'],
      ['Error', 'wide'],
      ['Retries', 'number'],
      ['Failed'],
    ];
    if (handled) columns.push(['Handled']);
    if (admin) columns.push(['-Actions', 'end']);
    const empty = filtered ? 'No dead letter matches the filter.' : 'No dead letters.';
    morph(
      list,
      admin && shown.some((deadLetter) => !deadLetter.handled) && selectAll(),
      table({
        caption: 'Dead letters by partition, the oldest first',
        columns,
        rows: shown.map((deadLetter) => {
          const cells = [
            h(
              'span.check',
              null,
              admin && !deadLetter.handled && box(deadLetter),
              h('span.name', { title: `At ${deadLetter.position}` }, deadLetter.key ?? deadLetter.position),
            ),
            deadLetter.source ?? '–',
            capital(reasonOf(deadLetter.failureReason)),
            details(deadLetter),
            count(deadLetter.retryCount),
            time(deadLetter.failedAt ?? deadLetter.writtenAt),
          ];
          if (handled) cells.push(handling(deadLetter));
          if (admin) cells.push(deadLetter.handled ? null : replay(deadLetter));
          return { key: deadLetter.position, cells };
        }),
        empty: more ? 'Nothing on this page; see the next one.' : empty,
      }),
    );
    morph(pages, pager.buttons('dead letters'));
  }

  function selectAll() {
    const open = shown.filter((deadLetter) => !deadLetter.handled);
    return h(
      'label.check.select-all',
      null,
      h('input', {
        type: 'checkbox',
        checked: selected.size === open.length,
        on: {
          change: (event) => {
            for (const deadLetter of open) selected.set(deadLetter.position, deadLetter);
            if (!event.target.checked) selected.clear();
            draw();
          },
        },
      }),
      ' Select all on this page',
    );
  }

  const body = h(
    'div',
    null,
    h('p.crumbs', null, h('a', { href: '#/refresh' }, 'Refresh')),
    h('div.page-head', null, h('h1', null, 'Dead letters')),
    filterForm(filter, handled, filtered),
    wrong,
    h('section.panel', { 'aria-label': 'Dead letters' }, toolbar, list),
    pages,
  );
  return { title: 'Dead letters', body };
}

/** Everything that is kept of a dead letter. */
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

function filterForm(filter, handled, filtered) {
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]),
    );
    location.hash = hrefWith('#/refresh/dead-letters', values);
  };
  const select = (name, label, value, options) =>
    h(
      'div.field',
      null,
      h('label', { for: `dead-letter-${name}` }, label),
      h(
        'select',
        { id: `dead-letter-${name}`, name },
        options.map(([key, text]) => h('option', { value: key, selected: key === value }, text)),
      ),
    );
  return h(
    'form.filter',
    { role: 'search', 'aria-label': 'Filter dead letters', on: { submit } },
    h(
      'div.field',
      null,
      h('label', { for: 'dead-letter-source' }, 'Source'),
      h('input', {
        id: 'dead-letter-source',
        name: 'source',
        value: filter.source,
        autocomplete: 'off',
        spellcheck: 'false',
      }),
    ),
    select('reason', 'Reason', filter.reason, [['', 'any'], ...Object.entries(REASONS)]),
    select('handled', 'Show', handled ? 'true' : '', [
      ['', 'open'],
      ['true', 'open and handled'],
    ]),
    h(
      'div.buttons',
      null,
      h('button', { type: 'submit' }, 'Filter'),
      (filtered || handled) && h('a.button', { href: '#/refresh/dead-letters' }, 'Clear'),
    ),
  );
}
