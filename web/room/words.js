// Numbers and spans in the words that the page was handed. The server says the same where there is no script.

const MINUTE_MS = 60_000;
const DAY = 24 * 60;

/** Fills in what is in braces. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** A number with its thousands apart, as both languages write it. */
export const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ',');

/** Minutes between two values that are worth telling apart. */
function step(minutes) {
  if (minutes <= 10) return 1;
  if (minutes <= 60) return 5;
  return minutes <= 180 ? 30 : 60;
}

/** Minutes as they are said: whole hours, or hours and a half, beyond one hour. */
function amount(words, minutes) {
  const hours = Math.floor(minutes / 60);
  if (minutes < 60) return fill(minutes === 1 ? words.minute : words.minutes, { n: minutes });
  if (minutes % 60 !== 0) return fill(words.hoursHalf, { n: hours });
  return fill(hours === 1 ? words.hour : words.hours, { n: hours });
}

/** A range of time, never finer than anybody can know it. */
export function range(words, lowMs, highMs) {
  const most = Math.max(lowMs, highMs);
  if (most < MINUTE_MS) return words.lessThanMinute;
  let low = Math.floor(lowMs / MINUTE_MS);
  if (low >= DAY) return words.moreThanDay;
  let high = Math.min(DAY, Math.ceil(most / MINUTE_MS));
  high = Math.ceil(high / step(high)) * step(high);
  low = Math.floor(low / step(low)) * step(low);
  const said = amount(words, high);
  if (low === 0) return fill(words.upTo, { high: said });
  if (low === high) return fill(words.about, { high: said });
  // “4 to 6 minutes”: the unit is said once where it is the same.
  let least = amount(words, low);
  if (high < 60) least = low;
  else if (low >= 60 && low % 60 === 0 && high % 60 === 0) least = low / 60;
  return fill(words.aboutRange, { low: least, high: said });
}

/** A span that is a setting or runs out: seconds as far as they matter, else whole minutes or hours. */
export function lasting(words, ms) {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  if (seconds < 90) return fill(seconds === 1 ? words.second : words.seconds, { n: seconds });
  if (seconds < 3_600) return amount(words, Math.floor(seconds / 60));
  return amount(words, Math.floor(seconds / 3_600) * 60);
}

/** Longer times are shown in days. */
export const FAR_MS = 2 * DAY * MINUTE_MS;

/** What is left in whole days. */
export const days = (words, ms) => fill(words.days, { n: count(Math.floor(ms / (DAY * MINUTE_MS))) });

/** What is left as a clock: 3:05, 1:00:00. */
export function clock(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  const two = (value) => String(value).padStart(2, '0');
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${two(seconds % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}
