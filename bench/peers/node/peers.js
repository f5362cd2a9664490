// `node peers.js PEER MODE PORT KEY=VALUE…` runs one measurement of one queue and prints one JSON object.
// Modes: enqueue, process, latency, fairness. NODE_PATH names the folder with the packages.
'use strict';

const [peer, mode, port, ...words] = process.argv.slice(2);
const args = Object.fromEntries(words.map((w) => [w.split('=')[0], Number(w.split('=')[1])]));
const get = (key, otherwise) => (key in args ? args[key] : otherwise);

const NAME = 'bench';
const PAYLOAD = 200;
const now = () => Number(process.hrtime.bigint()) / 1e6; // milliseconds
const seconds = (start) => (now() - start) / 1e3;

// {"d":"…"} is as long as the payload of every other peer.
const data = (customer, i) => ({ d: (customer + String(i).padStart(9, '0')).padEnd(PAYLOAD - 8, 'x') });
const number = (d) => Number(d.slice(1, 10));

// Calls `add(from, to)` for each chunk, with some calls in flight at once.
async function bulk(jobs, add) {
  const chunk = get('chunk', 1000);
  let next = 0;
  const caller = async () => {
    while (next < jobs) {
      const from = next;
      next = Math.min(from + chunk, jobs);
      await add(from, next);
    }
  };
  await Promise.all(Array.from({ length: get('inflight', 1) }, caller));
}

const make = (customer, from, to, one) => Array.from({ length: to - from }, (_, k) => one(data(customer, from + k)));

// A handler is a plain function of the payload's text; `work` resolves when `jobs` are acknowledged.
const peers = {
  bullmq() {
    const { Queue, Worker } = require('bullmq');
    const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };
    const defaultJobOptions = { removeOnComplete: true };
    let workers = [];
    return {
      async open() {
        this.queue = new Queue(NAME, { connection, defaultJobOptions });
        await this.queue.waitUntilReady();
      },
      add: (customer, jobs) =>
        bulk(jobs, (from, to) => this_.queue.addBulk(make(customer, from, to, (d) => ({ name: 'job', data: d })))),
      addOne: (d) => this_.queue.add('job', d),
      work(jobs, handler) {
        return new Promise((resolve, reject) => {
          let done = 0;
          const run = async (job) => handler(job.data.d);
          const options = {
            connection,
            concurrency: get('concurrency', 200),
            removeOnComplete: { count: 0 },
          };
          workers = Array.from({ length: get('workers', 1) }, () => new Worker(NAME, run, options));
          for (const worker of workers) {
            worker.on('completed', () => {
              done += 1;
              if (done === jobs) resolve();
            });
            worker.on('failed', (_, error) => reject(error));
            worker.on('error', reject);
          }
        });
      },
    };
  },

  'bee-queue'() {
    const Queue = require('bee-queue');
    const settings = {
      redis: { host: '127.0.0.1', port: Number(port) },
      removeOnSuccess: true,
      storeJobs: false,
      activateDelayedJobs: false,
      sendEvents: false,
      getEvents: false,
    };
    return {
      async open() {
        this.queue = new Queue(NAME, { ...settings, isWorker: false });
        await this.queue.ready();
      },
      add: (customer, jobs) =>
        bulk(jobs, async (from, to) => {
          const errors = await this_.queue.saveAll(make(customer, from, to, (d) => this_.queue.createJob(d)));
          for (const error of errors.values()) throw error;
        }),
      addOne: (d) => this_.queue.createJob(d).save(),
      work(jobs, handler) {
        return new Promise((resolve, reject) => {
          let done = 0;
          for (let i = 0; i < get('workers', 1); i += 1) {
            const worker = new Queue(NAME, { ...settings, isWorker: true });
            worker.on('succeeded', () => {
              done += 1;
              if (done === jobs) resolve();
            });
            worker.on('failed', (_, error) => reject(error));
            worker.on('error', reject);
            worker.process(get('concurrency', 100), async (job) => handler(job.data.d));
          }
        });
      },
    };
  },
};

const this_ = peers[peer]();

const modes = {
  async enqueue() {
    await this_.open();
    const start = now();
    await this_.add('A', get('jobs', 20000));
    return { enqueueSec: seconds(start) };
  },

  async process() {
    const start = now();
    await this_.work(get('jobs', 20000), () => {});
    return { processSec: seconds(start) };
  },

  async latency() {
    const adds = get('adds', 1000);
    const period = 1000 / get('rate', 200);
    const added = [];
    const millis = [];
    await this_.open();
    const finished = this_.work(adds, (d) => {
      const at = now();
      millis.push(at - added[number(d)]);
    });
    await new Promise((resolve) => setTimeout(resolve, 500));
    const begin = now();
    const pending = [];
    for (let i = 0; i < adds; i += 1) {
      const wait = begin + i * period - now();
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, wait)));
      const d = data('A', i);
      added.push(now());
      pending.push(this_.addOne(d));
    }
    await Promise.all(pending);
    await finished;
    millis.sort((a, b) => a - b);
    const at = (p) => millis[Math.round((millis.length - 1) * p)];
    return { startP50Ms: at(0.5), startP99Ms: at(0.99), samples: millis.length };
  },

  async fairness() {
    const [a, b] = [get('a', 20000), get('b', 100)];
    await this_.open();
    await this_.add('A', a);
    await this_.add('B', b);
    let done = 0;
    let last = 0;
    await this_.work(a + b, (d) => {
      done += 1;
      if (d[0] === 'B') last = done;
    });
    return { bDoneAfter: last, of: done };
  },
};

modes[mode]().then(
  (result) => {
    console.log(JSON.stringify(result));
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
