// Calls a running service with the generated TypeScript client: `node calls.js ADDRESS KEY`.

import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

declare const process: { argv: string[] };

const [, , baseUrl, key] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${key}` } });
const path = { group: 'typescript', batch: 'newsletter' };

function same(what: string, seen: unknown, expected: unknown): void {
  if (JSON.stringify(seen) !== JSON.stringify(expected))
    throw new Error(`${what}: ${JSON.stringify(seen)} instead of ${JSON.stringify(expected)}`);
}

function good<T>(what: string, answer: { data?: T; error?: components['schemas']['Problem'] }): T {
  if (answer.data === undefined) throw new Error(`${what}: ${answer.error?.code}: ${answer.error?.detail}`);
  return answer.data;
}

const jobs: components['schemas']['NewJob'][] = [
  { id: 'mail-1', type: 'MAIL', payload: { to: 'ada@example.com' } },
  { id: 'mail-2', type: 'MAIL', priority: 'LOW' },
];
const add = () =>
  client.POST('/v1/groups/{group}/batches/{batch}/jobs', { params: { path }, body: { jobs } });

const first = good('enqueueBatchJobs', await add());
same('accepted', [first.accepted, first.duplicates, first.refused, first.batch], [2, 0, 0, 'newsletter']);
const again = good('enqueueBatchJobs again', await add());
same('duplicates', [again.accepted, again.duplicates], [0, 2]);
const sealed = good(
  'sealBatch',
  await client.POST('/v1/groups/{group}/batches/{batch}/seal', { params: { path } }),
);
same('sealed', [sealed.totalJobs, sealed.batchComplete], [2, false]);

const readBatch = async () =>
  good('getBatch', await client.GET('/v1/groups/{group}/batches/{batch}', { params: { path } }));
const waiting = await readBatch();
same('batch', [waiting.id, waiting.sealed, waiting.counts], [
  'newsletter',
  true,
  { total: 2, success: 0, failed: 0 },
]);

const leased = good('leaseJobs', await client.POST('/v1/leases', { body: { max: 2, waitMs: 5000 } }));
const payloads = leased.jobs.map((job) => [job.id, job.priority, job.payload]);
same('leased', payloads.sort(), [
  ['mail-1', 'NORMAL', { to: 'ada@example.com' }],
  ['mail-2', 'LOW', null],
]);
const settlements = leased.jobs.map(
  ({ lease, id }): components['schemas']['Settlement'] => ({
    lease,
    outcome: 'COMPLETED',
    result: { sent: id },
  }),
);
const settled = good('settleLeases', await client.POST('/v1/leases/settle', { body: { settlements } }));
same(
  'settled',
  settled.settled.map((one) => one.state),
  ['COMPLETED', 'COMPLETED'],
);

let batch = await readBatch();
for (let tries = 0; batch.status !== 'COMPLETED' && tries < 100; tries += 1) {
  await new Promise((resolve) => setTimeout(resolve, 100));
  batch = await readBatch();
}
same('finished batch', [batch.status, batch.counts], ['COMPLETED', { total: 2, success: 2, failed: 0 }]);

const groups = good('listGroups', await client.GET('/v1/groups', { params: { query: { limit: 10 } } }));
same('groups', groups.items.filter((group) => group.id === path.group).length, 1);
good('pauseGroup', await client.POST('/v1/groups/{group}/pause', { params: { path: { group: path.group } } }));

const missing = await client.GET('/v1/groups/{group}/batches/{batch}', {
  params: { path: { ...path, batch: 'nothing' } },
});
same('problem', [missing.error?.status, missing.error?.code], [404, 'unknown_batch']);
const stranger = await client.GET('/v1/groups', { headers: { authorization: 'Bearer nobody' } });
same('stranger', [stranger.response.status, stranger.error?.code], [401, 'unauthorized']);
