// Waiting rooms: the visitor's page with and without scripts, through closed tabs and lost networks, and the operator's page.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { assertAccessible, assertContrast } from './accessible.js';
import { launch, openPage } from './browser.js';
import { client, startService, startVisitor, until } from './service.js';

const ROOT = resolve(import.meta.dirname, '../..');
const PICTURES = resolve(ROOT, process.env.TIDEGATE_SCREENSHOTS ?? 'target/screenshots');
const TEXTS = ['h1', 'h2', 'p', 'dt', 'dd', 'li', 'button', 'a', '.chip', '.label', '.fine', '.position b'];

/** A shop that lets in visitors whose pass the service accepts. */
async function startShop() {
  const shop = { service: null };
  const server = createServer(async (request, response) => {
    const address = new URL(request.url, 'http://shop.example');
    const room = address.pathname.split('/').at(-1);
    const pass = address.searchParams.get('pass');
    if (!pass) {
      response.writeHead(404).end();
      return;
    }
    const answer = await fetch(`${shop.service}/v1/rooms/stage/redeem`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ pass, session: 'basket-1' }),
    });
    const visit = await answer.json();
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    response.end(`<!doctype html><title>Shop</title><h1>${room}: ${visit.state ?? visit.code}</h1>`);
  });
  await new Promise((done) => {
    server.listen(0, '127.0.0.1', done);
  });
  shop.url = `http://127.0.0.1:${server.address().port}/enter`;
  shop.stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return shop;
}

/** Hangul is drawn with glyphs of its own: without a font, every character is the same box. */
async function assertHangul(page) {
  const drawn = await page.evaluate(() =>
    ['가', '나', '다', '힣'].map((character) => {
      const canvas = document.createElement('canvas');
      const context = canvas.getContext('2d');
      context.font = `40px ${getComputedStyle(document.body).fontFamily}`;
      context.fillText(character, 10, 50);
      return canvas.toDataURL();
    }),
  );
  assert.equal(new Set(drawn).size, drawn.length, 'there is no Korean font: install the Debian package fonts-nanum');
}

describe('rooms', { timeout: 1_800_000 }, () => {
  let service;
  let shop;
  let browser;
  let api;
  const cleanUp = [];

  before(async () => {
    shop = await startShop();
    cleanUp.push(() => shop.stop());
    service = await startService({ sources: false, shop: shop.url });
    shop.service = service.url;
    cleanUp.push(() => service.stop());
    browser = await launch();
    cleanUp.push(() => browser.close());
    api = client(service.url);
    await mkdir(PICTURES, { recursive: true });
  });
  after(async () => {
    for (const end of cleanUp.reverse()) await end();
  });

  async function open(t, where, options) {
    const opened = await openPage(browser, service.url, options);
    t.after(() => opened.close());
    await opened.page.goto(`${service.url}/${where}`);
    return opened;
  }

  /** A paused room with some visitors in the queue. */
  async function startQueue(t, room, people) {
    await api.post(`/v1/rooms/${room}/pause`, { why: 'a test begins' });
    const visitors = [];
    for (let n = 0; n < people; n += 1) visitors.push(await startVisitor(service.url, room));
    t.after(() => visitors.forEach((visitor) => visitor.gone()));
    return visitors;
  }

  /** The page counts down from five seconds and continues: a stopped clock gives a test time to check it. */
  const stopClock = (page) =>
    page.evaluate(() => {
      const at = Date.now();
      window.runningNow = Date.now;
      Date.now = () => at;
    });
  const runClock = (page) =>
    page.evaluate(() => {
      Date.now = window.runningNow;
    });
  const joinQueue = (page) => page.getByRole('button', { name: 'Join the queue' }).click();
  const position = (page, text) => page.locator('.position b', { hasText: new RegExp(`^${text}$`) }).waitFor();
  const heading = (page, name) => page.getByRole('heading', { name });
  const waiting = async (room) => (await api.get(`/v1/rooms/${room}`)).waiting;
  /** A browser logs every error response; a test that expects one ignores it. */
  const serious = (trouble) => trouble.filter((text) => !text.includes('Failed to load resource'));

  /** Checks that everybody can read the page at any width, and takes screenshots. */
  async function check(page, name, title = 'Winter tour', language = 'en') {
    await assertAccessible(page, { title, language });
    await assertContrast(page, TEXTS);
    // 640 pixels are what remains of 1280 at 200 %.
    for (const [width, height] of [
      [1280, 900],
      [640, 450],
      [360, 740],
    ]) {
      await page.setViewportSize({ width, height });
      const [wide, seen] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        document.documentElement.clientWidth,
      ]);
      assert.ok(wide <= seen, `${name} is ${wide} pixels wide on a screen of ${seen}`);
      if (width !== 640)
        await page.screenshot({ path: join(PICTURES, `room-${name}${width === 360 ? '-narrow' : ''}.png`) });
    }
  }

  test('a visitor joins by pressing, moves up, and keeps the ticket through a closed tab', async (t) => {
    const [first] = await startQueue(t, 'concert', 3);
    const { page, trouble, tab } = await open(t, 'rooms/concert');
    await heading(page, 'Join the queue').waitFor();
    await page.reload();
    assert.equal(await waiting('concert'), 3, 'a look at the page does not join');
    await joinQueue(page);
    await position(page, 4);
    await until('the title', async () => /^4 · Paused · Winter tour$/.test(await page.title()));
    await page.evaluate(() => {
      window.sameDocument = true;
    });
    await first.leave();
    await position(page, 3);
    assert.equal(await page.evaluate(() => window.sameDocument), true, 'without a reload');
    const bar = page.getByRole('progressbar');
    assert.equal(await bar.getAttribute('aria-valuenow'), '33', 'from 4 to 1');
    await startVisitor(service.url, 'concert').then((last) => t.after(() => last.gone()));

    await page.close();
    const back = await tab();
    await back.goto(`${service.url}/rooms/concert`);
    await position(back, 3);
    assert.equal(await waiting('concert'), 4, 'it is the same ticket');
    assert.deepEqual(trouble, []);
  });

  test('the newest tab has the ticket, and the other can take it back', async (t) => {
    await startQueue(t, 'tabs', 1);
    const { page, trouble, tab } = await open(t, 'rooms/tabs');
    await joinQueue(page);
    await position(page, 2);
    const second = await tab();
    await second.goto(`${service.url}/rooms/tabs`);
    await heading(page, 'You continued in another tab').waitFor();
    await position(second, 2);
    await page.getByRole('button', { name: 'Use here instead' }).click();
    await position(page, 2);
    await heading(second, 'You continued in another tab').waitFor();
    assert.equal(await waiting('tabs'), 2);
    assert.deepEqual(trouble, []);
  });

  test('a visitor who is let in arrives at the shop', async (t) => {
    await startQueue(t, 'stage', 2);
    const { page, trouble } = await open(t, 'rooms/stage');
    await joinQueue(page);
    await position(page, 3);
    await stopClock(page);
    await api.post('/v1/rooms/stage/resume', { why: 'doors open' });
    await heading(page, 'It is your turn').waitFor();
    await page.getByText(/You will be taken there in \d s/).waitFor();
    assert.match(await page.title(), /Your turn/);
    await runClock(page);
    await page.waitForURL(`${shop.url}?pass=*`);
    await heading(page, 'enter: INSIDE').waitFor();
    await page.goBack();
    await heading(page, 'You are inside').waitFor();
    assert.deepEqual(
      serious(trouble).filter((text) => !text.includes(shop.url)),
      [],
    );
  });

  test('the redirect can be stopped, and a turn given up', async (t) => {
    await api.post('/v1/rooms/door/resume', { why: 'a test begins' });
    const { page } = await open(t, 'rooms/door');
    await stopClock(page);
    await joinQueue(page);
    await page.getByRole('button', { name: 'Stay here' }).click();
    await page.getByText('Continue whenever you are ready.').waitFor();
    await runClock(page);
    await page.waitForTimeout(6_000);
    assert.equal(page.url(), `${service.url}/rooms/door`);
    await page.getByRole('button', { name: 'Give up my turn' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Keep my place' }).click();
    await page.getByRole('button', { name: 'Give up my turn' }).click();
    await dialog.getByRole('button', { name: 'Leave', exact: true }).click();
    await heading(page, 'You have left the queue').waitFor();
    await stopClock(page);
    await page.getByRole('button', { name: 'Join again at the end' }).click();
    await heading(page, 'It is your turn').waitFor();
  });

  test('only milestones are announced', async (t) => {
    const visitors = await startQueue(t, 'looks', 7);
    const { page } = await open(t, 'rooms/looks');
    await page.evaluate(() => {
      window.announcements = [];
      const announcer = document.getElementById('announcer');
      new MutationObserver(() => window.announcements.push(announcer.textContent)).observe(announcer, { childList: true });
    });
    await joinQueue(page);
    await position(page, 8);
    for (const [n, visitor] of visitors.entries()) {
      await visitor.leave();
      visitor.gone();
      await position(page, 7 - n);
    }
    assert.deepEqual(await page.evaluate(() => window.announcements), [
      'You joined the queue. You are number 8.',
      'You are number 5.',
      'You are halfway there. You are number 4.',
      'You are next.',
    ]);
    const focused = await page.evaluate(() => document.activeElement.closest('.card') !== null);
    assert.ok(focused, 'the keyboard stays where it was pressed');
  });

  test('failures are announced', async (t) => {
    await startQueue(t, 'looks', 0);
    const { page } = await open(t, 'rooms/looks?notice=refused');
    const announced = (text) => page.locator('#announcer', { hasText: text }).waitFor({ state: 'attached' });
    const refused = 'This browser cannot join the queue.';
    await announced(refused);
    const problem = {
      status: 401,
      contentType: 'application/problem+json',
      json: { code: 'bad_token', detail: 'the token has expired' },
    };
    await page.route('**/events/**', (route) => route.fulfill(problem));
    await page.route('**/v1/rooms/looks/join', (route) => route.fulfill(problem));
    await page.evaluate(() => {
      window.announcements = [];
      const announcer = document.getElementById('announcer');
      new MutationObserver(() => window.announcements.push(announcer.textContent)).observe(announcer, { childList: true });
    });
    for (const times of [1, 2]) {
      await joinQueue(page);
      // The page announces the same error again.
      await until('the refusal', async () => {
        const announcements = await page.evaluate(() => window.announcements);
        return announcements.filter((text) => text === refused).length === times;
      });
    }
    await page.unroute('**/events/**');
    await page.unroute('**/v1/rooms/looks/join');
    await joinQueue(page);
    await page.locator('.position b').waitFor();
    await page.route('**/v1/rooms/looks/leave', (route) => route.abort());
    await page.getByRole('button', { name: 'Leave the queue' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Leave', exact: true }).click();
    await announced('The waiting room is unavailable at the moment');
  });

  test('a lost network is shown, and the ticket is kept until it is back', async (t) => {
    await startQueue(t, 'offline', 2);
    const { page, context } = await open(t, 'rooms/offline');
    await joinQueue(page);
    await position(page, 3);
    await context.setOffline(true);
    await page.getByText(/^Reconnecting\. Your place is kept for \d+ seconds\.$/).waitFor();
    await context.setOffline(false);
    await page.getByText(/^Reconnecting/).waitFor({ state: 'detached' });
    await position(page, 3);
    assert.equal(await waiting('offline'), 3);
  });

  test('where streams are refused the page polls', async (t) => {
    const [first] = await startQueue(t, 'seoul', 2);
    const opened = await openPage(browser, service.url);
    t.after(() => opened.close());
    const { page } = opened;
    await page.route('**/events/**', (route) => route.abort());
    await page.goto(`${service.url}/rooms/seoul`);
    await joinQueue(page);
    await page.locator('.position b').waitFor();
    const before = Number(await page.locator('.position b').textContent());
    await first.leave();
    await page.locator('.position b', { hasText: new RegExp(`^${before - 1}$`) }).waitFor();
  });

  test('a page that slept for too long says that its ticket is gone, and does not join again by itself', async (t) => {
    await startQueue(t, 'seoul', 1);
    const { page, context, trouble } = await open(t, 'rooms/seoul');
    await joinQueue(page);
    await page.locator('.position b').waitFor();
    const before = await waiting('seoul');
    const requests = [];
    page.on('request', (request) => requests.push(new URL(request.url()).pathname));
    const sleep = () =>
      page.evaluate(() => {
        const now = Date.now;
        Date.now = () => now() + 3_600_000;
        window.dispatchEvent(new Event('online'));
      });
    const ticket = '/v1/rooms/seoul/ticket';
    const stream = '/events/seoul/tickets/waiting';
    const opened = page.waitForResponse((response) => new URL(response.url()).pathname === stream);
    await sleep();
    await opened;
    assert.deepEqual(requests, [ticket, stream], 'the ticket is still valid');
    await page.locator('.position b').waitFor();

    // A service that has dropped the ticket knows as little as one that does not get the cookie.
    await context.clearCookies();
    requests.length = 0;
    await sleep();
    await heading(page, 'Your place is gone').waitFor();
    await page.getByText('This browser was disconnected for longer than a place is kept.').waitFor();
    assert.deepEqual(requests, [ticket]);
    assert.ok((await waiting('seoul')) <= before, 'nobody joined at the end');
    await page.getByRole('button', { name: 'Join again at the end' }).click();
    await page.locator('.position b').waitFor();
    assert.deepEqual(serious(trouble), []);
  });

  test('everything works without JavaScript', async (t) => {
    const [first] = await startQueue(t, 'plain', 2);
    const { page, trouble } = await open(t, 'rooms/plain', { javaScriptEnabled: false });
    await joinQueue(page);
    assert.equal(page.url(), `${service.url}/rooms/plain`);
    await position(page, 3);
    await page.getByText('Ahead of you').waitFor();
    await page.getByText('Check again at least every').waitFor();
    await check(page, 'no-script');
    await first.leave();
    await until('the other to be gone', async () => (await waiting('plain')) === 2);
    await page.getByRole('link', { name: 'Check again' }).click();
    await position(page, 2);
    await page.getByRole('button', { name: 'Leave the queue' }).click();
    await heading(page, 'You have left the queue').waitFor();
    await page.getByRole('button', { name: 'Join again at the end' }).click();
    await position(page, 2);
    await api.post('/v1/rooms/plain/resume', { why: 'doors open' });
    await until('the turn', async () => {
      await page.reload();
      return heading(page, 'It is your turn').isVisible();
    });
    const go = page.getByRole('link', { name: 'Go to the shop' });
    assert.match(await go.getAttribute('href'), /\?pass=/);
    assert.deepEqual(trouble, []);
  });

  test('a room that requires a proof of work gets it, and the page stays responsive', async (t) => {
    const { page, trouble } = await open(t, 'rooms/works');
    await page.evaluate(() => {
      window.seen = [];
      let ticks = 0;
      const tick = () => {
        ticks += 1;
        setTimeout(tick);
      };
      tick();
      new MutationObserver(() => {
        const bar = document.querySelector('.progress [role=progressbar]');
        const text = bar?.parentElement.textContent ?? '';
        if (text.includes('tries')) window.seen.push({ share: Number(bar.ariaValueNow), text, ticks });
      }).observe(document.getElementById('content'), { childList: true, subtree: true, characterData: true });
    });
    await joinQueue(page);
    await position(page, 1);
    const seen = await page.evaluate(() => window.seen);
    assert.match(seen[0].text, /One moment … .* It takes 65,536 on average/);
    for (const [n, one] of seen.entries()) {
      const before = seen[n - 1] ?? { share: 0, ticks: 0 };
      assert.ok(one.share < 100 && one.share >= before.share, 'the share grows, and is not whole before the end');
      assert.ok(one.ticks > before.ticks, 'other tasks of the page continue');
    }
    await page.reload();
    await position(page, 1);
    await page.getByRole('button', { name: 'Leave the queue' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Leave', exact: true }).click();
    await page.getByRole('button', { name: 'Join again at the end' }).click();
    await position(page, 1);
    assert.deepEqual(trouble, []);
  });

  test('a late proof of work is done once more, and not for ever', async (t) => {
    const { page } = await open(t, 'rooms/works');
    let refused = 0;
    const late = {
      status: 403,
      contentType: 'application/problem+json',
      json: { code: 'proof_needed', detail: 'the challenge has expired' },
    };
    const proofs = new Set();
    await page.route('**/v1/rooms/works/join', (route) => {
      proofs.add(route.request().postDataJSON().proof);
      refused += 1;
      return route.fulfill(late);
    });
    await joinQueue(page);
    await page.locator('#content').getByText('The puzzle took too long').waitFor();
    assert.deepEqual([refused, proofs.size], [2, 2]);
    await page.unroute('**/v1/rooms/works/join');
    await page.route('**/v1/rooms/works/join', (route) => route.fulfill(late), { times: 1 });
    await joinQueue(page);
    await page.locator('.position b').waitFor();
  });

  test('a page that does not know of the proof of work learns it', async (t) => {
    const opened = await openPage(browser, service.url);
    t.after(() => opened.close());
    const { page } = opened;
    await page.route('**/rooms/works', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace('"needsProof":true', '"needsProof":false') });
    });
    await page.goto(`${service.url}/rooms/works`);
    assert.equal(await page.evaluate(() => JSON.parse(document.getElementById('page-data').textContent).needsProof), false);
    await joinQueue(page);
    await page.locator('.position b').waitFor();
  });

  test('without JavaScript a room that requires a proof of work says what it needs', async (t) => {
    const { page } = await open(t, 'rooms/works', { javaScriptEnabled: false });
    await page.getByText('This room needs JavaScript').waitFor();
    await page.getByRole('link', { name: 'Check again' }).waitFor();
    assert.equal(await page.getByRole('button').count(), 0);
    await check(page, 'needs-script', 'Waiting room');
  });

  test('hashes equal those of another implementation', async (t) => {
    const { page } = await open(t, 'rooms/concert');
    const texts = Array.from({ length: 200 }, (_, n) => ['x'.repeat(n), String(n ** 4)]);
    const hashes = await page.evaluate(async (all) => {
      const { prefixHasher } = await import('/assets/room/sha256.js');
      const hex = (word) => (word >>> 0).toString(16).padStart(8, '0');
      return all.map(([text, more]) => [...prefixHasher(text)(more)].map(hex).join(''));
    }, texts);
    const wanted = texts.map(([text, more]) => createHash('sha256').update(text + more).digest('hex'));
    assert.deepEqual(hashes, wanted);
  });

  test('Korean for those who read it, and a link to the other language', async (t) => {
    await startQueue(t, 'seoul', 0);
    const { page, trouble } = await open(t, 'rooms/seoul', { locale: 'ko-KR' });
    await assertHangul(page);
    await check(page, 'korean-join', '겨울 투어', 'ko');
    await page.getByRole('button', { name: '대기열 참여하기' }).click();
    await page.getByText('내 순서').waitFor();
    await page.locator('.position b', { hasText: /번$/ }).waitFor();
    await check(page, 'korean', '겨울 투어', 'ko');
    await page.getByRole('link', { name: 'English' }).click();
    await page.getByText('Your position').waitFor();
    assert.match(page.url(), /\?lang=en$/);
    assert.deepEqual(trouble, []);
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`every step of the way in Korean, narrow and wide, in ${colorScheme}`, async (t) => {
      const join = { name: '대기열 참여하기' };
      await api.post('/v1/rooms/door/resume', { why: 'a test begins' });
      const { page, trouble } = await open(t, 'rooms/door?lang=ko', { colorScheme });
      await stopClock(page);
      await page.getByRole('button', join).click();
      await page.getByRole('button', { name: '여기에 머무르기' }).click();
      await check(page, `korean-granted-${colorScheme}`, '입장하세요', 'ko');
      await page.getByRole('button', { name: '입장 포기하기' }).click();
      await page.getByRole('dialog').getByRole('button', { name: '나가기', exact: true }).click();
      await heading(page, '대기열에서 나갔습니다').waitFor();
      await check(page, `korean-left-${colorScheme}`, '겨울 투어', 'ko');
      await page.goto(`${service.url}/rooms/later?lang=ko`);
      await page.getByRole('button', join).click();
      await heading(page, '추첨 대상입니다').waitFor();
      // A clock would count more hours than fit on a line.
      await page.locator('.opening .time', { hasText: /^[\d,]+일$/ }).waitFor();
      await check(page, `korean-draw-${colorScheme}`, '대기실', 'ko');
      assert.deepEqual(trouble, []);
      const plain = await open(t, 'rooms/works?lang=ko', { colorScheme, javaScriptEnabled: false });
      await plain.page.getByText('이 대기실은 자바스크립트가 필요합니다').waitFor();
      await check(plain.page, `korean-no-script-${colorScheme}`, '대기실', 'ko');
    });
  }

  test('durations are worded as the server words them', async (t) => {
    const cases = JSON.parse(await readFile(join(import.meta.dirname, 'spans.json'), 'utf8'));
    for (const [column, lang] of [
      [2, 'en'],
      [3, 'ko'],
    ]) {
      const { page } = await open(t, `rooms/concert?lang=${lang}`);
      const worded = await page.evaluate(async (all) => {
        const { durationRange } = await import('/assets/room/words.js');
        const { words } = JSON.parse(document.getElementById('page-data').textContent);
        return all.map(([low, high]) => durationRange(words, low, high));
      }, cases);
      assert.deepEqual(
        worded,
        cases.map((one) => one[column]),
      );
    }
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`the page can be used by everybody, narrow and wide, in ${colorScheme}`, async (t) => {
      await startQueue(t, 'looks', 3);
      const { page, trouble } = await open(t, 'rooms/looks', { colorScheme });
      await heading(page, 'Join the queue').waitFor();
      await check(page, `join-${colorScheme}`);
      await joinQueue(page);
      await page.locator('.position b').waitFor();
      await check(page, `waiting-${colorScheme}`);
      await page.getByRole('button', { name: 'Leave the queue' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Leave', exact: true }).click();
      await heading(page, 'You have left the queue').waitFor();
      await check(page, `left-${colorScheme}`);
      await page.goto(`${service.url}/rooms/later`);
      await joinQueue(page);
      await heading(page, 'You are in the draw').waitFor();
      await assertAccessible(page, { title: 'Waiting room' });
      await assertContrast(page, TEXTS);
      assert.deepEqual(trouble, []);
    });
  }

  test('a turn can be read by everybody', async (t) => {
    await api.post('/v1/rooms/door/resume', { why: 'a test begins' });
    const { page } = await open(t, 'rooms/door');
    await stopClock(page);
    await joinQueue(page);
    await page.getByRole('button', { name: 'Stay here' }).click();
    await check(page, 'granted', 'Your turn');
  });

  test('a sold-out and a closed room inform those who wait, and those who come', async (t) => {
    const buyer = await startVisitor(service.url, 'sold');
    t.after(() => buyer.gone());
    const { pass } = await until('the pass', async () => {
      const ticket = await buyer.ticket();
      return ticket.pass && ticket;
    });
    for (const [room, name, text, over] of [
      [
        'sold',
        'Sold out',
        'Every seat is sold',
        async () => {
          await api.post('/v1/rooms/sold/redeem', { pass: pass.token });
          await api.post('/v1/rooms/sold/complete', { pass: pass.token });
        },
      ],
      [
        'shut',
        'This room is closed',
        'No one else is let in',
        () => api.post('/v1/rooms/shut/close', { why: 'the show is over' }),
      ],
    ]) {
      const { page, trouble, tab } = await open(t, `rooms/${room}`);
      await joinQueue(page);
      await position(page, 1);
      await over();
      await heading(page, name).waitFor();
      await page.getByText(text).waitFor();
      await check(page, room, 'Waiting room');
      const korean = await open(t, `rooms/${room}?lang=ko`);
      await korean.page.getByRole('link', { name: '다시 확인' }).waitFor();
      await check(korean.page, `korean-${room}`, '대기실', 'ko');
      // The link checks again; a visitor who still has a ticket sees the same.
      await page.getByRole('link', { name: 'Check again' }).click();
      await heading(page, name).waitFor();
      const polls = await tab();
      await polls.route('**/events/**', (route) => route.abort());
      await polls.goto(`${service.url}/rooms/${room}`);
      await heading(polls, name).waitFor();
      assert.equal(await polls.title(), 'Waiting room');
      for (const javaScriptEnabled of [true, false]) {
        const late = await open(t, `rooms/${room}`, { javaScriptEnabled });
        await heading(late.page, name).waitFor();
        assert.equal(await late.page.getByRole('button').count(), 0, 'there is nothing to join');
      }
      assert.deepEqual(serious(trouble), []);
    }
  });

  test('an unknown room is reported', async (t) => {
    const { page } = await open(t, 'rooms/nowhere');
    await heading(page, 'Waiting room not found').waitFor();
  });

  test('operators pause, resume and change limits, with reasons', async (t) => {
    await api.post('/v1/rooms/door/resume', { why: 'a test begins' });
    const { page, trouble } = await open(t, '');
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Rooms' }).click();
    await heading(page, 'Rooms').waitFor();
    await page.getByRole('link', { name: 'door' }).waitFor();
    await assertAccessible(page);
    await page.getByRole('link', { name: 'door' }).click();
    await page.getByRole('heading', { level: 1, name: 'door' }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Reason').fill('the till is broken');
    await dialog.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    assert.equal((await api.get('/v1/rooms/door')).status, 'PAUSED');
    await page.getByRole('button', { name: 'Resume' }).click();
    await dialog.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    assert.equal((await api.get('/v1/rooms/door')).status, 'OPEN');

    await page.getByRole('button', { name: 'Set inside at once', exact: true }).click();
    await dialog.getByLabel('Inside at once').fill('7');
    await dialog.getByRole('button', { name: 'Set limit' }).click();
    assert.equal((await api.get('/v1/rooms/door')).capacity.inside, 4, 'nothing without a reason');
    await dialog.getByLabel('Reason').fill('a second till');
    await dialog.getByRole('button', { name: 'Set limit' }).click();
    await page.getByRole('cell', { name: 'a second till' }).waitFor();
    await page.getByRole('button', { name: 'Add to total seats' }).click();
    await dialog.getByLabel('By how many').fill('-100');
    await dialog.getByLabel('Reason').fill('the balcony is closed');
    await dialog.getByRole('button', { name: 'Change limit' }).click();
    await page.getByRole('cell', { name: 'the balcony is closed' }).waitFor();
    assert.deepEqual((await api.get('/v1/rooms/door')).capacity, { seats: 400, inside: 7, perSecond: 4 });
    await page.getByRole('button', { name: 'Reset inside at once' }).click();
    await dialog.getByLabel('Reason').fill('one till again');
    await dialog.getByRole('button', { name: 'Reset limit' }).click();
    await page.getByRole('cell', { name: 'one till again' }).waitFor();
    assert.equal((await api.get('/v1/rooms/door')).capacity.inside, 4);

    await assertAccessible(page);
    await assertContrast(page, ['h2', '.muted', '.chip', 'button', 'a', 'td', 'th', '.label']);
    await page.screenshot({ path: join(PICTURES, 'dashboard-room.png'), fullPage: true });
    await page.setViewportSize({ width: 360, height: 740 });
    const [wide, seen] = await page.evaluate(() => [
      document.documentElement.scrollWidth,
      document.documentElement.clientWidth,
    ]);
    assert.ok(wide <= seen);
    await page.screenshot({ path: join(PICTURES, 'dashboard-room-narrow.png'), fullPage: true });
    assert.deepEqual(trouble, []);
  });

  test('voiding and closing say what they do, and need a reason', async (t) => {
    const { page } = await open(t, '#/rooms/tabs');
    await page.getByRole('button', { name: 'Void passes' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('get a new one on the waiting page').waitFor();
    await dialog.getByRole('button', { name: 'Back' }).click();
    await page.getByRole('button', { name: 'Close' }).click();
    await dialog.getByText('no one else can join').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    assert.notEqual((await api.get('/v1/rooms/tabs')).status, 'CLOSED', 'nothing without a reason');
    await dialog.getByLabel('Reason').fill('the show is over');
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Open again' }).waitFor();
    const visitor = await open(t, 'rooms/tabs');
    await heading(visitor.page, 'This room is closed').waitFor();
  });
});
