// Calls the API. Whatever goes wrong becomes a Problem with what the server said of it.

/** What the API refused, or why it could not be asked. */
export class Problem extends Error {
  constructor({ status = 0, code = 'unknown', title = '', detail = '', requestId = null }) {
    super(detail || title || `the server answered ${status}`);
    Object.assign(this, { status, code, title, requestId });
  }
}

let csrf = null;
let unauthorized = () => {};
let staleness = () => {};

/** The token that every change has to carry. */
export function useCsrf(token) {
  csrf = token ?? null;
}

/** Called when the server asks who we are. */
export function onUnauthorized(listener) {
  unauthorized = listener;
}

/** Called with the age in seconds of an answer that the server remembered, or null for one that is fresh. */
export function onStale(listener) {
  staleness = listener;
}

/** An address with names in it: path`/v1/groups/${name}`. Names may hold any characters. */
export function path(texts, ...names) {
  return texts.reduce((all, text, index) => all + encodeURIComponent(names[index - 1]) + text);
}

function withQuery(address, query) {
  const asked = Object.entries(query ?? {}).filter(
    ([, value]) => value !== null && value !== undefined && value !== '',
  );
  return asked.length > 0 ? `${address}?${new URLSearchParams(asked)}` : address;
}

async function problem(response) {
  const about = { status: response.status, requestId: response.headers.get('x-request-id') };
  try {
    return new Problem({ ...about, ...(await response.json()) });
  } catch {
    return new Problem({ ...about, detail: `the server answered ${response.status}` });
  }
}

async function call(method, address, { query, body, signal, quiet = false } = {}) {
  const headers = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (method !== 'GET' && csrf) headers['x-csrf-token'] = csrf;
  let response;
  try {
    response = await fetch(withQuery(address, query), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({
      code: 'unreachable',
      title: 'The service cannot be reached',
      detail: 'The service cannot be reached. Trying again.',
    });
  }
  if (!response.ok) {
    const refused = await problem(response);
    if (response.status === 401 && !quiet) unauthorized();
    throw refused;
  }
  if (method === 'GET') {
    staleness(response.headers.get('tidegate-stale') ? Number(response.headers.get('age') ?? 0) : null);
  }
  const text = await response.text();
  return text && response.headers.get('content-type')?.includes('json') ? JSON.parse(text) : null;
}

export const get = (address, options) => call('GET', address, options);
export const post = (address, body = {}, options) => call('POST', address, { ...options, body });
export const patch = (address, body, options) => call('PATCH', address, { ...options, body });
