// Tables. On a narrow screen each row becomes a block of its own; the roles keep it a table for screen readers.

import { h } from '../dom.js';

/**
 * `columns` are `[name, class]`; a row is `{ key, cells }`. A name that begins with a dash is only read aloud.
 */
export function table({ caption, columns, rows, empty = 'Nothing here.', class: kind = '' }) {
  const names = columns.map(([name]) => name.replace(/^-/, ''));
  const heads = columns.map(([name, align], index) =>
    h(
      'th',
      { scope: 'col', role: 'columnheader', class: align },
      name.startsWith('-') ? h('span.unseen', null, names[index]) : name,
    ),
  );
  const body = rows.map(({ key, cells }) =>
    h(
      'tr',
      { key, role: 'row' },
      cells.map((cell, index) =>
        h(
          'td',
          {
            role: 'cell',
            class: columns[index][1],
            'data-label': columns[index][0].startsWith('-') ? null : names[index],
          },
          cell,
        ),
      ),
    ),
  );
  if (rows.length === 0)
    body.push(h('tr', { role: 'row' }, h('td.empty', { role: 'cell', colspan: columns.length }, empty)));
  return h(
    'table',
    { role: 'table', class: kind },
    h('caption.unseen', null, caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, heads)),
    h('tbody', { role: 'rowgroup' }, body),
  );
}

/** Goes through pages by cursor; what was seen is remembered, because a cursor only leads forward. */
export class Pager {
  #cursors = [null];
  #next = null;

  constructor(turned) {
    this.turned = turned;
  }

  get cursor() {
    return this.#cursors.at(-1);
  }

  get isWhole() {
    return this.#cursors.length === 1 && this.#next === null;
  }

  saw(next) {
    this.#next = next ?? null;
  }

  restart() {
    this.#cursors = [null];
    this.#next = null;
  }

  #turn(change) {
    change();
    this.turned();
  }

  buttons(what) {
    if (this.isWhole) return null;
    const back = {
      type: 'button',
      disabled: this.#cursors.length === 1,
      on: { click: () => this.#turn(() => this.#cursors.pop()) },
    };
    const on = {
      type: 'button',
      disabled: this.#next === null,
      on: { click: () => this.#turn(() => this.#cursors.push(this.#next)) },
    };
    return h(
      'nav.pager',
      { 'aria-label': `Pages of ${what}` },
      h('button', back, 'Previous'),
      h('span.muted', null, `Page ${this.#cursors.length}`),
      h('button', on, 'Next'),
    );
  }
}

/** Names and values. */
export function facts(pairs) {
  return h(
    'dl.facts',
    null,
    pairs
      .filter(Boolean)
      .map(([name, value]) => h('div', { key: name }, h('dt', null, name), h('dd', null, value ?? '–'))),
  );
}

/** JSON to look at. */
export function json(value) {
  return h('pre.json', { tabindex: 0 }, JSON.stringify(value, null, 2));
}
