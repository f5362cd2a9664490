// What can be done to things: each deed asks what it has to ask, calls the API, and says what came of it.

import { patch, path, post } from './api.js';
import { count, many, rate, weight } from './format.js';
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
  `${many(done.cancelled, 'job')} cancelled, ${count(done.running)} left to their workers`;

export const pauseGroup = (group) =>
  ask({
    title: `Pause ${group}?`,
    text: 'No more of its jobs start. Running jobs go on.',
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
    title: `Cancel every job of ${group}?`,
    text: `${many(unfinished, 'unfinished job')} will be dead, except those that run already. This cannot be taken back, but dead jobs can be replayed.`,
    fields: [reason(true)],
    confirm: 'Cancel jobs',
    danger: true,
    run: async ({ why }) => success(cancelled(await post(path`/v1/groups/${group}/cancel`, { why }))),
  });

export const weighGroup = (group) =>
  ask({
    title: `Weight of ${group.id}`,
    text: 'How much of the rate it gets beside others: 2 is twice as much as 1.',
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
      success(`${group.id} has the weight ${weight(changed.weight)}`);
    },
  });

const number = (text) => (text ? Number(text) : undefined);

export const limitGroup = (group) =>
  ask({
    title: `Ceilings of ${group.id}`,
    text: 'What it may use at most, even if the rest is idle. Empty is unlimited.',
    fields: [
      {
        name: 'starts',
        label: 'Starts in one window',
        kind: 'number',
        min: 1,
        step: 1,
        value: String(group.ceilings.starts_per_window ?? ''),
      },
      {
        name: 'leased',
        label: 'Running at once',
        kind: 'number',
        min: 1,
        step: 1,
        value: String(group.ceilings.leased_at_once ?? ''),
      },
      reason(false),
    ],
    confirm: 'Change ceilings',
    run: async (values) => {
      const ceilings = { starts_per_window: number(values.starts), leased_at_once: number(values.leased) };
      await patch(path`/v1/groups/${group.id}`, { ceilings, why: orNothing(values.why) });
      success(`The ceilings of ${group.id} are changed`);
    },
  });

export const resetStats = (group) =>
  quickly(
    () => post(path`/v1/groups/${group}/reset-stats`),
    `The congestion statistics of ${group} are cleared`,
  );

export const pauseAction = (group, action) =>
  ask({
    title: `Pause ${action}?`,
    text: 'No more of its jobs start. Running jobs go on.',
    fields: [reason(false)],
    confirm: 'Pause',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/actions/${action}/pause`, { why: orNothing(why) });
      success(`${action} is paused`);
    },
  });

export const resumeAction = (group, action) =>
  quickly(() => post(path`/v1/groups/${group}/actions/${action}/resume`), `${action} is resumed`);

export const sealAction = (group, action) =>
  ask({
    title: `Seal ${action}?`,
    text: 'It takes no more jobs, and completes when those it has are finished.',
    confirm: 'Seal',
    run: async () => {
      const sealed = await post(path`/v1/groups/${group}/actions/${action}/seal`);
      success(`${action} is sealed with ${many(sealed.total_jobs, 'job')}`);
    },
  });

export const cancelAction = (group, action) =>
  ask({
    title: `Cancel ${action}?`,
    text: 'Its jobs that do not run yet will be dead. This cannot be taken back.',
    fields: [reason(true)],
    confirm: 'Cancel action',
    danger: true,
    run: async ({ why }) =>
      success(cancelled(await post(path`/v1/groups/${group}/actions/${action}/cancel`, { why }))),
  });

export const retryJob = (group, job) =>
  ask({
    title: `Replay ${job}?`,
    text: 'It waits in its group again, with all its attempts. An action that is decided stays as it is.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) => {
      await post(path`/v1/groups/${group}/jobs/${job}/retry`, { why: orNothing(why) });
      success(`${job} is replayed`);
    },
  });

/** `selection` is what the API takes; `words` says which jobs are meant. */
export const replayDead = (selection, words) =>
  ask({
    title: `Replay ${words}?`,
    text: 'They wait in their groups again, with all their attempts. Actions that are decided stay as they are.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) =>
      told('replayed', await post('/v1/dead/replay', { ...selection, why: orNothing(why) })),
  });

export const purgeDead = (selection, words) =>
  ask({
    title: `Purge ${words}?`,
    text: 'They are forgotten at once, with payloads and errors. This cannot be taken back.',
    fields: [reason(true)],
    confirm: 'Purge',
    danger: true,
    run: async ({ why }) => told('purged', await post('/v1/dead/purge', { ...selection, why })),
  });

/** The same for dead letters. */
export const replayLetters = (selection, words) =>
  ask({
    title: `Replay ${words}?`,
    text: 'Their records are asked for again, before what nobody waits for. One that fails again leaves another letter.',
    fields: [reason(false)],
    confirm: 'Replay',
    run: async ({ why }) =>
      told(
        'replayed',
        await post('/v1/refresh/dead-letters/replay', { ...selection, why: orNothing(why) }),
        'letter',
      ),
  });

export const purgeLetters = (selection, words) =>
  ask({
    title: `Purge ${words}?`,
    text: 'They are put away and cannot be replayed any more. Their records stay as they are.',
    fields: [reason(true)],
    confirm: 'Purge',
    danger: true,
    run: async ({ why }) =>
      told('purged', await post('/v1/refresh/dead-letters/purge', { ...selection, why }), 'letter'),
  });

function told(deed, done, what = 'job') {
  const skipped =
    done.skipped > 0
      ? `, ${count(done.skipped)} skipped: ${done.errors?.[0]?.detail ?? 'not dead any more'}`
      : '';
  success(`${many(done[`${what}s`], what)} ${deed}${skipped}`);
}

export const disableTarget = (target) =>
  ask({
    title: `Disable ${target}?`,
    text: 'It is not called any more; its jobs wait until it is enabled.',
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

/** Changes the rate of a lane, or of the whole system. */
export const changeRate = (lane, current) =>
  ask({
    title: lane === null ? 'Change the rate of the whole system' : `Change the rate of lane ${lane}`,
    text: 'It holds at once and until it is changed again; a restart keeps it.',
    fields: [
      {
        name: 'rps',
        label: 'Starts per second',
        kind: 'number',
        min: 0,
        step: 'any',
        value: String(current),
        required: true,
      },
      reason(true),
    ],
    confirm: 'Change rate',
    run: async ({ rps, why }) => {
      await patch('/v1/limits', { ...only(lane, Number(rps)), why });
      success(`The rate is ${rate(Number(rps))} starts per second`);
    },
  });

export const resetRate = (lane) =>
  ask({
    title:
      lane === null ? 'Take the configured rate again?' : `Take the configured rate of lane ${lane} again?`,
    fields: [reason(true)],
    confirm: 'Take configured rate',
    run: async ({ why }) => {
      await patch('/v1/limits', { ...only(lane, null), why });
      success('The rate is that of the configuration');
    },
  });

const only = (lane, rps) => (lane === null ? { global_rps: rps } : { lanes: { [lane]: rps } });

export const pauseRoom = (room) =>
  ask({
    title: `Pause ${room}?`,
    text: 'Nobody more is let in. Those who wait keep their places, and those inside go on.',
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
    text: 'Those who wait are let in again, in order, as fast as the limits allow.',
    fields: [reason(false)],
    confirm: 'Resume',
    run: async ({ why }) => {
      await post(path`/v1/rooms/${room}/resume`, { why: orNothing(why) });
      success(`${room} lets people in`);
    },
  });

export const closeRoom = (room) =>
  ask({
    title: `Close ${room.room}?`,
    text: `${many(room.waiting + room.early, 'person who waits is', 'people who wait are')} told that it is over, and nobody more can join. Those inside go on. It can be opened again.`,
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
    text: `Every pass so far is refused from now on. Whoever is let in but not there yet (${many(room.granted, 'person', 'people')}) gets a new one on the waiting page; whoever is inside already stays.`,
    fields: [reason(true)],
    confirm: 'Void passes',
    danger: true,
    run: async ({ why }) => {
      // As many as were shown: those who are let in meanwhile keep theirs.
      await post(path`/v1/rooms/${room.room}/void`, { why, through: room.wave });
      success(`Passes of ${room.room} so far are void`);
    },
  });

/** What one question is known by: pressed again after an answer that was not heard, it changes nothing more. */
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
    text: 'It holds at once and until it is changed again; a restart keeps it.',
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
    title: `${label} of ${room.room}: more or fewer`,
    text: `It is ${count(room.capacity[name])} now. Two who add at once both count.`,
    fields: [
      {
        name: 'by',
        label: 'By how many',
        kind: 'number',
        step: 1,
        required: true,
        hint: 'Below zero for fewer. Nobody inside is sent away.',
      },
      reason(true),
    ],
    confirm: 'Change limit',
    run: ({ by, why }) => changeLimit(room, name, label, { add: Number(by) }, why, request),
  });

export const resetLimit = (room, name, label) =>
  ask({
    title: `${label}: take what is configured again?`,
    fields: [reason(true)],
    confirm: 'Reset limit',
    run: ({ why }) => changeLimit(room, name, label, { reset: true }, why),
  });
