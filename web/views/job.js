// One job: everything that is kept of it, why it waits, its runs, and the commands that its state allows.

import { get, path } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { capital, count, plain, time } from '../format.js';
import { stateChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { facts, json, table } from '../parts/table.js';
import { why } from '../parts/why.js';
import { poll } from '../poll.js';
import { href } from '../router.js';
import { may } from '../session.js';

export default function job({ names: { group, job: id }, signal }) {
  const parts = Object.fromEntries(
    ['wrong', 'chips', 'buttons', 'facts', 'why', 'runs', 'content'].map((name) => [name, h('div')]),
  );

  async function read() {
    try {
      const [seen, reasons] = await Promise.all([
        get(path`/v1/groups/${group}/jobs/${id}`, { signal }),
        get(path`/v1/groups/${group}/jobs/${id}/why`, { signal }),
      ]);
      morph(parts.wrong);
      content.hidden = false;
      morph(parts.chips, stateChip(seen.state));
      morph(
        parts.buttons,
        may('ADMIN', group) && possible(seen).map(([label, run, look]) => button(label, run, look)),
      );
      morph(parts.facts, about(seen));
      morph(parts.why, why(reasons));
      morph(parts.runs, runs(seen.history ?? []));
      morph(parts.content, kept(seen));
    } catch (error) {
      if (error.name !== 'AbortError') morph(parts.wrong, problem(error));
    }
  }
  const content = h(
    'div.rows',
    { hidden: true },
    h(
      'div.two',
      null,
      h('section.panel', null, h('h2', null, 'Job'), parts.facts),
      h('section.panel', null, h('h2', null, 'Why it waits'), parts.why),
    ),
    h('section.panel', null, h('h2', null, 'Runs'), parts.runs),
    h('section.panel', null, h('h2', null, 'Content'), parts.content),
  );
  const again = poll(read, 2_000, signal);
  const button = (label, run, look) =>
    h(`button${look}`, { type: 'button', on: { click: async () => (await run(group, id)) && again() } }, label);

  const body = h(
    'div',
    null,
    h(
      'nav.crumbs',
      { 'aria-label': 'Breadcrumb' },
      h('a', { href: '#/groups' }, 'Groups'),
      ' / ',
      h('a', { href: href`/groups/${group}` }, group),
    ),
    h('div.page-head', null, h('div.title', null, h('h1.name', null, id), parts.chips), parts.buttons),
    parts.wrong,
    content,
  );
  return { title: id, body };
}

/** The commands that the state of the job allows. */
function possible({ state }) {
  const cancel = ['Cancel', commands.cancelJob, '.danger-text'];
  switch (state) {
    case 'DEAD':
      return [['Replay', commands.replayJob, '.primary']];
    case 'DELAYED':
      return [['Run now', commands.runJobNow, '.primary'], cancel];
    case 'COMPLETED':
      return [];
    default:
      return [cancel];
  }
}

function runs(history) {
  return table({
    caption: 'The latest runs',
    columns: [['Run', 'number'], ['Started'], ['Ended'], ['Worker'], ['Outcome'], ['Error', 'wide']],
    rows: history.map((run) => ({
      key: String(run.number),
      cells: [
        count(run.number),
        time(run.startedAt),
        time(run.endedAt),
        run.worker,
        run.outcome ? capital(plain(run.outcome)) : 'Running',
        run.error,
      ],
    })),
    empty: 'It has not run yet.',
  });
}

function about(seen) {
  return facts([
    ['Type', seen.type],
    ['Queue', seen.queue],
    ['Priority', capital(plain(seen.priority))],
    ['Batch', h('a', { href: href`/groups/${seen.group}/batches/${seen.batch}` }, seen.batch)],
    ['Attempts', `${count(seen.attempts)} of ${count(seen.maxAttempts)}`],
    ['Runs', `${count(seen.runs)}, ${count(seen.throttles)} of them throttled`],
    ['Created', time(seen.createdAt)],
    seen.startedAt && ['Started', time(seen.startedAt)],
    seen.worker && ['Worker', seen.worker],
    seen.progress && ['Progress', `${seen.progress.percent} % ${seen.progress.text ?? ''}`],
    seen.cancelled && ['Cancelled', 'ends with this run'],
    seen.delayedUntil && [
      'Delayed',
      [plain(seen.delayReason), ', due ', time(seen.delayedUntil, 'until')],
    ],
    seen.deadline && ['Lease ends', time(seen.deadline)],
    seen.deathReason && ['Reason', capital(plain(seen.deathReason))],
    seen.finishedAt && ['Finished', time(seen.finishedAt)],
  ]);
}

function kept(seen) {
  return [
    seen.error && [h('h3', null, 'Last error'), h('pre.json.bad-text', { tabindex: 0 }, seen.error)],
    h('h3', null, 'Payload'),
    seen.payload === null ? h('p.muted', null, 'None.') : json(seen.payload),
    seen.result !== undefined && [h('h3', null, 'Result'), json(seen.result)],
  ];
}
