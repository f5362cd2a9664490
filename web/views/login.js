// Asks for a key. It goes to the server once and is kept nowhere here; the session is a cookie.

import { h, morph } from '../dom.js';
import { explanation } from '../parts/notices.js';
import * as session from '../session.js';

/** Calls `welcome` once the key was accepted. */
export default function login(welcome) {
  const wrong = h('div');
  const button = h('button.primary', { type: 'submit' }, 'Log in');

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    morph(wrong);
    try {
      await session.login(new FormData(event.target).get('key').trim());
      event.target.reset();
      await welcome();
    } catch (error) {
      const text = error.status === 401 ? h('strong', null, 'Unknown key.') : explanation(error);
      morph(wrong, h('div.problem', { role: 'alert' }, text));
    }
    button.disabled = false;
  }

  const body = h(
    'section.panel.login',
    null,
    h('h1', null, 'Log in'),
    h(
      'p.muted',
      null,
      'This service requires a key. Its operator creates one with ',
      h('code', null, 'tidegate key'),
      '.',
    ),
    h(
      'form',
      { on: { submit } },
      h(
        'div.field',
        null,
        h('label', { for: 'key' }, 'Key'),
        h('input', {
          id: 'key',
          name: 'key',
          type: 'password',
          required: true,
          autocomplete: 'current-password',
          spellcheck: 'false',
        }),
      ),
      wrong,
      button,
    ),
  );
  return { title: 'Log in', body };
}
