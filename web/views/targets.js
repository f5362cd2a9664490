// Push targets: the health of each, its effective rate, its calls, and the switch.

import { get } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { count, time } from '../format.js';
import { targetChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { table } from '../parts/table.js';
import { poll } from '../poll.js';
import { mayForAll } from '../session.js';
import { effectiveRate } from './overview.js';

export default function targets({ signal }) {
  const wrong = h('div');
  const list = h('div');

  async function read() {
    try {
      const { items } = await get('/v1/targets', { signal });
      morph(wrong);
      morph(list, targetTable(items, again));
    } catch (error) {
      if (error.name !== 'AbortError') morph(wrong, problem(error));
    }
  }
  const again = poll(read, 2_000, signal);
  const body = h(
    'div',
    null,
    h('div.page-head', null, h('h1', null, 'Targets')),
    wrong,
    h('section.panel', { 'aria-label': 'Targets' }, list),
  );
  return { title: 'Targets', body };
}

function calls({ calls: { completed, failed, throttled, retried } }) {
  const part = (value, word, tone) =>
    h('span', { class: value > 0 ? tone : 'muted' }, `${count(value)} ${word}`);
  return h(
    'div.calls',
    null,
    part(completed, 'completed'),
    part(failed, 'failed', 'bad-text'),
    part(throttled, 'throttled', 'warn-text'),
    part(retried, 'retried'),
  );
}

// How many of the last calls succeeded.
function recently({ recentCalls: { completed, failed, throttled, retried } }) {
  const all = completed + failed + throttled + retried;
  if (all === 0) return null;
  const share = Math.floor((completed / all) * 100);
  return h('div.muted.small', null, `${share} % of the last ${count(all)} calls succeeded`);
}

function lastFailure({ lastFailure: failure }) {
  if (!failure) return h('span.muted', null, 'never');
  return [time(failure.at), h('div.muted.small', null, failure.error)];
}

function targetTable(items, again) {
  const admin = mayForAll('ADMIN');
  const toggle = (target) => {
    const off = target.state === 'DISABLED';
    const click = async () =>
      (await (off ? commands.enableTarget(target.name) : commands.disableTarget(target.name))) && again();
    return h(
      'button',
      {
        type: 'button',
        class: off ? '' : 'danger-text',
        'aria-label': `${off ? 'Enable' : 'Disable'} ${target.name}`,
        on: { click },
      },
      off ? 'Enable' : 'Disable',
    );
  };
  const columns = [
    ['Target'],
    ['State'],
    ['Effective rate'],
    ['Busy', 'number'],
    ['Calls'],
    ['Last success'],
    ['Last failure'],
  ];
  if (admin) columns.push(['-Actions', 'end']);
  return table({
    caption:
      'Push targets: state, effective rate against the configured one, calls since this process started',
    columns,
    rows: items.map((target) => {
      const cells = [
        [
          h('span.name', null, target.name),
          h('div.muted.small.break', null, target.url),
          h('div.muted.small', null, target.types.join(', ')),
        ],
        [
          targetChip(target.state),
          recently(target),
          target.reason && h('div.muted.small', null, target.reason),
        ],
        effectiveRate(target.rps, target.configuredRps),
        `${count(target.busy)} of ${count(target.concurrency)}`,
        calls(target),
        time(target.lastSuccessAt),
        lastFailure(target),
      ];
      return { key: target.name, cells: admin ? [...cells, toggle(target)] : cells };
    }),
    empty: 'No targets are configured: jobs are taken by pull workers only.',
  });
}
