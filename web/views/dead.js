// Dead jobs: which, since when and why.

import * as commands from '../commands.js';
import { h } from '../dom.js';
import { capital, count, plain, time } from '../format.js';
import { deadItems } from '../parts/dead-items.js';
import { json } from '../parts/table.js';
import { href } from '../router.js';
import { may, mayForAll } from '../session.js';

const REASONS = ['FAILED', 'ATTEMPTS_USED_UP', 'EXPIRED', 'CANCELLED'];

export default function dead({ query, signal }) {
  const filter = { group: query.group ?? '', type: query.type ?? '', reason: query.reason ?? '' };
  // A key for some groups has to name one of them.
  const allowed = Boolean(filter.group) || mayForAll('READ');
  return deadItems({
    one: 'dead job',
    several: 'dead jobs',
    caption: 'Dead jobs, the latest first',
    home: '#/dead',
    path: '/v1/dead-jobs',
    signal,
    filter,
    fields: [
      { name: 'group', label: 'Group' },
      { name: 'type', label: 'Type' },
      {
        name: 'reason',
        label: 'Reason',
        options: [['', 'any'], ...REASONS.map((reason) => [reason, plain(reason)])],
      },
    ],
    admin: may('ADMIN'),
    blocked: allowed ? null : 'This key is limited to some groups: enter one of them above.',
    keyOf: (job) => JSON.stringify([job.group, job.id]),
    labelOf: (job) => `${job.id} of ${job.group}`,
    selection: (jobs) => ({ jobs: jobs.map(({ group, id }) => ({ group, id })) }),
    replay: commands.replayDead,
    purge: commands.purgeDead,
    columns: [['Job'], ['Group'], ['Type'], ['Reason'], ['Error', 'wide'], ['Attempts', 'number'], ['Died']],
    cells: (job) => [
      h('a.name', { href: href`/groups/${job.group}/jobs/${job.id}` }, job.id),
      h('a.name', { href: href`/groups/${job.group}` }, job.group),
      job.type,
      capital(plain(job.deathReason ?? 'unknown')),
      details(job),
      `${count(job.attempts)} of ${count(job.maxAttempts)}`,
      time(job.finishedAt),
    ],
  });
}

function details(job) {
  return h(
    'details',
    null,
    h('summary.one-line', null, job.error ?? 'Payload'),
    job.error && [h('h3', null, 'Error'), h('pre.json', { tabindex: 0 }, job.error)],
    h('h3', null, 'Payload'),
    json(job.payload),
  );
}
