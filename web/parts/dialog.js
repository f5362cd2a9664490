// Asks before something is done: what it does, what it needs to know, and why.

import { h, morph } from '../dom.js';
import { explanation } from './notices.js';

let numbers = 0;

function field({ name, label, hint, kind = 'text', value = '', required = false, ...attributes }) {
  numbers += 1;
  const id = `field-${numbers}`;
  const tag = kind === 'area' ? 'textarea' : 'input';
  const type = kind === 'area' ? null : kind;
  const described = hint ? `${id}-hint` : null;
  return h(
    'div.field',
    null,
    h('label', { for: id }, label, !required && h('span.muted', null, ' (optional)')),
    h(tag, {
      id,
      name,
      type,
      value,
      required,
      'aria-describedby': described,
      autocomplete: 'off',
      ...attributes,
    }),
    hint && h('p.muted.small', { id: described }, hint),
  );
}

/** The field for the audit log. */
export const reason = (required) => ({
  name: 'why',
  label: 'Reason',
  kind: 'area',
  rows: 2,
  required,
  maxlength: 1_000,
  hint: 'Kept in the audit log.',
});

/**
 * Opens a dialog and runs `run` with the fields' values when it is confirmed. It stays open, with what was wrong,
 * while `run` fails. Resolves to true once it was done, to false if somebody thought better of it.
 */
export function ask({ title, text, fields = [], confirm, danger = false, run }) {
  return new Promise((resolve) => {
    numbers += 1;
    const id = `dialog-${numbers}`;
    const wrong = h('div');
    const button = h(danger ? 'button.danger' : 'button.primary', { type: 'submit' }, confirm);
    let done = false;

    async function submit(event) {
      event.preventDefault();
      const values = Object.fromEntries(
        [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]),
      );
      button.disabled = true;
      morph(wrong);
      try {
        await run(values);
        done = true;
        dialog.close();
      } catch (error) {
        morph(wrong, h('div.problem', { role: 'alert' }, explanation(error)));
      }
      button.disabled = false;
    }

    const dialog = h(
      'dialog',
      {
        'aria-labelledby': id,
        on: {
          close: () => {
            dialog.remove();
            resolve(done);
          },
        },
      },
      h(
        'form',
        { method: 'dialog', on: { submit } },
        h('h2', { id }, title),
        text && h('p', null, text),
        fields.map(field),
        wrong,
        h(
          'div.buttons',
          null,
          h('button', { type: 'button', on: { click: () => dialog.close() } }, 'Back'),
          button,
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** An empty text is nothing. */
export const orNothing = (text) => (text ? text : undefined);
