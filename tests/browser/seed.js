// Data worth looking at: customers of different size and weight, one paused, one congested, some dead jobs.

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

/** Every tenth of soylent's jobs dies, whoever sends text messages is too busy, the rest is done. */
function verdict(job) {
  const n = number(job.id);
  if (job.group === 'soylent' && n % 10 === 0)
    return { verdict: 'failed', error: `422 address user${n}@example.com is not deliverable` };
  if (job.group === 'initech' && n % 40 === 0)
    return { verdict: 'retry', error: '503 upstream connect error', retry_after_ms: 50 };
  if (job.type === 'sms.send' && n % 3 > 0) return { verdict: 'throttled', retry_after_ms: 4_000 };
  return { verdict: 'done', result: { message_id: `m-${n}`, accepted: true } };
}

/** Fills a service and starts workers for it. */
export async function seed(url) {
  const api = client(url);
  for (const [group, action, count, weight] of CUSTOMERS) {
    await api.put(`/v1/groups/${encodeURIComponent(group)}/actions/${encodeURIComponent(action)}`, {
      keep_results: true,
    });
    await api.jobs(group, action, count, { seal: true });
    await api.patch(`/v1/groups/${encodeURIComponent(group)}`, { weight });
  }
  await api.jobs('hooli', 'codes', 260, { type: 'sms.send', seal: true });
  await api.jobs('crm-export', 'accounts', 2_000, { type: 'crm.sync' });
  await api.post('/v1/groups/globex/pause', { why: 'their import is broken' });
  const workers = [startWorker(url, { verdict }), startWorker(url, { verdict, lane: 'sms', max: 10 })];
  await until('dead jobs', async () => (await api.get('/v1/stats')).counts.dead >= 5, 30_000);
  return { stop: () => Promise.all(workers.map((worker) => worker.stop())) };
}
