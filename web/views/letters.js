// Dead letters: refreshes that were given up, and why; replayed or purged one by one, as chosen, or all that a filter
// finds.

import { get } from '../api.js';
import * as deeds from '../deeds.js';
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
  API_4XX: '4xx answer',
  API_5XX: '5xx answer',
  PARSE_ERROR: 'not understood',
  TOO_LARGE: 'too large',
  TIMEOUT: 'no answer in time',
  REDIRECTED: 'redirected',
  UNKNOWN_SOURCE: 'unknown source',
};

export const reasonOf = (reason) => (reason ? (REASONS[reason] ?? plain(reason)) : 'not readable');

const nameOf = (letter) => (letter.key ? `${letter.key} of ${letter.source}` : letter.position);
const named = (letters) => ({ positions: letters.map(({ position }) => position) });

export default function letters({ query, signal }) {
  const filter = { source: query.source ?? '', reason: query.reason ?? '' };
  const handled = query.handled === 'true';
  const filtered = Object.values(filter).some(Boolean);
  const wrong = h('div');
  const toolbar = h('div');
  const list = h('div');
  const pages = h('div');
  const chosen = new Map();
  let shown = [];
  let more = false;

  const pager = new Pager(() => {
    chosen.clear();
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
      const open = new Set(shown.filter((letter) => !letter.handled).map(({ position }) => position));
      for (const position of chosen.keys()) if (!open.has(position)) chosen.delete(position);
      morph(wrong);
      draw();
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.code === 'no_refresh') morph(list, h('p.empty', null, error.message));
      else morph(wrong, problem(error));
    }
  }

  async function after(deed) {
    if (!(await deed)) return;
    chosen.clear();
    pager.restart();
    again();
  }

  function choose(letter, on) {
    if (on) chosen.set(letter.position, letter);
    else chosen.delete(letter.position);
    draw();
  }

  function tools() {
    if (!mayForAll('admin')) return null;
    const some = [...chosen.values()];
    const all = filtered
      ? Object.fromEntries(Object.entries(filter).filter(([, value]) => value))
      : { all: true };
    const words = filtered ? 'every dead letter that the filter finds' : 'every dead letter';
    const few = many(some.length, 'chosen letter');
    const none = some.length === 0;
    const empty = !more && !shown.some((letter) => !letter.handled);
    const button = (text, click, disabled, kind) =>
      h('button', { type: 'button', class: kind, disabled, key: text, on: { click } }, text);
    return h(
      'div.toolbar',
      null,
      h('span.muted', null, none ? 'None chosen' : `${count(some.length)} chosen`),
      h(
        'div.buttons',
        null,
        button('Replay chosen', () => after(deeds.replayLetters(named(some), few)), none),
        button('Purge chosen', () => after(deeds.purgeLetters(named(some), few)), none, 'danger-text'),
      ),
      h(
        'div.buttons',
        null,
        button(
          filtered ? 'Replay all found' : 'Replay all',
          () => after(deeds.replayLetters(all, words)),
          empty,
        ),
        button(
          filtered ? 'Purge all found' : 'Purge all',
          () => after(deeds.purgeLetters(all, words)),
          empty,
          'danger-text',
        ),
      ),
    );
  }

  function draw() {
    const admin = mayForAll('admin');
    morph(toolbar, tools());
    const box = (letter) =>
      h('input', {
        type: 'checkbox',
        checked: chosen.has(letter.position),
        'aria-label': `Choose ${nameOf(letter)}`,
        on: { change: (event) => choose(letter, event.target.checked) },
      });
    const replay = (letter) =>
      h(
        'button',
        {
          type: 'button',
          'aria-label': `Replay ${nameOf(letter)}`,
          on: { click: () => after(deeds.replayLetters(named([letter]), nameOf(letter))) },
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
    if (admin) columns.push(['-Deeds', 'end']);
    const empty = filtered ? 'No dead letter fits the filter.' : 'No dead letters. Good.';
    morph(
      list,
      admin && shown.some((letter) => !letter.handled) && chooseAll(),
      table({
        caption: 'Dead letters by partition, the oldest first',
        columns,
        rows: shown.map((letter) => {
          const cells = [
            h(
              'span.check',
              null,
              admin && !letter.handled && box(letter),
              h('span.name', { title: `At ${letter.position}` }, letter.key ?? letter.position),
            ),
            letter.source ?? '–',
            capital(reasonOf(letter.failureReason)),
            details(letter),
            count(letter.retryCount),
            time(letter.failedAt ?? letter.writtenAt),
          ];
          if (handled) cells.push(handling(letter));
          if (admin) cells.push(letter.handled ? null : replay(letter));
          return { key: letter.position, cells };
        }),
        empty: more ? 'Nothing on this page; there are more.' : empty,
      }),
    );
    morph(pages, pager.buttons('dead letters'));
  }

  function chooseAll() {
    const open = shown.filter((letter) => !letter.handled);
    return h(
      'label.check.choose-all',
      null,
      h('input', {
        type: 'checkbox',
        checked: chosen.size === open.length,
        on: {
          change: (event) => {
            for (const letter of open) chosen.set(letter.position, letter);
            if (!event.target.checked) chosen.clear();
            draw();
          },
        },
      }),
      ' Choose all on this page',
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

/** Everything that is kept of a letter. */
function details(letter) {
  const causes = letter.stackTrace ?? [];
  return h(
    'details',
    null,
    h('summary.one-line', null, letter.errorMessage ?? 'The letter cannot be read'),
    facts([
      ['Position', letter.position],
      letter.workerId && ['Worker', letter.workerId],
      ['Written', time(letter.writtenAt)],
    ]),
    letter.errorMessage && [h('h3', null, 'Error'), h('pre.json', { tabindex: 0 }, letter.errorMessage)],
    causes.length > 0 && [h('h3', null, 'Causes'), h('pre.json', { tabindex: 0 }, causes.join('\n'))],
    letter.originalEvent && [h('h3', null, 'Event'), json(letter.originalEvent)],
    letter.rawEvent && [
      h('h3', null, 'Bytes of the event'),
      h('pre.json', { tabindex: 0 }, letter.rawEvent),
    ],
  );
}

function handling({ handled }) {
  if (!handled) return h('span.muted', null, 'no');
  const shape = handled.how === 'replayed' ? ['good', 'check'] : ['calm', 'bars'];
  return [
    chip(capital(handled.how), ...shape),
    h('div.muted.small', null, `${handled.by}, `, time(handled.at)),
  ];
}

function filterForm(filter, handled, filtered) {
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]),
    );
    location.hash = hrefWith('#/refresh/letters', values);
  };
  const select = (name, label, value, options) =>
    h(
      'div.field',
      null,
      h('label', { for: `letter-${name}` }, label),
      h(
        'select',
        { id: `letter-${name}`, name },
        options.map(([key, text]) => h('option', { value: key, selected: key === value }, text)),
      ),
    );
  return h(
    'form.filter',
    { role: 'search', 'aria-label': 'Filter dead letters', on: { submit } },
    h(
      'div.field',
      null,
      h('label', { for: 'letter-source' }, 'Source'),
      h('input', {
        id: 'letter-source',
        name: 'source',
        value: filter.source,
        autocomplete: 'off',
        spellcheck: 'false',
      }),
    ),
    select('reason', 'Reason', filter.reason, [['', 'any'], ...Object.entries(REASONS)]),
    select('handled', 'Show', handled ? 'true' : '', [
      ['', 'open ones'],
      ['true', 'open and handled'],
    ]),
    h(
      'div.buttons',
      null,
      h('button', { type: 'submit' }, 'Filter'),
      (filtered || handled) && h('a.button', { href: '#/refresh/letters' }, 'Clear'),
    ),
  );
}
