// What every page must have for keyboards and screen readers, checked by assertions of our own.

import assert from 'node:assert/strict';

/** Facts about the page, gathered inside it. */
function look() {
  const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const label = (element) =>
    [
      element.getAttribute('aria-label'),
      ...(element.getAttribute('aria-labelledby') ?? '')
        .split(' ')
        .map((id) => document.getElementById(id)?.textContent),
      ...[...(element.labels ?? [])].map((one) => one.textContent),
      element.textContent,
      element.querySelector('img')?.alt,
    ].find((text) => text?.trim());
  const controls = [
    ...document.querySelectorAll('a[href], button, input, select, textarea, summary, [role="slider"]'),
  ].filter(visible);
  const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
  return {
    unnamed: controls.filter((control) => !label(control)).map((control) => control.outerHTML.slice(0, 120)),
    headings: [...document.querySelectorAll('h1, h2, h3, h4')]
      .filter(visible)
      .map((heading) => [Number(heading.tagName[1]), heading.textContent]),
    tables: [...document.querySelectorAll('table')].filter((table) => !table.caption?.textContent.trim())
      .length,
    twice: ids.filter((id, index) => ids.indexOf(id) !== index),
    landmarks: ['header', 'nav', 'main'].filter((name) => !document.querySelector(name)),
    language: document.documentElement.lang,
    title: document.title,
  };
}

export async function assertAccessible(page, { language = 'en', title = 'Tidegate' } = {}) {
  const seen = await page.evaluate(look);
  assert.deepEqual(seen.unnamed, [], 'every control has a name');
  assert.equal(seen.headings.filter(([level]) => level === 1).length, 1, 'one first heading');
  assert.equal(seen.headings[0]?.[0], 1, 'the first heading comes first');
  seen.headings.forEach(([level, text], index) => {
    const before = seen.headings[index - 1]?.[0] ?? 0;
    assert.ok(level <= before + 1, `heading "${text}" skips a level`);
  });
  assert.equal(seen.tables, 0, 'every table has a caption');
  assert.deepEqual(seen.twice, [], 'no id is given twice');
  assert.deepEqual(seen.landmarks, [], 'landmarks are there');
  assert.equal(seen.language, language);
  assert.ok(seen.title.includes(title));
}

/** Contrast of text against its background, at least 4.5 to 1 as WCAG AA requires. */
export async function assertContrast(page, selectors) {
  const weak = await page.evaluate((wanted) => {
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const pixels = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) =>
      [r, g, b]
        .map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = pixels(getComputedStyle(at).backgroundColor);
        if (colour[3] === 255) return colour;
      }
      return [255, 255, 255];
    };
    return wanted
      .flatMap((selector) => [...document.querySelectorAll(selector)].slice(0, 20))
      .map((element) => {
        const [a, b] = [light(pixels(getComputedStyle(element).color)), light(behind(element))].sort(
          (x, y) => y - x,
        );
        return {
          text: `${element.className || element.tagName} ${element.textContent.slice(0, 30)}`,
          ratio: (a + 0.05) / (b + 0.05),
        };
      })
      .filter(({ ratio }) => ratio < 4.5);
  }, selectors);
  assert.deepEqual(weak, [], 'text is readable');
}
