// A page of dead items: a filter, a table with a selection, and replay or purge of one, of the selected ones, or of all
// that match the filter. Dead jobs and dead letters differ only in what they pass in.

import { get } from '../api.js';
import { h, morph } from '../dom.js';
import { count, many } from '../format.js';
import { poll } from '../poll.js';
import { hrefWith } from '../router.js';
import { problem } from './notices.js';
import { Pager, table } from './table.js';

const PAGE = 50;

/**
 * @param {object} page
 * - `one`, `several`: what an item is called, like `dead job`, and `caption` of the table
 * - `home`: the page's address; `path`: where the API lists the items; `signal`: ends the page
 * - `filter`: field values that select items; `options`: query values that do not, like `handled`
 * - `fields`: the form's fields, `{ name, label, options }`; without `options` it is a text field
 * - `admin`: whether the reader may replay and purge; `blocked`: why there is no list, if so
 * - `keyOf`, `labelOf`, `isOpen`: an item's key, its name, and whether it can still be replayed
 * - `selection`: the request's body for some items; `replay`, `purge`: the commands
 * - `columns`, `cells`: the table; the first cell gets the check box, the last column the action
 * - `before`: what stands above the title
 */
export function deadItems(page) {
  const { one, several, filter, options = {}, admin, signal } = page;
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
  const blocked = () => morph(list, h('p.empty', null, page.blocked));
  const again = poll(page.blocked ? blocked : read, 5_000, signal);

  async function read() {
    try {
      const query = { ...filter, ...options, limit: PAGE, cursor: pager.cursor };
      const answer = await get(page.path, { query, signal });
      pager.saw(answer.next);
      more = Boolean(answer.next);
      shown = answer.items;
      const there = new Set(open().map(page.keyOf));
      for (const key of selected.keys()) if (!there.has(key)) selected.delete(key);
      morph(wrong);
      draw();
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (error.code === 'cursor_lost') pager.restart();
      if (error.code === 'no_refresh') morph(list, h('p.empty', null, error.message));
      else morph(wrong, problem(error));
    }
  }

  const open = () => shown.filter(page.isOpen ?? (() => true));

  async function after(command) {
    if (!(await command)) return;
    selected.clear();
    pager.restart();
    again();
  }

  function select(items, on) {
    for (const item of items) {
      if (on) selected.set(page.keyOf(item), item);
      else selected.delete(page.keyOf(item));
    }
    draw();
  }

  function tools() {
    if (!admin) return null;
    const some = [...selected.values()];
    const none = some.length === 0;
    const empty = !more && open().length === 0;
    const all = filtered
      ? Object.fromEntries(Object.entries(filter).filter(([, value]) => value))
      : { all: true };
    const words = filtered ? `all ${several} that match the filter` : `all ${several}`;
    const few = many(some.length, `selected ${one}`);
    const button = (text, click, disabled, kind) =>
      h('button', { type: 'button', class: kind, disabled, key: text, on: { click } }, text);
    const matching = filtered ? ' matching' : '';
    return h(
      'div.toolbar',
      null,
      h('span.muted', null, none ? 'Nothing selected' : `${count(some.length)} selected`),
      h(
        'div.buttons',
        null,
        button('Replay selected', () => after(page.replay(page.selection(some), few)), none),
        button('Purge selected', () => after(page.purge(page.selection(some), few)), none, 'danger-text'),
      ),
      h(
        'div.buttons',
        null,
        button(`Replay all${matching}`, () => after(page.replay(all, words)), empty),
        button(`Purge all${matching}`, () => after(page.purge(all, words)), empty, 'danger-text'),
      ),
    );
  }

  function row(item) {
    const active = admin && (page.isOpen?.(item) ?? true);
    const label = page.labelOf(item);
    const box = h('input', {
      type: 'checkbox',
      checked: selected.has(page.keyOf(item)),
      'aria-label': `Select ${label}`,
      on: { change: (event) => select([item], event.target.checked) },
    });
    const replay = h(
      'button',
      {
        type: 'button',
        'aria-label': `Replay ${label}`,
        on: { click: () => after(page.replay(page.selection([item]), label)) },
      },
      'Replay',
    );
    const [first, ...rest] = page.cells(item);
    const cells = [h('span.check', null, active && box, first), ...rest];
    if (admin) cells.push(active ? replay : null);
    return { key: page.keyOf(item), cells };
  }

  function draw() {
    morph(toolbar, tools());
    const empty = filtered ? `No ${one} matches the filter.` : `No ${several}.`;
    morph(
      list,
      admin && open().length > 0 && selectAll(),
      table({
        caption: page.caption,
        columns: admin ? [...page.columns, ['-Actions', 'end']] : page.columns,
        rows: shown.map(row),
        empty: more ? 'Nothing on this page; see the next one.' : empty,
      }),
    );
    morph(pages, pager.buttons(several));
  }

  function selectAll() {
    const items = open();
    const box = h('input', {
      type: 'checkbox',
      checked: selected.size === items.length,
      on: { change: (event) => select(items, event.target.checked) },
    });
    return h('label.check.select-all', null, box, ' Select all on this page');
  }

  const title = several[0].toUpperCase() + several.slice(1);
  const body = h(
    'div',
    null,
    page.before,
    h('div.page-head', null, h('h1', null, title)),
    filterForm(page, filtered || Object.values(options).some(Boolean)),
    wrong,
    h('section.panel', { 'aria-label': title }, toolbar, list),
    pages,
  );
  return { title, body };
}

function filterForm({ home, one, several, fields, filter, options = {} }, clearable) {
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]),
    );
    location.hash = hrefWith(home, values);
  };
  const values = { ...filter, ...options };
  const field = ({ name, label, options: choices }) => {
    const id = `${one.replaceAll(' ', '-')}-${name}`;
    const value = String(values[name] ?? '');
    const input = choices
      ? h(
          'select',
          { id, name },
          choices.map(([key, text]) => h('option', { value: key, selected: key === value }, text)),
        )
      : h('input', { id, name, value, autocomplete: 'off', spellcheck: 'false' });
    return h('div.field', null, h('label', { for: id }, label), input);
  };
  return h(
    'form.filter',
    { role: 'search', 'aria-label': `Filter ${several}`, on: { submit } },
    fields.map(field),
    h(
      'div.buttons',
      null,
      h('button', { type: 'submit' }, 'Filter'),
      clearable && h('a.button', { href: home }, 'Clear'),
    ),
  );
}
