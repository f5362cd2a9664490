// Why something waits: one sentence, the reasons one by one, and when it should start.

import { h } from '../dom.js';
import { capital, count, many, plain, range, time } from '../format.js';

const REASONS = {
  BEHIND: ({ jobs }) =>
    `${many(jobs, 'job')} of its group and priority ${jobs === 1 ? 'starts' : 'start'} first`,
  GROUP_PAUSED: () => 'Its group is paused: resume it',
  BATCH_PAUSED: () => 'Its batch is paused: resume it',
  DELAYED: ({ until, reason }) => ['Delayed (', plain(reason), '), due ', time(until, 'until')],
  GROUP_SPENT: ({ limit, until }) => [
    `Its group used up its ${many(limit, 'start')} per window; it may start the next job `,
    time(until, 'until'),
  ],
  GROUP_IN_QUEUE_SPENT: ({ limit, until }) => [
    `Its group used up its ${many(limit, 'start')} per window in this queue; it may start the next job there `,
    time(until, 'until'),
  ],
  GROUP_BUSY: ({ limit }) => `Its group has ${many(limit, 'job')} running, the most it may`,
  GROUP_IN_QUEUE_BUSY: ({ limit }) => `Its group has ${many(limit, 'job')} running in this queue, the most it may`,
  QUEUE_BUSY: ({ limit }) => `Its queue has ${many(limit, 'job')} running, the most it may`,
  WINDOW_SPENT: ({ limit, until }) => [
    `All ${count(limit)} starts of this window are used up; the next one begins `,
    time(until, 'until'),
  ],
  QUEUE_SPENT: ({ limit, until }) => [
    `Its queue used up the ${count(limit)} starts that its effective rate allows in this window; the next one begins `,
    time(until, 'until'),
  ],
  READY_FULL: ({ ready }) => `The ready queue is full (${many(ready, 'job')}): workers are too slow`,
  WORKERS_BUSY: ({ queue }) => `Every worker of queue ${queue} is busy`,
  NO_WORKERS: ({ queue }) => `No worker has polled queue ${queue} recently: is one running?`,
  TARGET_DISABLED: ({ target, reason }) => `Target ${target} is disabled: ${reason}`,
  TURN: ({ queue }) => `Nothing holds it back: the next worker of queue ${queue} takes it in turn`,
};

const sentence = (reason) => REASONS[reason.what]?.(reason) ?? capital(plain(reason.what));

const starts = (estimate) =>
  estimate.unknown ? `Start unknown: ${range(estimate).toLowerCase()}.` : `Starts in ${range(estimate)}.`;

export function why(answer) {
  return h(
    'div',
    null,
    // With reasons the sentence would only say the same again.
    answer.reasons.length === 0
      ? h('p', null, answer.text)
      : h(
          'ol.reasons',
          { title: answer.text },
          answer.reasons.map((reason) => h('li', null, sentence(reason))),
        ),
    answer.starts && h('p.muted', null, starts(answer.starts)),
  );
}
