// The dashboard is usable by everybody: narrow screens, light and dark, keyboards, screen readers; and screenshots of it.

import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { assertAccessible, assertContrast } from './accessible.js';
import { launch, openPage } from './browser.js';
import { seed, seedRecords } from './seed.js';
import { client, startService, until } from './service.js';

const ROOT = resolve(import.meta.dirname, '../..');
const PICTURES = resolve(ROOT, process.env.TIDEGATE_SCREENSHOTS ?? 'target/screenshots');
/** A screenshot for the documentation shows more seconds than a check needs. */
const SECONDS_SHOWN = process.env.TIDEGATE_SCREENSHOTS ? 100 : 5;

const PAGES = [
  '#/',
  '#/groups',
  '#/groups/hooli',
  '#/groups/hooli/batches/codes',
  '#/groups/soylent/jobs/surveys-0',
  '#/dead',
  '#/targets',
  '#/refresh',
  '#/refresh/dead-letters',
  '#/limits',
  '#/audit',
  'docs',
];

describe('appearance', { timeout: 1_800_000 }, () => {
  let service;
  let browser;
  const cleanUp = [];

  before(async () => {
    service = await startService();
    cleanUp.push(() => service.stop());
    browser = await launch();
    cleanUp.push(() => browser.close());
    const workers = await seed(service.url);
    cleanUp.push(() => workers.stop());
    const readers = await seedRecords(service);
    cleanUp.push(() => readers.stop());
    await mkdir(PICTURES, { recursive: true });
  });
  after(async () => {
    for (const end of cleanUp.reverse()) await end();
  });

  async function open(t, where, options) {
    const opened = await openPage(browser, service.url, options);
    t.after(() => opened.close());
    await show(opened.page, where);
    return opened;
  }

  /** A page and its content, not only its frame. */
  async function show(page, where) {
    await page.goto(`${service.url}/${where}`);
    await page.locator('main h1').waitFor({ state: 'attached' });
    if (['#/', '#/refresh'].includes(where)) await page.locator('.tile').first().waitFor();
    await page
      .locator('main table')
      .first()
      .waitFor({ state: 'attached', timeout: 2_000 })
      .catch(() => {});
  }

  test('every page has names, headings in order, captions and landmarks', async (t) => {
    const { page, trouble } = await open(t, '#/');
    for (const where of PAGES) {
      await show(page, where);
      await t.test(where, () => assertAccessible(page));
    }
    assert.deepEqual(trouble, []);
  });

  test('no page scrolls sideways at 360 pixels', async (t) => {
    const { page } = await open(t, '#/', { width: 360, height: 740 });
    for (const where of PAGES) {
      await show(page, where);
      const [wide, seen] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        document.documentElement.clientWidth,
      ]);
      assert.ok(wide <= seen, `${where} is ${wide} pixels wide on a screen of ${seen}`);
    }
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`text is readable in ${colorScheme}`, async (t) => {
      const { page, trouble } = await open(t, '#/', { colorScheme });
      for (const where of ['#/', '#/groups', '#/dead', '#/targets', '#/refresh', '#/refresh/dead-letters']) {
        await show(page, where);
        await assertContrast(page, [
          'h2',
          '.muted',
          '.chip',
          '.badge',
          'button',
          'a',
          'td',
          'th',
          '.label',
          '.level',
        ]);
      }
      assert.deepEqual(trouble, []);
    });
  }

  test('colours follow the system, can be switched, and stay switched', async (t) => {
    const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const { page } = await open(t, '#/', { colorScheme: 'dark' });
    const dark = await background(page);
    await page.getByRole('button', { name: /^Colours: system default/ }).click();
    const light = await background(page);
    assert.notEqual(light, dark);
    await page.reload();
    assert.equal(await background(page), light, 'it is remembered');
    await page.getByRole('button', { name: /^Colours: light/ }).click();
    assert.equal(await background(page), dark);
  });

  test('the keyboard reaches everything that matters', async (t) => {
    const { page } = await open(t, '#/groups');
    await page.getByRole('button', { name: /^(Pause|Resume) hooli/ }).waitFor();
    const focused = () =>
      page.evaluate(
        () => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent.trim(),
      );
    await page.keyboard.press('Tab');
    assert.equal(await focused(), 'Skip to content');
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(outline, 'none', 'focus is visible');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
    assert.match(page.url(), /#\/groups$/, 'the page stays');

    await page.reload();
    await page.getByRole('button', { name: /^(Pause|Resume) hooli/ }).waitFor();
    const reached = [];
    for (let n = 0; n < 60; n += 1) {
      await page.keyboard.press('Tab');
      reached.push(await focused());
    }
    for (const wanted of [
      'Overview',
      'Groups',
      'Targets',
      'API',
      'acme-mail',
      'Pause acme-mail',
      'Weight of acme-mail',
      'Resume globex',
    ]) {
      assert.ok(reached.includes(wanted), `Tab does not reach ${wanted}: ${reached.join(', ')}`);
    }
    assert.ok(
      reached.some((name) => name.startsWith('Colours')),
      'Tab does not reach the switch of colours',
    );

    await page.getByRole('button', { name: 'Pause acme-mail' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal(await focused(), 'Pause acme-mail', 'focus goes back to where it was');
  });

  test('a chart can be read with arrow keys, as a table, and by pointing', async (t) => {
    const { page } = await open(t, '#/');
    const picture = page.getByRole('slider', { name: /^Unfinished jobs/ });
    await until('some samples', async () => Number(await picture.getAttribute('aria-valuemax')) >= 3);
    const text = () => picture.getAttribute('aria-valuetext');
    await picture.focus();
    await page.keyboard.press('Home');
    assert.equal(await picture.getAttribute('aria-valuenow'), '0');
    await page.keyboard.press('ArrowRight');
    assert.equal(await picture.getAttribute('aria-valuenow'), '1');
    assert.match(
      await text(),
      /^\d\d:\d\d:\d\d: running [\d,]+, ready [\d,]+, delayed [\d,]+, waiting [\d,]+$/,
    );
    await picture.hover();
    await page.locator('.chart .rule').first().waitFor({ state: 'attached' });
    const figure = page.locator('figure').filter({ has: picture });
    await figure.getByText('As a table').click();
    // The page draws it when the browser reports that it is open.
    await until('a table', async () => (await figure.getByRole('row').count()) >= 2);
  });

  test('names are text, never markup', async (t) => {
    const { page, trouble } = await open(t, '#/groups');
    await page.getByRole('link', { name: 'umbrella/eu' }).click();
    await page.getByRole('link', { name: 'win-back <b>EU</b>' }).click();
    await page.getByRole('heading', { level: 1, name: 'win-back <b>EU</b>' }).waitFor();
    assert.equal(await page.locator('h1 b').count(), 0);
    assert.deepEqual(trouble, []);
  });

  test('the reference shows every operation of the description', async (t) => {
    const { page, trouble } = await open(t, 'docs');
    const description = await client(service.url).get('/openapi.json');
    const operations = Object.values(description.paths).flatMap((item) =>
      Object.keys(item).filter((key) => ['get', 'put', 'post', 'patch', 'delete'].includes(key)),
    );
    await page.locator('article.operation').first().waitFor();
    assert.equal(await page.locator('article.operation h3 .method').count(), operations.length);
    const broken = await page.evaluate(() =>
      [...document.querySelectorAll('a[href^="#"]')]
        .map((link) => link.hash.slice(1))
        .filter((id) => !document.getElementById(id)),
    );
    assert.deepEqual(broken, [], 'every link leads somewhere');
    await page.getByLabel('Filter operations').fill('replay');
    const replays = Object.keys(description.paths).filter((path) => path.includes('replay'));
    assert.equal(await page.locator('#contents li .method').count(), replays.length);
    assert.deepEqual(trouble, []);
  });

  test('screenshots', async (t) => {
    const { page } = await open(t, '#/', { width: 1280, height: 960 });
    const picture = page.getByRole('slider', { name: /^Starts/ });
    await until(
      'enough to show',
      async () => Number(await picture.getAttribute('aria-valuemax')) >= SECONDS_SHOWN,
      300_000,
    );
    const take = (name, options) => page.screenshot({ path: join(PICTURES, `${name}.png`), ...options });
    await take('dashboard-light');
    await page.emulateMedia({ colorScheme: 'dark' });
    await take('dashboard-dark');
    await page.emulateMedia({ colorScheme: 'light' });
    for (const [name, where] of [
      ['dashboard-groups', '#/groups'],
      ['dashboard-dead', '#/dead'],
    ]) {
      await show(page, where);
      await take(name);
    }
    await show(page, '#/refresh');
    const calls = page.getByRole('slider', { name: /^Calls per second/ });
    await until(
      'enough calls',
      async () => Number(await calls.getAttribute('aria-valuemax')) >= SECONDS_SHOWN,
      300_000,
    );
    await take('dashboard-refresh', { fullPage: true });
    await page.emulateMedia({ colorScheme: 'dark' });
    await take('dashboard-refresh-dark', { fullPage: true });
    await page.emulateMedia({ colorScheme: 'light' });
    await page.goto(`${service.url}/#/refresh/dead-letters`);
    await page.locator('main table summary').first().click();
    await take('dashboard-dead-letters');
    await page.setViewportSize({ width: 360, height: 740 });
    await show(page, '#/');
    await take('dashboard-narrow');
    await show(page, '#/refresh');
    await take('dashboard-refresh-narrow', { fullPage: true });
  });
});
