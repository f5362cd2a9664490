// Who the server takes us for, and what that allows. The server decides; this only hides what it would refuse.

import { get, post, useCsrf } from './api.js';

let me = null;

/** Asks the server; throws a Problem with status 401 where a key is needed. */
export async function load() {
  me = await get('/v1/me', { quiet: true });
  useCsrf(me.csrf);
  return me;
}

export async function login(key) {
  await post('/login', { key }, { quiet: true });
  return load();
}

export async function logout() {
  await post('/logout');
  forget();
}

export function forget() {
  me = null;
  useCsrf(null);
}

export const identity = () => me;

/** Whether a role is ours, for a group if one is named. */
export function may(role, group) {
  if (!me || !(me.roles.includes(role) || me.roles.includes('ADMIN'))) return false;
  if (group === undefined || me.groups.length === 0) return true;
  return me.groups.some((pattern) =>
    pattern.endsWith('*') ? group.startsWith(pattern.slice(0, -1)) : group === pattern,
  );
}

/** Whether a role is ours for what concerns all groups. */
export const mayForAll = (role) => may(role) && me.groups.length === 0;
