// One batch, followed live: progress, errors, the summary of its results, and the results themselves.

import { get, path } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { count, percent, range, span, time } from '../format.js';
import { batchBar } from '../parts/bar.js';
import { batchChips, stateChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { Pager, facts, json, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { href } from '../router.js';
import { may } from '../session.js';

const PAGE = 50;
const AGAIN_MS = 3_000;
const isFinished = (batch) => ['COMPLETED', 'FAILED', 'CANCELLED'].includes(batch.status);

/** Calls `heard` with the batch whenever it has changed, until it is finished. */
function progress(group, batch, heard, wrong, signal) {
  let source = null;
  let timer = null;
  const close = () => {
    clearTimeout(timer);
    source?.close();
  };
  function open() {
    close();
    if (signal.aborted || document.hidden) return;
    source = new EventSource(path`/v1/groups/${group}/batches/${batch}/events`);
    source.addEventListener('progress', (event) => {
      const seen = JSON.parse(event.data);
      heard(seen);
      // The stream ends by itself then, and the browser would open it again and again.
      if (isFinished(seen)) close();
    });
    source.addEventListener('problem', (event) => {
      wrong(JSON.parse(event.data));
      close();
    });
    source.addEventListener('error', async () => {
      close();
      // A stream that is refused does not say why; a read does.
      try {
        heard(await get(path`/v1/groups/${group}/batches/${batch}`, { signal }));
      } catch (error) {
        wrong(error);
      }
      if (!signal.aborted) timer = setTimeout(open, AGAIN_MS);
    });
  }
  document.addEventListener('visibilitychange', open, { signal });
  signal.addEventListener('abort', close, { once: true });
  open();
  return open;
}

export default function batch({ names: { group, batch: id }, signal }) {
  const parts = Object.fromEntries(
    ['wrong', 'chips', 'buttons', 'progress', 'errors', 'summary', 'results', 'pages'].map((name) => [
      name,
      h('div'),
    ]),
  );
  const summary = h('section.panel', { hidden: true }, h('h2', null, 'Summary'), parts.summary);
  const errors = h('section.panel', { hidden: true }, h('h2', null, 'Errors'), parts.errors);

  const content = h(
    'div.rows',
    { hidden: true },
    h('section.panel', null, h('h2', null, 'Progress'), parts.progress),
    errors,
    summary,
    h('section.panel', null, h('h2', null, 'Jobs and results'), parts.results),
    parts.pages,
  );

  function heard(seen) {
    morph(parts.wrong);
    content.hidden = false;
    morph(parts.chips, h('div.chips', null, batchChips(seen)));
    morph(parts.buttons, buttons(seen));
    morph(parts.progress, standing(seen));
    errors.hidden = seen.errors.length === 0;
    morph(
      parts.errors,
      h(
        'ul.errors',
        null,
        seen.errors.map((error) => h('li', null, error)),
      ),
    );
    summary.hidden = seen.summary === undefined;
    morph(parts.summary, seen.summary !== undefined && json(seen.summary));
  }

  const wrong = (error) => error.name !== 'AbortError' && morph(parts.wrong, problem(error));
  const reopen = progress(group, id, heard, wrong, signal);

  const pager = new Pager(() => again());
  async function readResults() {
    try {
      const page = await get(path`/v1/groups/${group}/batches/${id}/results`, {
        query: { limit: PAGE, cursor: pager.cursor },
        signal,
      });
      pager.saw(page.next);
      morph(parts.results, results(group, page.items));
      morph(parts.pages, pager.buttons('results'));
    } catch (error) {
      if (error.code === 'cursor_lost') pager.restart();
      if (error.name !== 'AbortError') morph(parts.results, problem(error));
    }
  }
  const again = poll(readResults, AGAIN_MS, signal);

  function buttons(seen) {
    const button = (text, command, kind) =>
      h(
        'button',
        { type: 'button', class: kind, key: text, on: { click: async () => (await command()) && reopen() } },
        text,
      );
    if (isFinished(seen)) return null;
    return h(
      'div.buttons',
      null,
      may('SUBMIT', group) && !seen.sealed && button('Seal', () => commands.sealBatch(group, id)),
      may('ADMIN', group) &&
        (seen.paused
          ? button('Resume', () => commands.resumeBatch(group, id))
          : button('Pause', () => commands.pauseBatch(group, id))),
      may('ADMIN', group) &&
        !seen.cancelled &&
        button('Cancel batch', () => commands.cancelBatch(group, id), 'danger-text'),
    );
  }

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

function standing(seen) {
  const { total, success, failed } = seen.counts;
  const done = success + failed;
  return h(
    'div',
    null,
    h(
      'p.big',
      null,
      h('b', null, percent(done, total)),
      h('span.muted', null, ` · ${count(done)} of ${count(total)} jobs`),
    ),
    batchBar(seen.counts),
    h(
      'ul.legend',
      null,
      h(
        'li',
        null,
        h('span.swatch.completed', { 'aria-hidden': 'true' }),
        'completed ',
        h('b', null, count(success)),
      ),
      h('li', null, h('span.swatch.dead', { 'aria-hidden': 'true' }), 'failed ', h('b', null, count(failed))),
      h(
        'li',
        null,
        h('span.swatch.waiting', { 'aria-hidden': 'true' }),
        'to do ',
        h('b', null, count(total - done)),
      ),
    ),
    facts([
      ['Opened', time(seen.createdAt)],
      seen.finishedAt
        ? [
            'Finished',
            [
              time(seen.finishedAt),
              `, after ${span(Date.parse(seen.finishedAt) - Date.parse(seen.createdAt))}`,
            ],
          ]
        : [
            'Done in',
            done === total ? '–' : range(seen.estimate),
          ],
      seen.callback && ['Callback', seen.callback],
      !seen.sealed && ['Accepts jobs', 'until it is sealed; it cannot complete before that'],
    ]),
  );
}

function results(group, jobs) {
  const part = (name, value) =>
    value !== undefined &&
    value !== null && [
      h('h3', null, name),
      typeof value === 'string' ? h('pre.json', { tabindex: 0 }, value) : json(value),
    ];
  const content = (job) => {
    const inside = [part('Payload', job.payload), part('Result', job.result), part('Error', job.error)];
    if (!inside.some(Boolean)) return h('span.muted', null, '–');
    const name =
      job.error ?? (job.result === undefined || job.result === null ? 'Payload' : JSON.stringify(job.result));
    return h('details', null, h('summary.one-line', null, name), inside);
  };
  return table({
    caption: 'Jobs of the batch, the oldest first',
    columns: [['Job'], ['Type'], ['State'], ['Attempts', 'number'], ['Finished'], ['Content', 'wide']],
    rows: jobs.map((job) => ({
      key: job.id,
      cells: [
        h('a.name', { href: href`/groups/${group}/jobs/${job.id}` }, job.id),
        job.type,
        stateChip(job.state),
        count(job.attempts),
        time(job.finishedAt),
        content(job),
      ],
    })),
    empty: 'No jobs are kept.',
  });
}
