// Sample data: customers of different size and weight, one paused, one congested, some dead jobs; records that are read all
// the time, and some that cannot be refreshed.

import { client, startWorker, until } from './service.js';

const CUSTOMERS = [
  ['acme-mail', 'spring-newsletter', 6_000, 2],
  ['globex', 'invoices-2026-03', 1_900, 1],
  ['initech', 'reminders', 1_400, 1],
  ['umbrella/eu', 'win-back <b>EU</b>', 1_700, 0.5],
  ['hooli', 'weekly-digest', 2_600, 4],
  ['soylent', 'surveys', 300, 1],
];

const number = (id) => Number(id.split('-').at(-1));

/** Every tenth of soylent's jobs fails, text messages are throttled, the rest completes. */
function outcome(job) {
  const n = number(job.id);
  if (job.group === 'soylent' && n % 10 === 0)
    return { outcome: 'FAILED', error: `422 address user${n}@example.com is not deliverable` };
  if (job.group === 'initech' && n % 40 === 0)
    return { outcome: 'RETRY', error: '503 upstream connect error', retryAfterMs: 50 };
  if (job.type === 'sms.send' && n % 3 > 0) return { outcome: 'THROTTLED', retryAfterMs: 4_000 };
  return { outcome: 'COMPLETED', result: { message_id: `m-${n}`, accepted: true } };
}

/** Fills a service and starts workers for it. */
export async function seed(url) {
  const api = client(url);
  for (const [group, batch, count, weight] of CUSTOMERS) {
    await api.put(`/v1/groups/${encodeURIComponent(group)}/batches/${encodeURIComponent(batch)}`, {
      keepResults: true,
    });
    await api.jobs(group, batch, count, { seal: true });
    await api.patch(`/v1/groups/${encodeURIComponent(group)}`, { weight });
  }
  await api.jobs('hooli', 'codes', 260, { type: 'sms.send', seal: true });
  await api.jobs('crm-export', 'accounts', 2_000, { type: 'crm.sync' });
  await api.post('/v1/groups/globex/pause', { why: 'their import is broken' });
  const workers = [startWorker(url, { outcome }), startWorker(url, { outcome, queue: 'sms', max: 10 })];
  await until('dead jobs', async () => (await api.get('/v1/stats')).counts.dead >= 5);
  return { stop: () => Promise.all(workers.map((worker) => worker.stop())) };
}

const BROKEN = {
  'char-0042': 'error400',
  'char-0077': 'wrong_type',
  'char-0101': 'error500',
  'char-0123': 'missing_fields',
};

const key = (n) => `char-${String(n).padStart(4, '0')}`;

/** Reads records, some of them repeatedly, until it is stopped; there are dead letters when it returns. */
export async function seedRecords({ url, upstream }) {
  const api = client(url);
  await upstream.post('/set', { answers: BROKEN });
  let round = 0;
  let running = true;
  const loop = (async () => {
    while (running) {
      round += 1;
      const records = [
        ...Array.from({ length: 6 }, (_, n) => ({ source: 'character', key: key(n) })),
        ...Array.from({ length: 9 }, (_, n) => ({ source: 'character', key: key((round * 9 + n) % 260) })),
        ...Array.from({ length: 4 }, (_, n) => ({ source: 'guild', key: `guild-${(round * 4 + n) % 90}` })),
        ...(round < 20 ? Object.keys(BROKEN).map((name) => ({ source: 'character', key: name })) : []),
        { source: 'guild', key: `missing-${round % 7}` },
      ];
      await api.post('/v1/records/read', { records });
      await new Promise((done) => {
        setTimeout(done, 250);
      });
    }
  })();
  await until(
    'dead letters',
    async () => (await api.get('/v1/refresh/dead-letters')).items.length >= 3,
  );
  return {
    async stop() {
      running = false;
      await loop;
    },
  };
}
