// From values to places in a picture, and which values to write beside it.

/** Maps a range of values to a range of pixels. */
export function linear(from, to, low, high) {
  const step = to > from ? (high - low) / (to - from) : 0;
  return (value) => low + (value - from) * step;
}

export const round = (value) => Math.round(value * 10) / 10;

/**
 * The samples with `name` averaged over the last `ms`, each value weighed by the time it stands for: work starts in
 * windows, and a look that comes late would show a dip and a peak that never were.
 */
export function smooth(samples, name, ms) {
  const lasted = samples.map((sample, index) => (index === 0 ? 1_000 : sample.at - samples[index - 1].at));
  return samples.map((sample, index) => {
    let [sum, time] = [0, 0];
    for (let back = index; back >= 0 && samples[back].at > sample.at - ms; back -= 1) {
      sum += samples[back][name] * lasted[back];
      time += lasted[back];
    }
    return { ...sample, [name]: sum / time };
  });
}

/**
 * Round values from 0 to at least `most`, about `wanted` of them, and no closer than `closest`. Between 1 and 10 whole
 * ones: most of it is counted.
 */
export function ticks(most, wanted, closest = 0) {
  const rough = Math.max(most / wanted, closest);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factors = power === 1 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const step = factors.map((factor) => factor * power).find((size) => size >= rough - 1e-9);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) =>
    Number((index * step).toPrecision(12)),
  );
}

const STEPS_MS = [15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000];

/** Moments and their names, counted back from the last one. */
export function timeTicks(from, last, most) {
  const step = STEPS_MS.find((size) => (last - from) / size <= most) ?? STEPS_MS.at(-1);
  const all = [];
  for (let back = 0; last - back >= from; back += step) {
    all.push([
      last - back,
      back === 0 ? 'now' : `−${step < 60_000 ? `${back / 1_000} s` : `${back / 60_000} min`}`,
    ]);
  }
  return all;
}
