// Builds the content of the page for each state: the parts of the server's page without scripts, and the live ones.

import { h } from '../dom.js';
import { count, countdown, days, duration, durationRange, fill, MAX_COUNTDOWN_MS } from './words.js';

/** For each status of a room: its class, and the name of its text. */
const STATUSES = {
  NOT_OPEN: ['not-open', 'statusNotOpen'],
  OPEN: ['open', 'statusOpen'],
  PAUSED: ['paused', 'statusPaused'],
  SOLD_OUT: ['sold-out', 'statusSoldOut'],
  CLOSED: ['closed', 'statusClosed'],
};

/** For each end of a ticket: the prefix of the names of its texts. */
const ENDS = {
  COMPLETED: 'completed',
  LEFT: 'left',
  LOST: 'lost',
  NO_SHOW: 'noShow',
  EXPIRED: 'expired',
};

/** Returns the URL if it is safe in a link: HTTP only, no script and no data. Else null. */
export function safe(address) {
  try {
    const url = new URL(address, location.href);
    return ['https:', 'http:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Returns a function that builds the content for a state. `words` and `texts` are page data; buttons call `handlers`. */
export function createView({ words, texts }, handlers) {
  const people = (value) => fill(words.people, { n: count(value) });
  const button = (text, className, click, attributes) =>
    h('button', { type: 'button', class: className, on: { click }, ...attributes }, text);

  const chip = (status) => {
    const [className, text] = STATUSES[status];
    return h('p.chip', { class: className }, h('span.visually-hidden', null, `${words.status}: `), words[text]);
  };

  const figures = (pairs) =>
    h(
      'dl.figures',
      null,
      pairs
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => h('div', { key: name }, h('dt', null, name), h('dd', null, value))),
    );

  const steps = () =>
    h(
      'section.next',
      { key: 'next' },
      h('h2', null, words.nextHeading),
      h(
        'ol',
        null,
        texts.next
          .split('\n')
          .filter((text) => text.trim())
          .map((text) => h('li', null, text.trim())),
      ),
    );

  const message = (key, className, status, heading, text, actions, ...more) =>
    h(
      'section.card.message',
      { key, class: className },
      status && chip(status),
      h('h2.lead', { tabindex: -1 }, heading),
      text && h('p', null, text),
      more,
      actions && h('div.actions', null, actions),
    );

  function opening(opensAt, now) {
    if (!opensAt) return null;
    const at = Date.parse(opensAt);
    const left = at - now;
    const when = new Date(at).toLocaleString(document.documentElement.lang, {
      dateStyle: 'medium',
      timeStyle: 'short',
    });
    return h(
      'p.opening',
      null,
      h('span.label', null, words.opensIn),
      ' ',
      // Hidden from screen readers, which would read it out every second. They get the time of the opening beside it.
      left > 0
        ? h('b.time', { 'aria-hidden': 'true' }, left < MAX_COUNTDOWN_MS ? countdown(left) : days(words, left))
        : h('b.time.soon', null, words.opensSoon),
      ' ',
      h('span.fine', null, h('time', { datetime: opensAt }, fill(words.opensAt, { time: when }))),
    );
  }

  /** A link to reload the page: operators may add seats, or open the room again. */
  const checkLink = () => h('a.button', { href: location.href }, words.check);

  const graceNotice = (state) =>
    h('p.fine', null, fill(words.graceNotice, { span: duration(words, state.graceMs) }));

  function entry(state) {
    const { status } = state;
    const joining = state.mode === 'joining';
    if (status === 'CLOSED')
      return message('closed', 'ended', status, words.closedHeading, texts.closed, checkLink());
    if (status === 'SOLD_OUT')
      return message('sold-out', 'ended', status, words.soldOutHeading, words.soldOutText, checkLink());
    const early = status === 'NOT_OPEN';
    return [
      h(
        'section.card',
        { key: 'entry' },
        chip(status),
        h('h2.lead', { tabindex: -1 }, early ? words.joinEarly : words.joinHeading),
        early && opening(state.opensAt, state.now),
        early && h('p', null, words.earlyText),
        status === 'PAUSED' && h('p', null, words.pausedJoin),
        figures([[early ? words.alreadyHere : words.waiting, people(state.waiting)]]),
        joining && state.proofProgress && proofProgress(state.proofProgress),
        h(
          'div.actions',
          null,
          button(joining ? words.joining : words.join, 'primary', handlers.join, {
            'aria-disabled': joining ? 'true' : null,
          }),
        ),
      ),
      steps(),
    ];
  }

  function early(state) {
    const { ticket } = state;
    return [
      h(
        'section.card',
        { key: 'early' },
        chip(ticket.roomStatus),
        h('h2.lead', { tabindex: -1 }, words.earlyHeading),
        opening(ticket.opensAt, state.now),
        h('p', null, words.earlyText),
        figures([[words.alreadyHere, people(ticket.waiting)]]),
        h('div.actions', null, button(words.leave, 'quiet', handlers.leave)),
        graceNotice(state),
      ),
      steps(),
    ];
  }

  const progressBar = (label, percent) =>
    h(
      'div.progress-bar',
      {
        role: 'progressbar',
        'aria-label': label,
        'aria-valuemin': 0,
        'aria-valuemax': 100,
        'aria-valuenow': percent,
      },
      h('span.fill', { style: { width: `${percent}%` } }),
    );

  /** Shows the probability that this many attempts solve the challenge, because nobody knows how many remain. */
  function proofProgress({ attempts, expected }) {
    const percent = Math.floor(100 * (1 - Math.exp(-attempts / expected)));
    return h(
      'div.progress',
      { key: 'proof' },
      h('p', null, words.proofWorking),
      progressBar(words.proofProgress, percent),
      h(
        'p.fine',
        { 'aria-hidden': 'true' },
        fill(words.proofAttempts, { n: count(attempts), all: count(expected) }),
      ),
    );
  }

  function queueProgress({ position }, startPosition) {
    const distance = Math.max(1, startPosition - 1);
    const share = Math.min(1, Math.max(0, (startPosition - position) / distance));
    const percent = Math.round(100 * (startPosition > 1 ? share : 1));
    return h(
      'div.progress',
      null,
      progressBar(words.progress, percent),
      h(
        'p.fine.ends',
        { 'aria-hidden': 'true' },
        h('span', null, fill(words.startedAt, { n: count(startPosition) })),
        h('span', null, words.front),
      ),
    );
  }

  function waiting(state) {
    const { ticket } = state;
    const eta = ticket.eta ? durationRange(words, ticket.eta.lowMs, ticket.eta.highMs) : words.etaUnknown;
    const next = ticket.position === 1 && ticket.roomStatus === 'OPEN';
    const paused = ticket.roomStatus === 'PAUSED' ? words.pausedText : null;
    const hint = next ? words.nextOne : paused;
    return [
      h(
        'section.card',
        { key: 'waiting', class: state.disconnectedMs === null ? '' : 'disconnected' },
        chip(ticket.roomStatus),
        h(
          'h2.position',
          { tabindex: -1 },
          h('span.label', null, words.position),
          ' ',
          h('b', null, ticket.position ? fill(words.positionValue, { n: count(ticket.position) }) : '–'),
        ),
        hint && h('p.hint', { class: next ? 'soon' : '' }, hint),
        ticket.position && queueProgress(ticket, state.startPosition),
        figures([
          [words.eta, eta],
          [words.ahead, ticket.ahead === undefined ? null : people(ticket.ahead)],
          [words.behind, ticket.behind === undefined ? null : people(ticket.behind)],
        ]),
        h('div.actions', null, button(words.leave, 'quiet', handlers.leave)),
        graceNotice(state),
      ),
      steps(),
    ];
  }

  function granted(state) {
    const { pass } = state.ticket;
    const goTo = pass?.goTo && safe(pass.goTo);
    const left = pass ? Date.parse(pass.expiresAt) - state.now : 0;
    const redirecting = goTo && state.redirectMs !== null;
    return message(
      'granted',
      'turn',
      null,
      words.grantedHeading,
      texts.granted,
      [
        goTo && h('a.button.primary', { href: goTo, on: { click: handlers.endRedirect } }, words.go),
        redirecting && button(words.stay, 'button', handlers.stay),
        !redirecting && button(words.giveUp, 'quiet', handlers.leave),
      ],
      goTo &&
        h(
          'p.redirect',
          { key: 'redirect' },
          redirecting ? fill(words.redirecting, { n: Math.ceil(state.redirectMs / 1_000) }) : words.redirectStopped,
        ),
      pass &&
        !goTo &&
        h(
          'div.pass',
          { key: 'pass' },
          h('span.label', null, words.pass),
          h('code', { tabindex: 0 }, pass.token),
          button(state.copied ? words.copied : words.copy, 'button', handlers.copyPass),
        ),
      pass &&
        h(
          'p.fine',
          { key: 'left' },
          left > 0 ? fill(words.passFor, { span: duration(words, left) }) : words.passExpired,
        ),
    );
  }

  function ended(state) {
    const { ticket, closed } = state;
    const status = closed?.reason === 'SOLD_OUT' ? 'SOLD_OUT' : (ticket?.roomStatus ?? state.status);
    if (closed?.reason === 'CLOSED')
      return message('closed', 'ended', 'CLOSED', words.closedHeading, texts.closed, checkLink());
    if (closed?.reason === 'SOLD_OUT')
      return message('sold-out', 'ended', status, words.soldOutHeading, words.soldOutOver, checkLink());
    if (closed?.reason === 'FULL')
      return message('full', 'ended', null, words.fullHeading, words.fullText, [
        button(words.check, 'primary', handlers.join),
      ]);
    const end = ENDS[closed?.end ?? ticket?.end] ?? 'ended';
    return message(
      `ended-${end}`,
      'ended',
      status,
      words[`${end}Heading`],
      words[`${end}Text`],
      status !== 'CLOSED' && [button(words.again, 'primary', handlers.joinAgain)],
    );
  }

  function content(state) {
    switch (state.mode) {
      case 'superseded':
        return message('superseded', 'ended', null, words.supersededHeading, words.supersededText, [
          button(words.useHere, 'primary', handlers.useHere),
        ]);
      case 'ended':
        return ended(state);
      case 'entry':
      case 'joining':
        return entry(state);
      default:
    }
    const { roomStatus: reason } = state.ticket;
    if (['EARLY', 'WAITING'].includes(state.ticket.state) && ['CLOSED', 'SOLD_OUT'].includes(reason))
      return ended({ ...state, closed: { reason } });
    switch (state.ticket.state) {
      case 'EARLY':
        return early(state);
      case 'GRANTED':
        return granted(state);
      case 'INSIDE':
        return message('inside', 'turn', null, words.insideHeading, words.insideText);
      case 'ENDED':
        return ended(state);
      default:
        return waiting(state);
    }
  }

  function banner(state) {
    if (state.errorText) return h('p.notice', { key: 'error' }, state.errorText);
    if (state.disconnectedMs === null) return null;
    const left = state.graceMs - state.disconnectedMs;
    let text = words.offline;
    if (state.mode === 'joining') text = words.busy;
    else if (['WAITING', 'EARLY'].includes(state.ticket?.state) && left > 0)
      text = fill(words.offlineFor, { span: duration(words, left) });
    return h('p.notice', { key: 'disconnected' }, text);
  }

  return (state) => [banner(state), content(state)];
}

/** Asks the visitor to confirm giving up the ticket; resolves to whether they do. */
export function confirmLeave(words, question) {
  return new Promise((resolve) => {
    let confirmed = false;
    const dialog = h(
      'dialog',
      {
        'aria-labelledby': 'leave-question',
        on: {
          close: () => {
            dialog.remove();
            resolve(confirmed);
          },
        },
      },
      h('h2', { id: 'leave-question' }, question),
      h('p', null, words.leaveText),
      h(
        'div.actions',
        null,
        h('button.primary', { type: 'button', on: { click: () => dialog.close() } }, words.leaveNo),
        h(
          'button.button',
          {
            type: 'button',
            on: {
              click: () => {
                confirmed = true;
                dialog.close();
              },
            },
          },
          words.leaveYes,
        ),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
