// The dashboard loads, updates live, changes things through the API, and follows a batch.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { launch, noticed, openPage } from './browser.js';
import { client, startService, startWorker, until } from './service.js';

describe('dashboard', { timeout: 1_800_000 }, () => {
  let service;
  let browser;
  let api;
  let open;
  const cleanUp = [];

  before(async () => {
    service = await startService();
    cleanUp.push(() => service.stop());
    browser = await launch();
    cleanUp.push(() => browser.close());
    api = client(service.url);
    open = async (t, hash = '', options = {}) => {
      const opened = await openPage(browser, service.url, options);
      t.after(() => opened.close());
      await opened.page.goto(`${service.url}/${hash}`);
      return opened;
    };
  });
  after(async () => {
    for (const end of cleanUp.reverse()) await end();
  });

  test('loads without an error, calls no other host, and violates no policy', async (t) => {
    const { page, trouble } = await open(t);
    await page.getByRole('status').filter({ hasText: 'Live' }).waitFor();
    await page.getByRole('heading', { name: 'Starts per second' }).waitFor();
    const response = await page.request.get(service.url);
    assert.match(response.headers()['content-security-policy'], /default-src 'none'/);
    for (const name of ['Groups', 'Dead jobs', 'Targets', 'Refresh', 'Limits', 'Audit', 'Overview']) {
      await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name }).click();
      await page.getByRole('heading', { level: 1, name }).waitFor({ state: 'attached' });
    }
    const rooms = page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Rooms' });
    assert.equal(await rooms.count(), 0, 'no room is configured');
    assert.deepEqual(trouble, []);
  });

  test('numbers change without a reload', async (t) => {
    await api.jobs('lively', 'first', 10);
    const { page, trouble } = await open(t);
    await page.locator('.tile', { hasText: 'waiting' }).waitFor();
    await page.evaluate(() => {
      window.sameDocument = true;
    });
    // In one read: jobs move from one to the other.
    const standing = () =>
      page.evaluate(() =>
        [...document.querySelectorAll('.tile')]
          .filter((tile) => ['waiting', 'ready'].includes(tile.querySelector('.label')?.textContent))
          .reduce((sum, tile) => sum + Number(tile.querySelector('.value').textContent.replaceAll(',', '')), 0),
      );
    const { earlier } = await until('the page to show what there is', async () => {
      const { counts } = await api.get('/v1/stats');
      const there = counts.waiting + counts.ready;
      return (await standing()) === there && { earlier: there };
    });
    await api.jobs('lively', 'second', 321);
    await until('the page to show them', async () => (await standing()) === earlier + 321);
    assert.equal(await page.evaluate(() => window.sameDocument), true);
    assert.deepEqual(trouble, []);
  });

  test('a group is paused and resumed from the page', async (t) => {
    await api.jobs('umbrella/eu <1>', 'mails', 20);
    const { page, trouble } = await open(t, '#/groups');
    await page.getByRole('button', { name: 'Pause umbrella/eu <1>' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Reason').fill('their import is broken');
    await dialog.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume umbrella/eu <1>' }).waitFor();
    const name = encodeURIComponent('umbrella/eu <1>');
    assert.equal((await api.get(`/v1/groups/${name}`)).paused, true);

    await page.getByRole('link', { name: 'umbrella/eu <1>' }).click();
    await page.getByRole('heading', { level: 1, name: 'umbrella/eu <1>' }).waitFor();
    await page.getByText('Its group is paused').waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    assert.equal((await api.get(`/v1/groups/${name}`)).paused, false);
    assert.deepEqual(trouble, []);
  });

  test('a group gets another weight and is cancelled from the page, with a reason', async (t) => {
    await api.jobs('heavy', 'mails', 15);
    const { page } = await open(t, '#/groups/heavy');
    await page.getByRole('button', { name: 'Weight' }).click();
    await page.getByRole('dialog').getByLabel('Weight').fill('4');
    await page.getByRole('button', { name: 'Change weight' }).click();
    await until('the weight', async () => (await api.get('/v1/groups/heavy')).weight === 4);

    await page.getByRole('button', { name: 'Cancel jobs' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Cancel jobs' }).click();
    assert.equal((await api.get('/v1/groups/heavy')).counts.dead, 0, 'nothing is cancelled without a reason');
    await dialog.getByLabel('Reason').fill('sent by mistake');
    await dialog.getByRole('button', { name: 'Cancel jobs' }).click();
    await noticed(page, '15 jobs cancelled');
    assert.equal((await api.get('/v1/groups/heavy')).counts.dead, 15);
  });

  test('a dead job is replayed from the page', async (t) => {
    let lives = 0;
    await api.jobs('phoenix', 'ashes', 1, { type: 'step' });
    const worker = startWorker(service.url, {
      queue: 'steps',
      outcome: () => {
        lives += 1;
        return lives === 1
          ? { outcome: 'FAILED', error: '422 not deliverable' }
          : { outcome: 'COMPLETED', result: 'sent' };
      },
    });
    t.after(() => worker.stop());
    await until(
      'the job to die',
      async () => (await api.get('/v1/groups/phoenix/jobs/ashes-0')).state === 'DEAD',
    );

    const { page, trouble } = await open(t, '#/dead?group=phoenix');
    await page.locator('summary', { hasText: '422 not deliverable' }).waitFor();
    assert.equal(await page.getByRole('row').count(), 2, 'the filter of the address holds');
    await page.getByRole('button', { name: 'Replay ashes-0 of phoenix' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Replay' }).click();
    await noticed(page, 'one job replayed');
    await until(
      'its second run',
      async () => (await api.get('/v1/groups/phoenix/jobs/ashes-0')).state === 'COMPLETED',
    );
    await page.getByText('No dead job matches the filter.').waitFor();
    assert.deepEqual(trouble, []);
  });

  test("a batch's page follows its progress", async (t) => {
    await api.put('/v1/groups/steady/batches/march', { keepResults: true });
    await api.jobs('steady', 'march', 4, { type: 'step', seal: true });
    const { page, trouble } = await open(t, '#/groups/steady/batches/march');
    const progress = page.getByRole('heading', { name: 'Progress' }).locator('..');
    await progress.getByText('0 of 4 jobs').waitFor();
    await page.evaluate(() => {
      window.sameDocument = true;
    });

    const step = async (max, outcome) => {
      const jobs = [];
      // A call returns with the first jobs that are ready.
      await until('something to do', async () => {
        const request = { queue: 'steps', max: max - jobs.length, waitMs: 5_000 };
        jobs.push(...(await api.post('/v1/leases', request)).jobs);
        return jobs.length === max;
      });
      await api.post('/v1/leases/settle', {
        settlements: jobs.map(({ lease, id }) => ({ lease, ...outcome(id) })),
      });
    };
    await step(2, (id) => ({ outcome: 'COMPLETED', result: { sent: id } }));
    await progress.getByText('2 of 4 jobs').waitFor();
    await progress.getByText('50 %').waitFor();
    await step(2, () => ({ outcome: 'FAILED', error: 'mailbox <full>' }));
    await progress.getByText('4 of 4 jobs').waitFor();
    await page.getByRole('listitem').filter({ hasText: 'mailbox <full>' }).waitFor();
    await page.getByText('{"sent":"march-0"}').click();
    await page.getByText('"sent": "march-0"').waitFor();
    assert.equal(await page.evaluate(() => window.sameDocument), true);
    assert.deepEqual(trouble, []);
  });

  test('open details and focus survive an update', async (t) => {
    await api.jobs('patient', 'mails', 3);
    const { page } = await open(t, '#/groups/patient/batches/mails');
    await page.locator('summary', { hasText: 'Payload' }).first().click();
    const job = page.getByRole('link', { name: 'mails-1' });
    await job.focus();
    await page.waitForResponse((response) => response.url().includes('/results'));
    await page.waitForResponse((response) => response.url().includes('/results'));
    assert.equal(await page.locator('details[open]').count(), 1);
    assert.equal(await job.evaluate((element) => element === document.activeElement), true);
  });

  test('a problem is shown with its detail and the id of the request', async (t) => {
    const { page } = await open(t, '#/groups/nobody%20here');
    const alert = page.locator('.problem');
    await alert.getByText('nobody here').waitFor();
    assert.match(await alert.textContent(), /unknown_group · request \S+/);
  });

  test('a change of a rate asks for a reason and sends it', async (t) => {
    const { page } = await open(t, '#/limits');
    await page.getByRole('button', { name: 'Change rate of the whole system' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Starts, like').fill('9000/min');
    await dialog.getByLabel('Reason').fill('the provider raised our quota');
    const sent = page.waitForRequest((request) => request.method() === 'PATCH');
    await dialog.getByRole('button', { name: 'Change rate' }).click();
    assert.deepEqual((await sent).postDataJSON(), { rate: '9000/min', why: 'the provider raised our quota' });
    await dialog.waitFor({ state: 'detached' });
  });

  test('a lost connection is shown and comes back by itself', async (t) => {
    const { page } = await open(t);
    const mark = page.locator('#live');
    await mark.filter({ hasText: 'Live' }).waitFor();
    await page.route('**/v1/events', (route) => route.abort());
    // As a browser does when its user goes to another tab and back: the page opens the stream again.
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await mark.filter({ hasText: 'Reconnecting' }).waitFor();
    await page.unroute('**/v1/events');
    await mark.filter({ hasText: 'Live' }).waitFor();
  });

  test('an unavailable store is shown', async (t) => {
    const stats = await api.get('/v1/stats');
    stats.store = { kind: 'redis', available: false, unavailableSince: stats.at };
    const { page } = await open(t, '#/limits');
    await page.route('**/v1/events', (route) =>
      route.fulfill({
        contentType: 'text/event-stream',
        body: `event: stats\ndata: ${JSON.stringify(stats)}\n\n`,
      }),
    );
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await page.getByRole('alert').filter({ hasText: 'Store unavailable' }).waitFor();
  });

  test('keys: the page asks for one, sends the token with changes, hides what the roles do not allow', async (t) => {
    await api.jobs('locked', 'mails', 2);
    let me = null;
    const { page } = await openPage(browser, service.url);
    t.after(() => page.context().close());
    // The test plays the server: it is about what the page does.
    await page.route('**/v1/me', (route) =>
      me
        ? route.fulfill({ json: me })
        : route.fulfill({
            status: 401,
            contentType: 'application/problem+json',
            json: {
              type: 'x',
              status: 401,
              code: 'unauthorized',
              title: 'Authentication required',
              detail: 'no key',
            },
          }),
    );
    await page.route('**/login', (route) => {
      const good = route.request().postDataJSON().key === 'tg_right';
      if (good)
        me = { name: 'ana', roles: ['READ', 'ADMIN'], groups: [], csrf: 'token-1', keysRequired: true };
      return route.fulfill(
        good
          ? { status: 204 }
          : {
              status: 401,
              json: { status: 401, code: 'unauthorized', title: 'Authentication required', detail: 'wrong' },
            },
      );
    });
    await page.goto(`${service.url}/#/groups/locked`);
    await page.getByLabel('Key').fill('tg_wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Unknown key.').waitFor();
    await page.getByLabel('Key').fill('tg_right');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('heading', { level: 1, name: 'locked' }).waitFor();
    await page.getByText('ana').waitFor();

    const sent = page.waitForRequest(
      (request) => request.method() === 'POST' && request.url().includes('/pause'),
    );
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
    assert.equal((await sent).headers()['x-csrf-token'], 'token-1');

    me = { name: 'guest', roles: ['READ'], groups: ['lock*'], csrf: 'token-2', keysRequired: true };
    await page.goto(`${service.url}/#/groups`);
    await page.reload();
    await page.getByRole('link', { name: 'locked' }).waitFor();
    assert.equal(await page.getByRole('button', { name: /Pause|Resume|Cancel/ }).count(), 0);
    const links = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').allTextContents();
    assert.deepEqual(links, ['Groups', 'Dead jobs'], 'what concerns all groups is not for a key of some');
  });
});
