// Numbers, spans and times as people read them.

import { h } from './dom.js';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const upToThree = new Intl.NumberFormat('en', { maximumFractionDigits: 3 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);
export const short = (value) => (Math.abs(value) < 1_000 ? upToThree.format(value) : compact.format(value));
export const weight = (value) => upToThree.format(value);

/** A rate that was measured: a clock is not exact enough for a tenth of hundreds. */
export const measured = (value) => rate(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);

/** A rate per second as it was set. */
export function rate(value) {
  if (value >= 1_000 || Number.isInteger(value)) return whole.format(value);
  return tenth.format(value);
}

export function percent(part, all) {
  if (!(all > 0)) return '0 %';
  const share = (100 * part) / all;
  // Neither nothing nor everything unless it really is.
  if (share > 0 && share < 1) return '< 1 %';
  if (share > 99 && share < 100) return '> 99 %';
  return `${Math.round(share)} %`;
}

/** “one job”, “12 jobs”. */
export function many(value, one, several = `${one}s`) {
  return value === 1 ? `one ${one}` : `${count(value)} ${several}`;
}

/** An estimate as a range, or why there is none. */
export function range({ earliestSeconds: earliest, latestSeconds: latest, unknown }) {
  if (unknown === 'PAUSED') return 'Paused';
  if (unknown === 'NO_WORKER') return 'No worker has asked lately';
  if (latest === undefined) return 'Not measured yet';
  if (earliest === latest) return span(1_000 * latest);
  if (earliest === 0) return `≤ ${span(1_000 * latest)}`;
  if (latest < 60) return `${earliest}–${latest} s`;
  return `${span(1_000 * earliest)} – ${span(1_000 * latest)}`;
}

/** A span in milliseconds, in at most two units. */
export function span(ms) {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.round(ms / 1_000);
  const pairs = [
    [86_400, 'd', 3_600, 'h'],
    [3_600, 'h', 60, 'min'],
    [60, 'min', 1, 's'],
  ];
  for (const [unit, name, lesser, lesserName] of pairs) {
    if (seconds < unit) continue;
    const rest = Math.floor((seconds % unit) / lesser);
    return `${Math.floor(seconds / unit)} ${name}${rest > 0 ? ` ${rest} ${lesserName}` : ''}`;
  }
  return `${seconds} s`;
}

export function clock(at) {
  return new Date(at).toLocaleTimeString('en-GB');
}

export function absolute(at) {
  const date = new Date(at);
  return `${date.toLocaleDateString('en-CA')} ${date.toLocaleTimeString('en-GB')} (${date.toISOString()})`;
}

// The server's clock and this one may differ; what was just seen must not lie in the future.
let ahead = 0;
export function serverTime(at) {
  ahead = Date.parse(at) - Date.now();
}
export const now = () => Date.now() + ahead;

function words(at, mode) {
  const past = now() - Date.parse(at);
  if (mode === 'for') return span(Math.max(past, 1_000));
  if (mode === 'until' && past > -1_000) return 'now';
  if (Math.abs(past) < 1_000) return 'just now';
  return past > 0 ? `${span(past)} ago` : `in ${span(-past)}`;
}

/** A point in time, relative, with the exact time as its title. `mode` is `ago`, `for` or `until`. */
export function time(at, mode = 'ago') {
  if (!at) return '–';
  return h('time', { datetime: at, title: absolute(at), 'data-mode': mode }, words(at, mode));
}

/** Keeps relative times true. */
export function startClock() {
  setInterval(() => {
    if (document.hidden) return;
    for (const element of document.querySelectorAll('time[data-mode]')) {
      const text = words(element.dateTime, element.dataset.mode);
      if (element.textContent !== text) element.textContent = text;
    }
  }, 1_000);
}

/** `ATTEMPTS_USED_UP` as “attempts used up”. */
export const plain = (name) => name.toLowerCase().replaceAll('_', ' ');
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
