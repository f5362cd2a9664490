// Why something waits: one sentence, the reasons one by one, and when it should start.

import { h } from '../dom.js';
import { count, many, plain, time } from '../format.js';

const REASONS = {
  behind: ({ jobs }) =>
    `${many(jobs, 'job')} of its group and level ${jobs === 1 ? 'starts' : 'start'} first`,
  group_paused: () => 'Its group is paused: resume it',
  action_paused: () => 'Its action is paused: resume it',
  delayed: ({ until, reason }) => ['Delayed (', plain(reason), '), due ', time(until, 'until')],
  share_used_up: ({ ceiling, until }) => [
    `Its group used up its ${count(ceiling)} starts of this window; the next one begins `,
    time(until, 'until'),
  ],
  group_busy: ({ ceiling }) => `Its group has ${count(ceiling)} jobs running, as many as it may`,
  window_spent: ({ limit, until }) => [
    `All ${count(limit)} starts of this window are used up; the next one begins `,
    time(until, 'until'),
  ],
  lane_spent: ({ limit, until }) => [
    `Its lane used up the ${count(limit)} starts that its downstream bears; the next window begins `,
    time(until, 'until'),
  ],
  ready_full: ({ ready }) => `Ready is full with ${many(ready, 'job')}: workers are too slow`,
  workers_busy: ({ lane }) => `Every worker of lane ${lane} is busy`,
  no_workers: ({ lane }) => `No worker has asked for work of lane ${lane} lately: is one running?`,
  target_disabled: ({ target, reason }) => `Target ${target} is disabled: ${reason}`,
  turn: ({ lane }) => `Nothing holds it: the next worker of lane ${lane} takes it in its turn`,
};

const tell = (reason) => REASONS[reason.what]?.(reason) ?? plain(reason.what);

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
          answer.reasons.map((reason) => h('li', null, tell(reason))),
        ),
    answer.starts_at && h('p.muted', null, 'Should start ', time(answer.starts_at, 'until'), '.'),
  );
}
