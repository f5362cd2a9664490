// Which page the address means: the part behind the #, with names percent-encoded.

/** An address of a page with names in it: href`/groups/${name}`. */
export function href(texts, ...names) {
  return '#' + texts.reduce((all, text, index) => all + encodeURIComponent(names[index - 1]) + text);
}

export function hrefWith(address, query) {
  const asked = Object.entries(query).filter(([, value]) => value);
  return asked.length > 0 ? `${address}?${new URLSearchParams(asked)}` : address;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The first route that fits, its names and its query; null if none does. */
export function match(routes, hash) {
  const [address, query = ''] = hash.replace(/^#/, '').split('?', 2);
  const parts = address.split('/').slice(1);
  for (const [pattern, view] of routes) {
    const wanted = pattern.split('/').slice(1);
    if (wanted.length !== parts.length) continue;
    const names = {};
    const fits = wanted.every((want, index) => {
      if (!want.startsWith(':')) return want === parts[index];
      names[want.slice(1)] = decode(parts[index]);
      return parts[index] !== '';
    });
    if (fits) return { view, names, query: Object.fromEntries(new URLSearchParams(query)) };
  }
  return null;
}
