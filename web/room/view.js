// What the visitor sees for each state: the same parts as the server's page without scripts, and what only lives here.

import { h } from '../dom.js';
import { clock, count, days, FAR_MS, fill, lasting, range } from './words.js';

/** For each status of a room: its class, and the name of its word. */
const STATUSES = {
  NOT_OPEN: ['not-open', 'statusNotOpen'],
  OPEN: ['open', 'statusOpen'],
  PAUSED: ['paused', 'statusPaused'],
  SOLD_OUT: ['sold-out', 'statusSoldOut'],
  CLOSED: ['closed', 'statusClosed'],
};

/** For each end of a ticket: what the names of its words begin with. */
const ENDS = {
  COMPLETED: 'completed',
  LEFT: 'left',
  LOST: 'lost',
  NO_SHOW: 'noShow',
  EXPIRED: 'expired',
};

/** Addresses that a link may lead to: no scripts, no data. */
export function safe(address) {
  try {
    const url = new URL(address, location.href);
    return ['https:', 'http:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** `page` is what was handed over, `commands` what the buttons do. */
export function viewer({ words, texts }, commands) {
  const people = (value) => fill(words.people, { n: count(value) });
  const button = (text, look, click, more) =>
    h('button', { type: 'button', class: look, on: { click }, ...more }, text);

  const chip = (status) => {
    const [look, word] = STATUSES[status];
    return h('p.chip', { class: look }, h('span.unseen', null, `${words.status}: `), words[word]);
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

  const message = (key, look, status, heading, text, actions, ...more) =>
    h(
      'section.card.message',
      { key, class: look },
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
      // A clock that is read out every second would be a torment: it is for eyes, the moment beside it for all.
      left > 0
        ? h('b.time', { 'aria-hidden': 'true' }, left < FAR_MS ? clock(left) : days(words, left))
        : h('b.time.soon', null, words.opensSoon),
      ' ',
      h('span.fine', null, h('time', { datetime: opensAt }, fill(words.opensAt, { time: when }))),
    );
  }

  /** Seats may be added, and a room opened again. */
  const check = () => h('a.button', { href: location.href }, words.check);

  const kept = (state) =>
    h('p.fine', null, fill(words.kept, { span: lasting(words, state.keptMs) }));

  function entry(state) {
    const { status } = state;
    const joining = state.mode === 'joining';
    if (status === 'CLOSED')
      return message('closed', 'over', status, words.closedHeading, texts.closed, check());
    if (status === 'SOLD_OUT')
      return message('sold', 'over', status, words.soldOutHeading, words.soldOutText, check());
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
        figures([[early ? words.here : words.waiting, people(state.waiting)]]),
        joining && state.work && work(state.work),
        h(
          'div.actions',
          null,
          button(joining ? words.joining : words.join, 'primary', commands.join, {
            'aria-disabled': joining ? 'true' : null,
          }),
        ),
      ),
      steps(),
    ];
  }

  function early(state) {
    const { place } = state;
    return [
      h(
        'section.card',
        { key: 'early' },
        chip(place.roomStatus),
        h('h2.lead', { tabindex: -1 }, words.earlyHeading),
        opening(place.opensAt, state.now),
        h('p', null, words.earlyText),
        figures([[words.here, people(place.waiting)]]),
        h('div.actions', null, button(words.leave, 'quiet', commands.leave)),
        kept(state),
      ),
      steps(),
    ];
  }

  const bar = (label, percent) =>
    h(
      'div.track',
      {
        role: 'progressbar',
        'aria-label': label,
        'aria-valuemin': 0,
        'aria-valuemax': 100,
        'aria-valuenow': percent,
      },
      h('span.fill', { style: { width: `${percent}%` } }),
    );

  /** Nobody knows how many tries are left; how many browsers in a hundred are done by now is known. */
  function work({ tries, likely }) {
    const percent = Math.floor(100 * (1 - Math.exp(-tries / likely)));
    return h(
      'div.way',
      { key: 'work' },
      h('p', null, words.working),
      bar(words.workProgress, percent),
      h(
        'p.fine',
        { 'aria-hidden': 'true' },
        fill(words.workTries, { n: count(tries), all: count(likely) }),
      ),
    );
  }

  function track(place, first) {
    const whole = Math.max(1, first - 1);
    const share = Math.min(1, Math.max(0, (first - place.position) / whole));
    const percent = Math.round(100 * (first > 1 ? share : 1));
    return h(
      'div.way',
      null,
      bar(words.progress, percent),
      h(
        'p.fine.ends',
        { 'aria-hidden': 'true' },
        h('span', null, fill(words.startedAt, { n: count(first) })),
        h('span', null, words.front),
      ),
    );
  }

  function waiting(state) {
    const { place } = state;
    const eta = place.eta ? range(words, place.eta.lowMs, place.eta.highMs) : words.etaUnknown;
    const next = place.position === 1 && place.roomStatus === 'OPEN';
    const paused = place.roomStatus === 'PAUSED' ? words.pausedText : null;
    const hint = next ? words.nextOne : paused;
    return [
      h(
        'section.card',
        { key: 'waiting', class: state.silentMs === null ? '' : 'dim' },
        chip(place.roomStatus),
        h(
          'h2.position',
          { tabindex: -1 },
          h('span.label', null, words.position),
          ' ',
          h('b', null, place.position ? fill(words.positionValue, { n: count(place.position) }) : '–'),
        ),
        hint && h('p.hint', { class: next ? 'soon' : '' }, hint),
        place.position && track(place, state.first),
        figures([
          [words.eta, eta],
          [words.ahead, place.ahead === undefined ? null : people(place.ahead)],
          [words.behind, place.behind === undefined ? null : people(place.behind)],
        ]),
        h('div.actions', null, button(words.leave, 'quiet', commands.leave)),
        kept(state),
      ),
      steps(),
    ];
  }

  function granted(state) {
    const { pass } = state.place;
    const goTo = pass?.goTo && safe(pass.goTo);
    const left = pass ? Date.parse(pass.expiresAt) - state.now : 0;
    const going = goTo && state.goMs !== null;
    return message(
      'granted',
      'turn',
      null,
      words.grantedHeading,
      texts.granted,
      [
        goTo && h('a.button.primary', { href: goTo, on: { click: commands.gone } }, words.go),
        going && button(words.stay, 'button', commands.stay),
        !going && button(words.giveUp, 'quiet', commands.leave),
      ],
      goTo &&
        h(
          'p.going',
          { key: 'going' },
          going ? fill(words.going, { n: Math.ceil(state.goMs / 1_000) }) : words.stayed,
        ),
      pass &&
        !goTo &&
        h(
          'div.pass',
          { key: 'pass' },
          h('span.label', null, words.pass),
          h('code', { tabindex: 0 }, pass.token),
          button(state.copied ? words.copied : words.copy, 'button', commands.copy),
        ),
      pass &&
        h(
          'p.fine',
          { key: 'left' },
          left > 0 ? fill(words.passFor, { span: lasting(words, left) }) : words.passOver,
        ),
    );
  }

  function ended(state) {
    const { place, closed } = state;
    const status = closed?.reason === 'SOLD_OUT' ? 'SOLD_OUT' : (place?.roomStatus ?? state.status);
    if (closed?.reason === 'CLOSED')
      return message('closed', 'over', 'CLOSED', words.closedHeading, texts.closed, check());
    if (closed?.reason === 'SOLD_OUT')
      return message('sold', 'over', status, words.soldOutHeading, words.soldOutOver, check());
    if (closed?.reason === 'FULL')
      return message('full', 'over', null, words.fullHeading, words.fullText, [
        button(words.check, 'primary', commands.join),
      ]);
    const how = ENDS[closed?.end ?? place?.end] ?? 'ended';
    return message(
      `over-${how}`,
      'over',
      status,
      words[`${how}Heading`],
      words[`${how}Text`],
      status !== 'CLOSED' && [button(words.again, 'primary', commands.again)],
    );
  }

  function stage(state) {
    switch (state.mode) {
      case 'elsewhere':
        return message('elsewhere', 'over', null, words.elsewhereHeading, words.elsewhereText, [
          button(words.useHere, 'primary', commands.here),
        ]);
      case 'over':
        return ended(state);
      case 'entry':
      case 'joining':
        return entry(state);
      default:
    }
    const { roomStatus: reason } = state.place;
    if (['EARLY', 'WAITING'].includes(state.place.state) && ['CLOSED', 'SOLD_OUT'].includes(reason))
      return ended({ ...state, closed: { reason } });
    switch (state.place.state) {
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
    if (state.trouble) return h('p.notice', { key: 'trouble' }, state.trouble);
    if (state.silentMs === null) return null;
    const left = state.keptMs - state.silentMs;
    let text = words.offline;
    if (state.mode === 'joining') text = words.busy;
    else if (['WAITING', 'EARLY'].includes(state.place?.state) && left > 0)
      text = fill(words.offlineFor, { span: lasting(words, left) });
    return h('p.notice.silent', { key: 'silent' }, text);
  }

  return (state) => [banner(state), stage(state)];
}

/** Asks before a place is given up; resolves to whether it is. */
export function sure(words, question) {
  return new Promise((resolve) => {
    let yes = false;
    const dialog = h(
      'dialog',
      {
        'aria-labelledby': 'leave-question',
        on: {
          close: () => {
            dialog.remove();
            resolve(yes);
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
                yes = true;
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
