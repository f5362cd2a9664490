// The refresh page and its dead letters: live figures, unavailable backends, a service without sources, replay and purge.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { assertAccessible } from './accessible.js';
import { launch, noticed, openPage } from './browser.js';
import { client, startService, until } from './service.js';

const DEAD_LETTERS = '/v1/refresh/dead-letters';

describe('refresh', { timeout: 1_800_000 }, () => {
  let service;
  let browser;
  let api;
  const cleanUp = [];

  before(async () => {
    service = await startService();
    cleanUp.push(() => service.stop());
    browser = await launch();
    cleanUp.push(() => browser.close());
    api = client(service.url);
  });
  after(async () => {
    for (const end of cleanUp.reverse()) await end();
  });

  async function open(t, hash, options) {
    const opened = await openPage(browser, service.url, options);
    t.after(() => opened.close());
    await opened.page.goto(`${service.url}/${hash}`);
    return opened;
  }

  const read = (source, keys) =>
    api.post('/v1/records/read', { records: keys.map((key) => ({ source, key })) });
  const fresh = (key, source = 'character') =>
    until(`${key} to be fresh`, async () => {
      const record = await api.get(`/v1/records/${source}/${key}`);
      return record.freshness === 'FRESH' && record;
    });
  /** A dead letter of a record that the provider answers with `answer`. */
  async function deadLetter(key, answer = 'error400') {
    await service.upstream.post('/set', { answers: { [key]: answer } });
    await api.get(`/v1/records/character/${key}`);
    return until(`a dead letter of ${key}`, async () =>
      (await api.get(DEAD_LETTERS)).items.find((one) => one.key === key),
    );
  }
  const tile = (page, name) => page.locator('.tile', { hasText: name }).locator('.value');
  /** The page gets the service's response after `change`. */
  const played = (page, change) =>
    page.route('**/v1/refresh', async (route) => {
      const response = await route.fetch();
      const seen = await response.json();
      change(seen);
      await route.fulfill({ response, json: seen });
    });

  test('budgets, freshness and outcomes are shown and live', async (t) => {
    const { page, trouble } = await open(t, '#/refresh');
    await page.getByRole('heading', { name: /^Budget game/ }).waitFor();
    await page.getByText('of 50 calls/s').waitFor();
    await page.locator('.budget').getByText('hard limit 60/s').waitFor();
    await page.getByText('800K reserved for HIGH').waitFor();
    const today = page.getByRole('img', { name: /of 4,000,000 calls today; 800,000 are reserved for HIGH/ });
    await today.waitFor();
    assert.equal(await tile(page, 'Store breaker').textContent(), 'Closed');
    assert.equal(await tile(page, 'Database breaker').textContent(), 'Closed');
    await page.evaluate(() => {
      window.sameDocument = true;
    });

    const keys = Array.from({ length: 30 }, (_, n) => `live-${n}`);
    await read('character', keys);
    const calls = page.locator('.budget .big b');
    await until('calls in this second', async () => Number(await calls.textContent()) > 0);
    await until(
      'the mix',
      async () => (await page.getByRole('img', { name: /^\d+ fresh/ }).count()) > 0,
    );
    await until('outcomes', async () => (await page.getByRole('img', { name: /^\d+ updated/ }).count()) > 0);
    await until('reads', async () => Number(await tile(page, 'Reads').textContent()) >= 30);
    assert.equal(await page.evaluate(() => window.sameDocument), true);
    const picture = page.getByRole('slider', { name: /^Calls per second to game/ });
    await until('samples', async () => Number(await picture.getAttribute('aria-valuemax')) >= 2);
    await picture.focus();
    await page.keyboard.press('Home');
    assert.match(
      await picture.getAttribute('aria-valuetext'),
      /^\d\d:\d\d:\d\d: calls [\d.,]+\/s, hard limit 60\/s$/,
    );
    assert.deepEqual(trouble, []);
  });

  test('a dead letter is inspected, and purged with a reason only', async (t) => {
    const { position } = await deadLetter('doomed');
    const { page, trouble } = await open(t, '#/refresh');
    await page.getByRole('cell', { name: 'doomed' }).waitFor();
    await page.getByRole('link', { name: 'All dead letters' }).click();
    await page.getByRole('heading', { level: 1, name: 'Dead letters' }).waitFor();
    const row = page.getByRole('row', { name: /doomed/ });
    await row.getByText('4xx response').waitFor();
    await row.locator('summary').click();
    await row.getByText('"priority": "HIGH"').waitFor();
    await row.getByText(position, { exact: true }).waitFor();

    await page.getByLabel('Select doomed of character').check();
    await page.getByText('1 selected').waitFor();
    await page.getByRole('button', { name: 'Purge selected' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Purge' }).click();
    assert.equal((await api.get(DEAD_LETTERS)).items.length, 1, 'nothing is purged without a reason');
    await dialog.getByLabel('Reason').fill('a key that never was');
    await dialog.getByRole('button', { name: 'Purge' }).click();
    await noticed(page, 'one dead letter purged');
    await page.getByText('No dead letters.').waitFor();
    const noted = (await api.get('/v1/audit')).items.find((one) => one.what === 'dead_letters.purge');
    assert.equal(noted?.why, 'a key that never was', JSON.stringify(noted));

    await page.getByLabel('Show').selectOption('open and handled');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByRole('row', { name: /doomed/ }).getByText('Purged').waitFor();
    assert.equal(await page.getByRole('button', { name: /^Replay doomed/ }).count(), 0);
    assert.deepEqual(trouble, []);
  });

  test('a dead letter is replayed by keyboard, and its record is fresh again', async (t) => {
    await deadLetter('phoenix', 'wrong_type');
    await service.upstream.post('/set', { answers: {} });
    const { page, trouble } = await open(t, '#/refresh/dead-letters?reason=PARSE_ERROR');
    const replay = page.getByRole('button', { name: 'Replay phoenix of character' });
    await replay.waitFor();
    const reached = [];
    for (let n = 0; n < 40 && !(await replay.evaluate((one) => one === document.activeElement)); n += 1) {
      await page.keyboard.press('Tab');
      reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent));
    }
    assert.ok(reached.includes('dead-letter-reason'), reached.join(', '));
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.equal(await replay.evaluate((one) => one === document.activeElement), true);
    await page.keyboard.press('Enter');
    await dialog.getByRole('button', { name: 'Replay' }).press('Enter');
    await noticed(page, 'one dead letter replayed');
    await page.getByText('No dead letter matches the filter.').waitFor();
    await fresh('phoenix');
    assert.deepEqual(trouble, []);
  });

  test('what a role does not allow is not shown', async (t) => {
    await deadLetter('kept');
    const { page } = await openPage(browser, service.url);
    t.after(() => page.context().close());
    let groups = [];
    await page.route('**/v1/me', (route) =>
      route.fulfill({
        json: { name: 'guest', roles: ['READ'], groups, csrf: 'token', keysRequired: true },
      }),
    );
    await page.goto(`${service.url}/#/refresh/dead-letters`);
    await page.getByRole('row', { name: /kept/ }).waitFor();
    assert.equal(await page.getByRole('button', { name: /Replay|Purge/ }).count(), 0);
    assert.equal(await page.getByRole('checkbox').count(), 0);
    groups = ['shop-*'];
    await page.reload();
    const links = page.getByRole('navigation', { name: 'Pages' }).getByRole('link');
    await links.first().waitFor();
    assert.deepEqual(await links.allTextContents(), ['Groups', 'Dead jobs']);
  });

  test('an unavailable store and a database that accepts no writes are shown', async (t) => {
    const { page } = await open(t, '#/');
    await played(page, (seen) => {
      seen.storeAvailable = false;
      seen.breakers = { store: 'OPEN', database: 'HALF_OPEN' };
      seen.lag.lowPaused = true;
      seen.budgets[0].seen = undefined;
    });
    await page.goto(`${service.url}/#/refresh`);
    await page.getByRole('alert').filter({ hasText: 'The store is unavailable.' }).waitFor();
    await page.getByRole('alert').filter({ hasText: 'The database does not accept writes.' }).waitFor();
    assert.equal(await tile(page, 'Store breaker').textContent(), 'Open');
    assert.equal(await tile(page, 'Database breaker').textContent(), 'Half open');
    await page.getByText('Paused for HIGH').waitFor();
    await page.getByText('Not reported yet').waitFor();
    await assertAccessible(page);
    await page.unroute('**/v1/refresh');
    await page.getByText('The store is unavailable.').waitFor({ state: 'detached' });
  });

  test('an unreadable database is reported in its place', async (t) => {
    const { page } = await open(t, '#/');
    await page.route(`**${DEAD_LETTERS}**`, (route) =>
      route.fulfill({
        status: 503,
        json: { status: 503, code: 'database_unavailable', title: 'The database', detail: 'no connection' },
      }),
    );
    await page.goto(`${service.url}/#/refresh`);
    await page.locator('.problem').getByText('no connection').waitFor();
    await page.getByRole('heading', { name: /^Budget game/ }).waitFor();
    await page.goto(`${service.url}/#/refresh/dead-letters`);
    await page.locator('.problem').getByText('no connection').waitFor();
  });

  test("a provider's Retry-After is shown until calls resume", async (t) => {
    const { page } = await open(t, '#/refresh');
    await page.getByRole('heading', { name: /^Budget game/ }).waitFor();
    await service.upstream.post('/set', { answers: { busy: 'throttled' }, retry_after_s: 30 });
    await api.get('/v1/records/character/busy');
    await page.getByText('On hold').waitFor();
    await page.getByText(/calls resume in \d+ s/).waitFor();
    await service.upstream.post('/set', { answers: {}, retry_after_s: 1 });
    await page.getByText('On hold').waitFor({ state: 'detached' });
    await fresh('busy');
    // The limit, and what a caller may send after a stall: a burst, and the tokens that are still valid. A second that
    // begins in a stall of the provider itself also has calls of before it.
    const { busiest } = await service.upstream.get('/report');
    for (const [lateMs, calls] of Object.entries(busiest)) {
      const most = 60 + 5 + 3 + Math.ceil((50 * Number(lateMs)) / 1_000);
      assert.ok(calls <= most, `${calls} calls in a second that may have ${most}: the limit held all the time`);
    }
  });

  test('a service without sources says so', async (t) => {
    const plain = await startService({ sources: false });
    t.after(() => plain.stop());
    const { page, trouble, close } = await openPage(browser, plain.url);
    t.after(close);
    await page.goto(`${plain.url}/#/refresh`);
    await page.getByRole('heading', { name: 'Refresh is not configured' }).waitFor();
    await page.getByText('[sources.character]').waitFor();
    await assertAccessible(page);
    assert.deepEqual(trouble, []);
    await page.goto(`${plain.url}/#/refresh/dead-letters`);
    await page.getByText('the configuration has no sources').waitFor();
    await assertAccessible(page);
  });
});
