// Dead jobs: which, since when and why; replayed or purged one by one, as selected, or all that match a filter.

import { get } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { capital, count, many, plain, time } from '../format.js';
import { problem } from '../parts/notices.js';
import { Pager, json, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { href, hrefWith } from '../router.js';
import { may, mayForAll } from '../session.js';

const PAGE = 50;
const REASONS = ['FAILED', 'ATTEMPTS_USED_UP', 'EXPIRED', 'CANCELLED'];

const keyOf = (job) => JSON.stringify([job.group, job.id]);
const named = (jobs) => ({ jobs: jobs.map(({ group, id }) => ({ group, id })) });

export default function dead({ query, signal }) {
  const filter = { group: query.group ?? '', type: query.type ?? '', reason: query.reason ?? '' };
  const filtered = Object.values(filter).some(Boolean);
  const wrong = h('div');
  const toolbar = h('div');
  const list = h('div');
  const pages = h('div');
  const selected = new Map();
  let shown = [];

  const pager = new Pager(() => {
    selected.clear();
    again();
  });
  // A key for some groups has to name one of them.
  const allowed = Boolean(filter.group) || mayForAll('READ');
  const again = poll(
    allowed
      ? read
      : () => morph(list, h('p.empty', null, 'This key is limited to some groups: enter one of them above.')),
    5_000,
    signal,
  );

  async function read() {
    try {
      const asked = { ...filter, limit: PAGE, cursor: pager.cursor };
      const page = await get('/v1/dead-jobs', { query: asked, signal });
      pager.saw(page.next);
      shown = page.items;
      const there = new Set(shown.map(keyOf));
      for (const key of selected.keys()) if (!there.has(key)) selected.delete(key);
      morph(wrong);
      draw();
    } catch (error) {
      if (error.code === 'cursor_lost') pager.restart();
      if (error.name !== 'AbortError') morph(wrong, problem(error));
    }
  }

  async function after(command) {
    if (!(await command)) return;
    selected.clear();
    pager.restart();
    again();
  }

  function select(job, on) {
    if (on) selected.set(keyOf(job), job);
    else selected.delete(keyOf(job));
    draw();
  }

  function tools() {
    if (!may('ADMIN')) return null;
    const some = [...selected.values()];
    const all = filtered
      ? Object.fromEntries(Object.entries(filter).filter(([, value]) => value))
      : { all: true };
    const words = filtered ? 'all dead jobs that match the filter' : 'all dead jobs';
    const few = many(some.length, 'selected job');
    const button = (text, click, disabled, kind) =>
      h('button', { type: 'button', class: kind, disabled, key: text, on: { click } }, text);
    return h(
      'div.toolbar',
      null,
      h('span.muted', null, some.length > 0 ? `${count(some.length)} selected` : 'Nothing selected'),
      h(
        'div.buttons',
        null,
        button('Replay selected', () => after(commands.replayDead(named(some), few)), some.length === 0),
        button(
          'Purge selected',
          () => after(commands.purgeDead(named(some), few)),
          some.length === 0,
          'danger-text',
        ),
      ),
      h(
        'div.buttons',
        null,
        button(
          filtered ? 'Replay all matching' : 'Replay all',
          () => after(commands.replayDead(all, words)),
          shown.length === 0,
        ),
        button(
          filtered ? 'Purge all matching' : 'Purge all',
          () => after(commands.purgeDead(all, words)),
          shown.length === 0,
          'danger-text',
        ),
      ),
    );
  }

  function draw() {
    const admin = may('ADMIN');
    morph(toolbar, tools());
    const box = (job) =>
      h('input', {
        type: 'checkbox',
        checked: selected.has(keyOf(job)),
        'aria-label': `Select ${job.id} of ${job.group}`,
        on: { change: (event) => select(job, event.target.checked) },
      });
    const replay = (job) =>
      h(
        'button',
        {
          type: 'button',
          'aria-label': `Replay ${job.id} of ${job.group}`,
          on: { click: () => after(commands.replayDead(named([job]), job.id)) },
        },
        'Replay',
      );
    const what = (job) =>
      h(
        'details',
        null,
        h('summary.one-line', null, job.error ?? 'Payload'),
        job.error && [h('h3', null, 'Error'), h('pre.json', { tabindex: 0 }, job.error)],
        h('h3', null, 'Payload'),
        json(job.payload),
      );
    const columns = [
      ['Job'],
      ['Group'],
      ['Type'],
      ['Reason'],
      ['Error', 'wide'],
      ['Attempts', 'number'],
      ['Died'],
    ];
    if (admin) columns.push(['-Actions', 'end']);
    morph(
      list,
      admin && shown.length > 0 && selectAll(),
      table({
        caption: 'Dead jobs, the latest accepted first',
        columns,
        rows: shown.map((job) => {
          const cells = [
            h(
              'span.check',
              null,
              admin && box(job),
              h('a.name', { href: href`/groups/${job.group}/jobs/${job.id}` }, job.id),
            ),
            h('a.name', { href: href`/groups/${job.group}` }, job.group),
            job.type,
            capital(plain(job.deathReason ?? 'unknown')),
            what(job),
            count(job.attempts),
            time(job.finishedAt),
          ];
          return { key: keyOf(job), cells: admin ? [...cells, replay(job)] : cells };
        }),
        empty: filtered ? 'No dead job matches the filter.' : 'No dead jobs.',
      }),
    );
    morph(pages, pager.buttons('dead jobs'));
  }

  function selectAll() {
    const whole = selected.size === shown.length;
    return h(
      'label.check.select-all',
      null,
      h('input', {
        type: 'checkbox',
        checked: whole,
        on: {
          change: (event) => {
            for (const job of shown) selected.set(keyOf(job), job);
            if (!event.target.checked) selected.clear();
            draw();
          },
        },
      }),
      ' Select all on this page',
    );
  }

  const body = h(
    'div',
    null,
    h('div.page-head', null, h('h1', null, 'Dead jobs')),
    filterForm(filter, filtered),
    wrong,
    h('section.panel', { 'aria-label': 'Dead jobs' }, toolbar, list),
    pages,
  );
  return { title: 'Dead jobs', body };
}

function filterForm(filter, filtered) {
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(
      [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]),
    );
    location.hash = hrefWith('#/dead', values);
  };
  const text = (name, label) =>
    h(
      'div.field',
      null,
      h('label', { for: `dead-${name}` }, label),
      h('input', { id: `dead-${name}`, name, value: filter[name], autocomplete: 'off', spellcheck: 'false' }),
    );
  const option = (value, label) => h('option', { value, selected: filter.reason === value }, label);
  return h(
    'form.filter',
    { role: 'search', 'aria-label': 'Filter dead jobs', on: { submit } },
    text('group', 'Group'),
    text('type', 'Type'),
    h(
      'div.field',
      null,
      h('label', { for: 'dead-reason' }, 'Reason'),
      h(
        'select',
        { id: 'dead-reason', name: 'reason' },
        option('', 'any'),
        REASONS.map((reason) => option(reason, plain(reason))),
      ),
    ),
    h(
      'div.buttons',
      null,
      h('button', { type: 'submit' }, 'Filter'),
      filtered && h('a.button', { href: '#/dead' }, 'Clear'),
    ),
  );
}
