// The budget of one provider: what is called against what is allowed, in this second and on this day.

import { chart } from '../chart.js';
import { h, morph } from '../dom.js';
import { count, measured, percent, rate, short, time } from '../format.js';
import { gauge, meter } from './bar.js';
import { chip } from './chip.js';

/** The panel of one budget; `update` takes it as the API tells it, and what was seen of its calls so far. */
export function budgetPanel(name) {
  const head = h('div');
  const now = h('div.budget');
  const calls = chart({
    label: `Calls per second to ${name} since this page was opened`,
    series: [{ name: 'calls', look: 'rate', of: (sample) => sample.calls }],
    limit: { name: 'hard limit', look: 'limit', of: (sample) => sample.limit },
    format: { value: (value) => `${measured(value)}/s`, axis: short },
    height: 150,
  });
  const element = h('section.panel', null, head, h('div.two', null, now, calls.element));
  return {
    element,
    update(budget, sources, samples) {
      morph(head, title(budget, sources));
      morph(now, budget.seen ? [second(budget), tokens(budget), day(budget)] : unseen());
      calls.update(samples);
    },
  };
}

const unseen = () => h('p.muted', null, 'Not reported yet: the store has not answered.');

function title({ name, seen }, sources) {
  const used = sources.filter(({ budget }) => budget === name).map((source) => source.name);
  return h(
    'div.panel-head',
    null,
    h(
      'h2',
      null,
      `Budget ${name}`,
      h('span.muted.plain', null, used.length > 0 ? ` · ${used.join(', ')}` : ' · for pushes only'),
    ),
    seen && state(seen),
  );
}

function state({ holdUntil, dayLeftHigh, dayEnds }) {
  if (holdUntil)
    return h('span.chips', null, chip('On hold', 'warn', 'bars', 'The provider asked to wait'), [
      h('span.small', { key: 'until' }, 'calls resume ', time(holdUntil, 'until')),
    ]);
  if (dayLeftHigh === 0)
    return h('span.chips', null, chip('Daily limit reached', 'bad', 'cross'), [
      h('span.small', { key: 'until' }, 'calls resume ', time(dayEnds, 'until')),
    ]);
  return chip('Open', 'good', 'check', 'Calls are made as the budget allows');
}

function second({ rate: allowed, hardLimit, seen }) {
  const known = seen.callsPerSecond;
  const calls = known ?? 0;
  const words = `${measured(calls)} calls per second of ${rate(allowed)} configured; the provider allows ${rate(hardLimit)}`;
  return h(
    'div.row',
    { key: 'second' },
    h(
      'p.big',
      null,
      h('b', null, known === undefined ? '–' : measured(known)),
      h('span.muted', null, ` of ${rate(allowed)} calls/s`),
    ),
    gauge({
      value: calls,
      zone: allowed,
      end: hardLimit,
      label: words,
      tone: calls > hardLimit ? 'bad' : '',
    }),
    h(
      'p.muted.small.ends',
      { title: 'A burst after a quiet moment may exceed the rate, but never the hard limit' },
      h('span', null, `${percent(calls, allowed)} of the configured rate`),
      h('span', null, `hard limit ${rate(hardLimit)}/s`),
    ),
  );
}

function tokens({ burst, lowBurst, lowCap, seen }) {
  const line = (label, value, most, title) =>
    h(
      'div.tokens',
      { title },
      h('span.small.muted', null, label),
      meter(value, most, `${label}: ${count(value)} of ${count(most)}`),
      h('span.small', null, `${count(value)} of ${count(most)}`),
    );
  return h(
    'div.row',
    { key: 'tokens' },
    line('Tokens left', seen.tokens, burst, 'Calls that may be made at once'),
    line('for LOW', seen.lowTokens, lowBurst, `LOW gets at most ${rate(lowCap)} calls per second`),
  );
}

function day({ perDay, dayReserve, seen }) {
  const left = `${count(seen.dayLeftHigh)} left for HIGH, ${count(seen.dayLeftLow)} for LOW`;
  const used = perDay > 0 ? `${count(seen.dayUsed)} of ${count(perDay)}` : count(seen.dayUsed);
  return h(
    'div.row',
    { key: 'day' },
    h(
      'p.small.ends',
      null,
      h('span', null, h('b', null, used), h('span.muted', null, ' calls today')),
      h('span.muted', null, 'resets ', time(seen.dayEnds, 'until')),
    ),
    perDay > 0
      ? [
          gauge({
            value: seen.dayUsed,
            zone: perDay - dayReserve,
            end: perDay,
            label: `${used} calls today; ${count(dayReserve)} are reserved for HIGH; ${left}`,
            tone: seen.dayLeftHigh === 0 ? 'bad' : '',
          }),
          h(
            'p.muted.small.ends',
            null,
            h('span', null, left),
            h('span', null, `${short(dayReserve)} reserved for HIGH`),
          ),
        ]
      : h('p.muted.small', null, 'No daily limit.'),
  );
}
