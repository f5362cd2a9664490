// A picture of the last minutes: lines or stacked areas over time, drawn by hand as SVG.
//
// Whoever points at it, or walks through it with the arrow keys, reads the values of one moment in the legend.
// A sentence and a table say the same in words.

import { h, morph, s } from './dom.js';
import { clock, span } from './format.js';
import { linear, round, ticks, timeTicks } from './scale.js';

const MARGIN = { top: 10, right: 8, bottom: 22, left: 44 };
const ROWS = 10;

/**
 * `series` are `{ name, look, of }`: a name, a class of the style sheet, and the value of a sample. `limit` is one
 * that is drawn as a line across. `spanMs` are the shortest and the longest time shown; samples further apart than
 * `gapMs` are not joined.
 */
export function chart({
  label,
  series,
  limit,
  format,
  stacked = false,
  height = 180,
  spanMs = [120_000, 600_000],
  gapMs = 5_000,
}) {
  const svg = s('svg.chart', {
    tabindex: 0,
    role: 'slider',
    'aria-label': `${label}; arrow keys walk through it`,
    height,
  });
  const readout = h('div.readout');
  const summary = h('p.muted.small');
  const rows = h('div');
  const details = h(
    'details.as-table',
    { on: { toggle: () => tell() } },
    h('summary', null, 'As a table'),
    rows,
  );
  const element = h('figure.figure', null, readout, svg, h('figcaption', null, summary, details));

  let samples = [];
  let width = 0;
  let chosen = null;
  let box = null;

  const top = (sample) =>
    stacked
      ? series.reduce((sum, one) => sum + one.of(sample), 0)
      : Math.max(...series.map((one) => one.of(sample)));

  function scales() {
    const last = samples.at(-1).at;
    const first = Math.max(samples[0].at, last - spanMs[1]);
    const from = Math.min(first, last - spanMs[0]);
    const most = samples.reduce((all, sample) => Math.max(all, top(sample), limit ? limit.of(sample) : 0), 0);
    // There is no half of a person.
    const counted = samples.every((sample) => Number.isInteger(top(sample)));
    const levels = ticks(Math.max(most * 1.04, 1), 4, counted ? 1 : 0);
    return {
      from,
      last,
      levels,
      x: linear(from, last, MARGIN.left, width - MARGIN.right),
      y: linear(0, levels.at(-1), height - MARGIN.bottom, MARGIN.top),
    };
  }

  function grid() {
    return [
      box.levels.map((value) => [
        s('line.grid', { x1: MARGIN.left, x2: width - MARGIN.right, y1: box.y(value), y2: box.y(value) }),
        s('text.tick', { x: MARGIN.left - 6, y: box.y(value) + 4, 'text-anchor': 'end' }, format.axis(value)),
      ]),
      timeTicks(box.from, box.last, Math.max(2, Math.floor(width / 110))).map(([at, text]) => [
        s('line.grid', {
          x1: box.x(at),
          x2: box.x(at),
          y1: height - MARGIN.bottom,
          y2: height - MARGIN.bottom + 4,
        }),
        s(
          'text.tick',
          { x: box.x(at), y: height - 5, 'text-anchor': at === box.last ? 'end' : 'middle' },
          text,
        ),
      ]),
    ];
  }

  /** Runs of samples without a gap between them. */
  function runs() {
    const all = [];
    samples.forEach((sample, index) => {
      if (index === 0 || sample.at - samples[index - 1].at > gapMs) all.push([]);
      all.at(-1).push(sample);
    });
    return all;
  }

  const points = (run, value) =>
    run.map((sample) => `${round(box.x(sample.at))},${round(box.y(value(sample)))}`);
  const line = (value) =>
    runs()
      .map((run) => `M${points(run, value).join('L')}`)
      .join('');
  const area = (low, high) =>
    runs()
      .map((run) => `M${points(run, high).join('L')}L${points(run, low).reverse().join('L')}Z`)
      .join('');

  function shapes() {
    let below = () => 0;
    return series.map(({ look, of }) => {
      const low = below;
      const high = stacked ? (sample) => low(sample) + of(sample) : of;
      if (stacked) below = high;
      return [
        s('path.area', { class: look, d: area(low, high) }),
        s('path.line', { class: look, d: line(high) }),
      ];
    });
  }

  function rule() {
    if (!chosen) return null;
    const x = round(box.x(chosen.at));
    let sum = 0;
    return [
      s('line.rule', { x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom }),
      series.map(({ look, of }) => {
        sum = stacked ? sum + of(chosen) : of(chosen);
        return s('circle.knob', { class: look, cx: x, cy: round(box.y(sum)), r: 3.5 });
      }),
    ];
  }

  function draw() {
    if (width === 0) return;
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    if (samples.length === 0) {
      morph(
        svg,
        s('text.tick', { x: width / 2, y: height / 2, 'text-anchor': 'middle' }, 'No data yet'),
      );
      morph(readout);
      return;
    }
    box = scales();
    morph(svg, grid(), shapes(), limit && s('path.limit', { d: line(limit.of) }), rule());
    tell();
  }

  const all = () => (limit ? [...series, limit] : series);

  function tell() {
    if (samples.length === 0) return;
    const sample = chosen ?? samples.at(-1);
    const when = chosen ? clock(chosen.at) : 'latest';
    morph(
      readout,
      h(
        'ul.legend',
        null,
        all().map((one) =>
          h(
            'li',
            { key: one.name },
            h('span.swatch', { class: one.look, 'aria-hidden': 'true' }),
            `${one.name} `,
            h('b', null, format.value(one.of(sample))),
          ),
        ),
      ),
      h('span.muted.small', null, when),
    );
    svg.setAttribute('aria-valuemin', '0');
    svg.setAttribute('aria-valuemax', String(samples.length - 1));
    svg.setAttribute('aria-valuenow', String(samples.indexOf(sample)));
    svg.setAttribute(
      'aria-valuetext',
      `${clock(sample.at)}: ${all()
        .map((one) => `${one.name} ${format.value(one.of(sample))}`)
        .join(', ')}`,
    );
    morph(summary, inWords());
    if (details.open) morph(rows, asTable());
  }

  function inWords() {
    const values = samples.map(top);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const shown = samples.at(-1).at - samples[0].at;
    const what = stacked ? 'in all' : series[0].name;
    return `${span(shown)}: ${what} between ${format.value(Math.min(...values))} and ${format.value(Math.max(...values))}, ${format.value(mean)} on average.`;
  }

  function asTable() {
    const length = Math.max(1, samples.at(-1).at - samples[0].at + 1) / ROWS;
    const part = (index) =>
      samples.filter((sample) => Math.floor((sample.at - samples[0].at) / length) === index);
    const mean = (of, some) => format.value(some.reduce((sum, sample) => sum + of(sample), 0) / some.length);
    return h(
      'table',
      null,
      h('caption.unseen', null, `${label}, averages`),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          h('th', { scope: 'col' }, 'From'),
          all().map((one) => h('th.number', { scope: 'col' }, one.name)),
        ),
      ),
      h(
        'tbody',
        null,
        Array.from({ length: ROWS }, (_, index) => part(index))
          .filter((some) => some.length > 0)
          .map((some) =>
            h(
              'tr',
              { key: some[0].at },
              h('th', { scope: 'row' }, clock(some[0].at)),
              all().map((one) => h('td.number', null, mean(one.of, some))),
            ),
          ),
      ),
    );
  }

  function choose(sample) {
    chosen = sample;
    draw();
  }

  function point(event) {
    if (!box || samples.length === 0) return;
    const at =
      box.from +
      ((event.clientX - svg.getBoundingClientRect().left - MARGIN.left) /
        (width - MARGIN.left - MARGIN.right)) *
        (box.last - box.from);
    choose(
      samples.reduce((best, sample) => (Math.abs(sample.at - at) < Math.abs(best.at - at) ? sample : best)),
    );
  }

  function key(event) {
    const steps = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -60,
      PageUp: 60,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key === 'Escape') return choose(null);
    if (!(event.key in steps) || samples.length === 0) return undefined;
    event.preventDefault();
    const from = chosen ? samples.indexOf(chosen) : samples.length - 1;
    return choose(samples[Math.min(samples.length - 1, Math.max(0, from + steps[event.key]))]);
  }

  svg.addEventListener('pointermove', point);
  svg.addEventListener('pointerleave', () => choose(null));
  svg.addEventListener('blur', () => choose(null));
  svg.addEventListener('keydown', key);
  new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    draw();
  }).observe(svg);

  return {
    element,
    /** Samples, oldest first, each with `at` in milliseconds. */
    update(seen) {
      const from = (seen.at(-1)?.at ?? 0) - spanMs[1];
      samples = seen.filter((sample) => sample.at >= from);
      // A chosen moment that has moved out of the picture is let go.
      if (chosen && !samples.includes(chosen))
        chosen = samples.find((sample) => sample.at === chosen.at) ?? null;
      draw();
    },
  };
}
