// Says what happened: short notices at the edge of the page, and problems in place.

import { Problem } from '../api.js';
import { h } from '../dom.js';

const SHOWN_MS = 6_000;

function notice(kind, role, content, ms) {
  const element = h(
    `div.notice.${kind}`,
    { role },
    h('div', null, content),
    h(
      'button.quiet.icon',
      { type: 'button', 'aria-label': 'Dismiss', on: { click: () => element.remove() } },
      '×',
    ),
  );
  document.getElementById('notices').append(element);
  if (ms) setTimeout(() => element.remove(), ms);
}

/** Something was done. */
export function success(text) {
  notice('good', 'status', text, SHOWN_MS);
}

/** Something was refused: stays until it is dismissed. */
export function failure(error) {
  if (error?.name === 'AbortError') return;
  notice('bad', 'alert', explanation(error), 0);
}

/** What went wrong, with the id that finds it in the server's log. */
export function explanation(error) {
  if (!(error instanceof Problem)) {
    console.error(error);
    return [h('strong', null, 'Something went wrong on this page'), ' ', String(error?.message ?? error)];
  }
  const about = [error.code, error.requestId && `request ${error.requestId}`].filter(Boolean).join(' · ');
  return [
    h('strong', null, error.title || 'The request failed'),
    h('p', null, error.message),
    h('p.muted.small', null, about),
  ];
}

/** A problem where the content would be. */
export function problem(error) {
  return h('div.problem', { role: 'alert' }, explanation(error));
}
