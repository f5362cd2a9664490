// All groups, page by page: progress, share, congestion, and the most frequent commands.

import { get } from '../api.js';
import * as commands from '../commands.js';
import { h, morph } from '../dom.js';
import { count, percent, range, weight } from '../format.js';
import { progress, unfinished } from '../parts/bar.js';
import { congestionLevel, groupChip } from '../parts/chip.js';
import { problem } from '../parts/notices.js';
import { Pager, table } from '../parts/table.js';
import { poll } from '../poll.js';
import { href } from '../router.js';
import { may, mayForAll } from '../session.js';

const PAGE = 50;

/** When a group is done: a range, or why nobody knows. */
export function eta(group) {
  if (!group.active) return h('span.muted', null, '–');
  return h(group.estimate.unknown ? 'span.muted' : 'span', null, range(group.estimate));
}

export function groupButtons(group, again) {
  if (!may('ADMIN', group.id)) return null;
  const button = (text, command, kind = '', full = `${text} ${group.id}`) =>
    h(
      'button',
      {
        type: 'button',
        class: kind,
        'aria-label': full,
        on: { click: async () => (await command()) && again() },
      },
      text,
    );
  return h(
    'div.buttons',
    null,
    group.paused
      ? button('Resume', () => commands.resumeGroup(group.id))
      : button('Pause', () => commands.pauseGroup(group.id)),
    button('Weight', () => commands.weighGroup(group), '', `Weight of ${group.id}`),
    button(
      'Cancel',
      () => commands.cancelGroup(group.id, unfinished(group.counts)),
      'danger-text',
      `Cancel all jobs of ${group.id}`,
    ),
  );
}

export default function groups({ signal }) {
  const list = h('div');
  const pages = h('div');
  const wrong = h('div');
  let wanted = '';
  let seen = null;

  const pager = new Pager(() => again());
  const again = poll(read, 3_000, signal);

  async function read() {
    const query = { limit: PAGE, cursor: pager.cursor };
    try {
      const [page, congestion] = await Promise.all([
        get('/v1/groups', { query, signal }),
        // Both listings are in the same order, so that the same cursor means the same groups.
        mayForAll('READ') ? get('/v1/congestion', { query, signal }) : null,
      ]);
      pager.saw(page.next);
      seen = {
        groups: page.items,
        levels: new Map(congestion?.groups.items.map((state) => [state.group, state.congestionLevel])),
      };
      morph(wrong);
      draw();
    } catch (error) {
      if (error.code === 'cursor_lost') pager.restart();
      if (error.name !== 'AbortError') morph(wrong, problem(error));
    }
  }

  function draw() {
    if (!seen) return;
    const shown = seen.groups.filter((group) => group.id.toLowerCase().includes(wanted));
    // Only a reader of all groups can know a share.
    const all = pager.isWhole
      ? seen.groups
          .filter((group) => group.active && !group.paused)
          .reduce((sum, group) => sum + group.weight, 0)
      : 0;
    const share = (group) =>
      h(
        'span',
        null,
        weight(group.weight),
        all > 0 &&
          group.active &&
          !group.paused &&
          h(
            'span.muted.small',
            { title: 'Of the rate, while all active groups have enough to do' },
            ` · ${percent(group.weight, all)}`,
          ),
      );
    morph(
      list,
      table({
        caption: 'Groups, the oldest first',
        columns: [
          ['Group'],
          ['State'],
          ['Progress', 'wide'],
          ['To do', 'number'],
          ['Weight · share', 'number'],
          ['Congestion'],
          ['Done in', 'number'],
          ['-Actions', 'end'],
        ],
        rows: shown.map((group) => ({
          key: group.id,
          cells: [
            h('a.name', { href: href`/groups/${group.id}` }, group.id),
            groupChip(group),
            progress(group.counts),
            count(unfinished(group.counts)),
            share(group),
            seen.levels.has(group.id) ? congestionLevel(seen.levels.get(group.id)) : '–',
            eta(group),
            groupButtons(group, again),
          ],
        })),
        empty: wanted
          ? 'No group on this page matches. Press Enter to open the group with exactly this name.'
          : 'No groups yet. They appear with their first jobs.',
      }),
    );
    morph(pages, pager.buttons('groups'));
  }

  const search = h('input', {
    id: 'group-filter',
    type: 'search',
    placeholder: 'Filter by name',
    autocomplete: 'off',
    spellcheck: 'false',
    on: {
      input: (event) => {
        wanted = event.target.value.toLowerCase();
        draw();
      },
    },
  });
  const open = (event) => {
    event.preventDefault();
    if (search.value) location.hash = href`/groups/${search.value}`;
  };
  const body = h(
    'div',
    null,
    h(
      'div.page-head',
      null,
      h('h1', null, 'Groups'),
      h(
        'form.inline',
        { role: 'search', on: { submit: open } },
        h('label.unseen', { for: 'group-filter' }, 'Filter by name; Enter opens the group with this name'),
        search,
      ),
    ),
    wrong,
    h('section.panel', { 'aria-label': 'Groups' }, list),
    pages,
  );
  return { title: 'Groups', body };
}
