// Words numbers and durations with the texts of the page data. The server words them the same on the page without scripts.

const MINUTE_MS = 60_000;
const DAY = 24 * 60;

/** Replaces the placeholders in braces. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** A number with thousands separators, as both languages write it. */
export const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ',');

/** The rounding step in minutes: coarser for longer times. */
function step(minutes) {
  if (minutes <= 10) return 1;
  if (minutes <= 60) return 5;
  return minutes <= 180 ? 30 : 60;
}

/** Words minutes as minutes, or beyond one hour as whole or half hours. */
function amount(words, minutes) {
  const hours = Math.floor(minutes / 60);
  if (minutes < 60) return fill(minutes === 1 ? words.minute : words.minutes, { n: minutes });
  if (minutes % 60 !== 0) return fill(words.hoursHalf, { n: hours });
  return fill(hours === 1 ? words.hour : words.hours, { n: hours });
}

/** Words a range of time without false precision. */
export function durationRange(words, lowMs, highMs) {
  const most = Math.max(lowMs, highMs);
  if (most < MINUTE_MS) return words.lessThanMinute;
  let low = Math.floor(lowMs / MINUTE_MS);
  if (low >= DAY) return words.moreThanDay;
  let high = Math.min(DAY, Math.ceil(most / MINUTE_MS));
  high = Math.ceil(high / step(high)) * step(high);
  low = Math.floor(low / step(low)) * step(low);
  const highText = amount(words, high);
  if (low === 0) return fill(words.upTo, { high: highText });
  if (low === high) return fill(words.about, { high: highText });
  // “4 to 6 minutes”: a common unit comes once.
  let lowText = amount(words, low);
  if (high < 60) lowText = low;
  else if (low >= 60 && low % 60 === 0 && high % 60 === 0) lowText = low / 60;
  return fill(words.aboutRange, { low: lowText, high: highText });
}

/** Words a fixed duration: seconds up to 90, else whole minutes or hours. */
export function duration(words, ms) {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 90) return fill(seconds === 1 ? words.second : words.seconds, { n: seconds });
  if (seconds < 3_600) return amount(words, Math.floor(seconds / 60));
  return amount(words, Math.floor(seconds / 3_600) * 60);
}

/** Beyond this time the page shows days instead of a countdown. */
export const MAX_COUNTDOWN_MS = 2 * DAY * MINUTE_MS;

/** The remaining time in whole days. */
export const days = (words, ms) => fill(words.days, { n: count(Math.floor(ms / (DAY * MINUTE_MS))) });

/** The remaining time as a countdown: 3:05, 1:00:00. */
export function countdown(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  const two = (value) => String(value).padStart(2, '0');
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${two(seconds % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}
