// The commands of an operator: each asks what it has to ask, calls the API, and reports the result.

import { patch, path, post } from './api.js';
import { capital, count, many, weight } from './format.js';
import { ask, orNothing, reason } from './parts/dialog.js';
import { failure, success } from './parts/notices.js';

/** Does something that needs no question. */
async function quickly(work, text) {
  try {
    await work();
    success(text);
    return true;
  } catch (error) {
    failure(error);
    return false;
  }
}

const cancelled = (done) =>
  `${many(done.cancelled, 'job')} cancelled, ${count(done.running)} still running`;

export const pauseGroup = (group) =>
  ask({
    title: `Pause ${group}?`,
    text: 'None of its jobs start until it is resumed. Running jobs continue.',
    fields: [reason(false)],
    confirm: 'Pause',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/pause`, { why: orNothing(why) });
      success(`${group} is paused`);
    },
  });

export const resumeGroup = (group) =>
  quickly(() => post(path`/v1/groups/${group}/resume`), `${group} is resumed`);

export const cancelGroup = (group, unfinished) =>
  ask({
    title: `Cancel all jobs of ${group}?`,
    text: `This cancels ${many(unfinished, 'unfinished job')}, except those already running. It cannot be undone, but cancelled jobs can be replayed from the dead jobs.`,
    fields: [reason(true)],
    confirm: 'Cancel jobs',
    danger: true,
    run: async ({ why }) => success(cancelled(await post(path`/v1/groups/${group}/cancel`, { why }))),
  });

export const weighGroup = (group) =>
  ask({
    title: `Weight of ${group.id}`,
    text: 'Its share of the rate relative to other groups: 2 gets twice as much as 1.',
    fields: [
      {
        name: 'weight',
        label: 'Weight',
        kind: 'number',
        value: String(group.weight),
        min: 0.015625,
        max: 64,
        step: 'any',
        required: true,
        hint: 'From 1/64 to 64.',
      },
      reason(false),
    ],
    confirm: 'Change weight',
    run: async (values) => {
      const changed = await patch(path`/v1/groups/${group.id}`, {
        weight: Number(values.weight),
        why: orNothing(values.why),
      });
      success(`Weight of ${group.id} is ${weight(changed.weight)}`);
    },
  });

const number = (text) => (text ? Number(text) : undefined);

/** Limits a group over all queues; its limits in single queues stay. */
export const limitGroup = (group) =>
  ask({
    title: `Limits of ${group.id}`,
    text: 'The most it may use, even while the rest is idle. Leave empty for no limit.',
    fields: [
      {
        name: 'rate',
        label: 'Starts, like 10/s, 30/min or 500/h',
        value: group.limits.rate ?? '',
      },
      {
        name: 'running',
        label: 'Running at once',
        kind: 'number',
        min: 1,
        step: 1,
        value: String(group.limits.maxRunning ?? ''),
      },
      reason(false),
    ],
    confirm: 'Change limits',
    run: async (values) => {
      const limits = {
        rate: orNothing(values.rate),
        maxRunning: number(values.running),
        queues: group.limits.queues,
      };
      await patch(path`/v1/groups/${group.id}`, { limits, why: orNothing(values.why) });
      success(`Limits of ${group.id} changed`);
    },
  });

export const resetStats = (group) =>
  quickly(
    () => post(path`/v1/groups/${group}/reset-stats`),
    `Congestion statistics of ${group} reset`,
  );

export const pauseBatch = (group, batch) =>
  ask({
    title: `Pause ${batch}?`,
    text: 'None of its jobs start until it is resumed. Running jobs continue.',
    fields: [reason(false)],
    confirm: 'Pause',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/batches/${batch}/pause`, { why: orNothing(why) });
      success(`${batch} is paused`);
    },
  });

export const resumeBatch = (group, batch) =>
  quickly(() => post(path`/v1/groups/${group}/batches/${batch}/resume`), `${batch} is resumed`);

export const sealBatch = (group, batch) =>
  ask({
    title: `Seal ${batch}?`,
    text: 'It accepts no more jobs, and completes once its jobs are finished.',
    confirm: 'Seal',
    run: async () => {
      const sealed = await post(path`/v1/groups/${group}/batches/${batch}/seal`);
      success(`${batch} is sealed with ${many(sealed.totalJobs, 'job')}`);
    },
  });

export const cancelBatch = (group, batch) =>
  ask({
    title: `Cancel ${batch}?`,
    text: 'This cancels its unfinished jobs, except those already running. It cannot be undone, but cancelled jobs can be replayed from the dead jobs.',
    fields: [reason(true)],
    confirm: 'Cancel batch',
    danger: true,
    run: async ({ why }) =>
      success(cancelled(await post(path`/v1/groups/${group}/batches/${batch}/cancel`, { why }))),
  });

export const cancelJob = (group, job) =>
  ask({
    title: `Cancel ${job}?`,
    text: 'A running job ends with its run, unless the run completes it. A cancelled job can be replayed from the dead jobs.',
    fields: [reason(true)],
    confirm: 'Cancel job',
    danger: true,
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/jobs/${job}/cancel`, { why });
      success(`${job} cancelled`);
    },
  });

export const runJobNow = (group, job) =>
  ask({
    title: `Run ${job} now?`,
    text: 'It waits for its turn from now on, within every limit.',
    fields: [reason(false)],
    confirm: 'Run now',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/jobs/${job}/run-now`, { why: orNothing(why) });
      success(`${job} waits for its turn`);
    },
  });

export const replayJob = (group, job) =>
  ask({
    title: `Replay ${job}?`,
    text: 'It is queued in its group again, with all its attempts. A finished batch stays as it is.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/jobs/${job}/replay`, { why: orNothing(why) });
      success(`${job} replayed`);
    },
  });

/** `selection` is what the API takes; `words` says which jobs it selects. */
export const replayDead = (selection, words) =>
  ask({
    title: `Replay ${words}?`,
    text: 'They are queued in their groups again, with all their attempts. Finished batches stay as they are.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) =>
      reportJobs('replayed', await post('/v1/dead-jobs/replay', { ...selection, why: orNothing(why) })),
  });

export const purgeDead = (selection, words) =>
  ask({
    title: `Purge ${words}?`,
    text: 'They are deleted at once, with their payloads and errors. This cannot be undone.',
    fields: [reason(true)],
    confirm: 'Purge',
    danger: true,
    run: async ({ why }) => reportJobs('purged', await post('/v1/dead-jobs/purge', { ...selection, why })),
  });

/** The same for dead letters. */
export const replayDeadLetters = (selection, words) =>
  ask({
    title: `Replay ${words}?`,
    text: 'Their records are refreshed again, ahead of prefetches. One that fails again leaves another dead letter.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) =>
      reportDeadLetters(
        'replayed',
        await post('/v1/refresh/dead-letters/replay', { ...selection, why: orNothing(why) }),
      ),
  });

export const purgeDeadLetters = (selection, words) =>
  ask({
    title: `Purge ${words}?`,
    text: 'They are marked as purged and can no longer be replayed. Their records stay as they are.',
    fields: [reason(true)],
    confirm: 'Purge',
    danger: true,
    run: async ({ why }) =>
      reportDeadLetters('purged', await post('/v1/refresh/dead-letters/purge', { ...selection, why })),
  });

const reportJobs = (command, done) => report(command, done, many(done.handled, 'job'));
const reportDeadLetters = (command, done) => report(command, done, many(done.handled, 'dead letter'));

function report(command, done, what) {
  const skipped =
    done.skipped > 0
      ? `, ${count(done.skipped)} skipped: ${done.errors?.[0]?.detail ?? 'no longer dead'}`
      : '';
  success(`${what} ${command}${skipped}`);
}

export const disableTarget = (target) =>
  ask({
    title: `Disable ${target}?`,
    text: 'It is no longer called; its jobs wait until it is enabled.',
    fields: [reason(true)],
    confirm: 'Disable',
    danger: true,
    run: async ({ why }) => {
      await post(path`/v1/targets/${target}/disable`, { why });
      success(`${target} is disabled`);
    },
  });

export const enableTarget = (target) =>
  quickly(() => post(path`/v1/targets/${target}/enable`), `${target} is enabled`);

/** Changes the rate of a queue, or of the whole system. */
export const changeRate = (queue, current) =>
  ask({
    title: queue === null ? 'Change the rate of the whole system' : `Change the rate of queue ${queue}`,
    text: 'Takes effect immediately and stays until it is changed again, also across restarts.',
    fields: [
      {
        name: 'rate',
        label: 'Starts, like 10/s, 30/min or 500/h',
        value: String(current),
        required: true,
      },
      reason(true),
    ],
    confirm: 'Change rate',
    run: async ({ rate, why }) => {
      const limits = queue === null ? { rate } : { queues: { [queue]: { rate } } };
      await patch('/v1/limits', { ...limits, why });
      success(`The rate is now ${rate}`);
    },
  });

export const resetLimits = (queue) =>
  ask({
    title:
      queue === null
        ? 'Reset the whole system to its configured rate?'
        : `Reset queue ${queue} to its configured limits?`,
    fields: [reason(true)],
    confirm: 'Reset to configured limits',
    run: async ({ why }) => {
      const all = { rate: null, maxRunning: null };
      const reset = queue === null ? { rate: null } : { queues: { [queue]: { ...all, perGroup: all } } };
      await patch('/v1/limits', { ...reset, why });
      success('The configured limits apply again');
    },
  });

/** Switches on or off that queues follow what their downstream sustains. */
export const switchAdaptive = (on) =>
  ask({
    title: on ? 'Switch adaptive control on?' : 'Switch adaptive control off?',
    text: on
      ? 'Queues slow down again when their downstream is overloaded.'
      : 'Queues run at their configured rates, whatever their downstream answers. Retry-After delays only the job that met it.',
    fields: [reason(true)],
    confirm: on ? 'Switch on' : 'Switch off',
    run: async ({ why }) => {
      await patch('/v1/limits', { adaptive: on, why });
      success(on ? 'Adaptive control is on' : 'Adaptive control is off');
    },
  });

export const pauseRoom = (room) =>
  ask({
    title: `Pause ${room}?`,
    text: 'No one else is let in. People in the queue keep their places; people inside are not affected.',
    fields: [reason(false)],
    confirm: 'Pause',
    run: async ({ why }) => {
      await post(path`/v1/rooms/${room}/pause`, { why: orNothing(why) });
      success(`${room} is paused`);
    },
  });

export const resumeRoom = (room) =>
  ask({
    title: `Let people into ${room} again?`,
    text: 'People in the queue are let in again, in order, as fast as the limits allow.',
    fields: [reason(false)],
    confirm: 'Resume',
    run: async ({ why }) => {
      await post(path`/v1/rooms/${room}/resume`, { why: orNothing(why) });
      success(`${room} is resumed`);
    },
  });

export const closeRoom = (room) =>
  ask({
    title: `Close ${room.room}?`,
    text: `${capital(many(room.waiting + room.early, 'waiting person is', 'waiting people are'))} informed that the room is closed, and no one else can join. People inside are not affected. It can be opened again.`,
    fields: [reason(true)],
    confirm: 'Close',
    danger: true,
    run: async ({ why }) => {
      await post(path`/v1/rooms/${room.room}/close`, { why });
      success(`${room.room} is closed`);
    },
  });

export const voidPasses = (room) =>
  ask({
    title: `Void all passes of ${room.room}?`,
    text: `Every pass issued so far becomes invalid. People who were let in but have not arrived yet (${many(room.granted, 'person', 'people')}) get a new one on the waiting page; people already inside stay.`,
    fields: [reason(true)],
    confirm: 'Void passes',
    danger: true,
    run: async ({ why }) => {
      // Up to the wave that was shown: passes issued since then stay valid.
      await post(path`/v1/rooms/${room.room}/void`, { why, through: room.wave });
      success(`Passes of ${room.room} issued so far are void`);
    },
  });

/** Names one change: sent again after a lost answer, it is applied once. */
const named = () => crypto.getRandomValues(new Uint32Array(4)).join('-');

const changeLimit = async (room, name, label, change, why, request) => {
  const { capacity } = await patch(path`/v1/rooms/${room.room}/capacity`, { [name]: change, why, request });
  const held = capacity[name] === undefined ? 'not counted' : count(capacity[name]);
  success(`${label} of ${room.room}: ${held}`);
};

/** `name` is the limit's name in the API, `label` what people call it. */
export const setLimit = (room, name, label) =>
  ask({
    title: `${label} of ${room.room}`,
    text: 'Takes effect immediately and stays until it is changed again, also across restarts.',
    fields: [
      {
        name: 'value',
        label,
        kind: 'number',
        min: 0,
        step: 1,
        value: String(room.capacity[name] ?? ''),
        required: name !== 'seats',
        hint: name === 'seats' ? 'Empty: seats are not counted.' : undefined,
      },
      reason(true),
    ],
    confirm: 'Set limit',
    run: ({ value, why }) => changeLimit(room, name, label, { set: value === '' ? null : Number(value) }, why),
  });

export const addToLimit = (room, name, label, request = named()) =>
  ask({
    title: `${label} of ${room.room}: add or remove`,
    text: `Currently ${count(room.capacity[name])}. Changes made at the same time add up.`,
    fields: [
      {
        name: 'by',
        label: 'By how many',
        kind: 'number',
        step: 1,
        required: true,
        hint: 'Negative to remove. No one inside has to leave.',
      },
      reason(true),
    ],
    confirm: 'Change limit',
    run: ({ by, why }) => changeLimit(room, name, label, { add: Number(by) }, why, request),
  });

export const resetLimit = (room, name, label) =>
  ask({
    title: `${label} of ${room.room}: reset to the configured value?`,
    fields: [reason(true)],
    confirm: 'Reset limit',
    run: ({ why }) => changeLimit(room, name, label, { reset: true }, why),
  });
