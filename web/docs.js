// The API's reference: operations by tag with parameters, bodies, responses and a call to copy, then the schemas.

import { get } from './api.js';
import { h, morph } from './dom.js';
import { capital } from './format.js';
import { example, prose, resolve, schemaTable, typeOf } from './schema.js';

const METHODS = ['get', 'put', 'post', 'patch', 'delete'];

function operations(description) {
  const tags = new Map();
  for (const [address, item] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((name) => name in item)) {
      const operation = { ...item[method], method: method.toUpperCase(), address };
      const tag = operation.tags?.[0] ?? 'other';
      tags.set(tag, [...(tags.get(tag) ?? []), operation]);
    }
  }
  return tags;
}

const anchor = ({ method, address }) =>
  `${method}-${address}`.replaceAll(/[^A-Za-z0-9]+/g, '-').toLowerCase();
const schemaAnchor = (name) => `schema-${name.toLowerCase()}`;
const slug = (tag) => `tag-${tag.replaceAll(' ', '-')}`;

function method(name) {
  return h('span.method', { class: name.toLowerCase() }, name);
}

function address(text) {
  // A break after each slash, so that long addresses do not widen a phone's page.
  return h(
    'code.address',
    null,
    text.split('/').flatMap((part, index) => (index === 0 ? [part] : ['/', h('wbr'), part])),
  );
}

function parameters(description, list) {
  if (!list?.length) return null;
  return [
    h('h4', null, 'Parameters'),
    h(
      'table',
      null,
      h('caption.unseen', null, 'Parameters'),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          ['Name', 'In', 'Type', 'Description'].map((name) => h('th', { scope: 'col' }, name)),
        ),
      ),
      h(
        'tbody',
        null,
        list.map((one) =>
          h(
            'tr',
            null,
            h(
              'th',
              { scope: 'row' },
              h('code', null, one.name),
              one.required && h('span.required', null, ' required'),
            ),
            h('td', null, one.in),
            h('td', null, typeOf(description, one.schema ?? {})),
            h('td', null, prose(one.description ?? '')),
          ),
        ),
      ),
    ),
  ];
}

function content(description, bodies) {
  return Object.entries(bodies ?? {}).map(([media, { schema }]) =>
    h(
      'div.body',
      null,
      h('p.muted.small', null, media, ' · ', schema ? typeOf(description, schema) : 'any'),
      schema && schemaTable(description, schema),
    ),
  );
}

function answers(description, responses) {
  const entries = Object.entries(responses ?? {});
  const good = entries.filter(([status]) => status < '400');
  const bad = entries.filter(([status]) => status >= '400');
  return [
    h('h4', null, 'Responses'),
    good.map(([status, answer]) =>
      h(
        'div',
        null,
        h('p', null, h('b', null, status), ' ', prose(answer.description ?? '')),
        content(description, answer.content),
      ),
    ),
    bad.length > 0 &&
      h(
        'details',
        null,
        h('summary', null, `Problems: ${bad.map(([status]) => status).join(', ')}`),
        h(
          'ul.problems',
          null,
          bad.map(([status, answer]) => h('li', null, h('b', null, status), ' ', answer.description ?? '')),
        ),
      ),
  ];
}

function curl(description, operation) {
  const filled = operation.address.replaceAll(/\{(\w+)\}/g, (_, name) => `my-${name}`);
  const lines = [
    `curl -sS -X ${operation.method} '${location.origin}${filled}'`,
    '-H "authorization: Bearer $TIDEGATE_KEY"',
  ];
  const bodies = operation.requestBody?.content ?? {};
  const media = Object.keys(bodies).find((name) => name.includes('json'));
  if (media)
    lines.push(
      `-H 'content-type: ${media}'`,
      `-d '${JSON.stringify(example(description, bodies[media].schema))}'`,
    );
  const streams = Object.values(operation.responses ?? {}).some(
    (answer) => 'text/event-stream' in (answer.content ?? {}),
  );
  if (streams) lines[0] = lines[0].replace('curl -sS', 'curl -sSN');
  return lines.join(' \\\n  ');
}

function drawOperation(description, operation) {
  const id = anchor(operation);
  const [first, ...rest] = [operation.summary, operation.description].filter(Boolean);
  return h(
    'article.operation',
    { id, 'aria-labelledby': `${id}-name` },
    h('h3', { id: `${id}-name` }, method(operation.method), ' ', address(operation.address)),
    first && h('p', null, prose(first)),
    rest.map((text) => h('p', null, prose(text))),
    parameters(description, operation.parameters),
    operation.requestBody && [h('h4', null, 'Body'), content(description, operation.requestBody.content)],
    answers(description, operation.responses),
    h(
      'details',
      null,
      h('summary', null, 'Call'),
      h('pre.json', { tabindex: 0 }, curl(description, operation)),
    ),
  );
}

function drawSchema(description, name) {
  const schema = resolve(description, description.components.schemas[name]);
  return h(
    'article.operation',
    { id: schemaAnchor(name) },
    h('h3', null, h('code', null, name)),
    schema.description && h('p', null, prose(schema.description)),
    schemaTable(description, schema) ?? h('p', null, typeOf(description, schema)),
  );
}

function contents(tags, names) {
  const filter = h('input', {
    id: 'docs-filter',
    type: 'search',
    placeholder: 'Filter',
    autocomplete: 'off',
  });
  const list = h('div');
  function draw() {
    const wanted = filter.value.toLowerCase();
    const fits = (text) => text.toLowerCase().includes(wanted);
    morph(
      list,
      [...tags].map(([tag, all]) => {
        const some = all.filter((one) => fits(`${one.method} ${one.address} ${one.summary ?? ''} ${tag}`));
        return (
          some.length > 0 &&
          h(
            'section',
            { key: tag },
            h('p.part', null, h('a', { href: `#${slug(tag)}` }, capital(tag))),
            h(
              'ul',
              null,
              some.map((one) =>
                h(
                  'li',
                  { key: anchor(one) },
                  h('a', { href: `#${anchor(one)}` }, method(one.method), ' ', address(one.address)),
                ),
              ),
            ),
          )
        );
      }),
      h(
        'section',
        { key: 'schemas' },
        h('p.part', null, h('a', { href: '#schemas' }, 'Schemas')),
        h(
          'ul',
          null,
          names
            .filter(fits)
            .map((name) => h('li', { key: name }, h('a', { href: `#${schemaAnchor(name)}` }, name))),
        ),
      ),
    );
  }
  filter.addEventListener('input', draw);
  draw();
  return [h('label.unseen', { for: 'docs-filter' }, 'Filter operations'), filter, list];
}

async function start() {
  const main = document.getElementById('main');
  let description;
  try {
    description = await get('/openapi.json', { quiet: true });
  } catch (error) {
    const login =
      error.status === 401 &&
      h('p', null, h('a', { href: '/' }, 'Log in on the dashboard'), ' and come back.');
    main.replaceChildren(
      h('h1', null, 'The API description cannot be loaded'),
      h('p', null, error.message),
      login || '',
    );
    return;
  }
  const tags = operations(description);
  const names = Object.keys(description.components?.schemas ?? {}).sort();
  document.getElementById('contents').append(...contents(tags, names));
  main.replaceChildren(
    h('h1', null, `${description.info.title} API`),
    h('p.muted', null, `Version ${description.info.version} · OpenAPI ${description.openapi}`),
    h('p.lead', null, prose(description.info.description ?? '')),
    ...[...tags].map(([tag, all]) =>
      h(
        'section',
        null,
        h('h2', { id: slug(tag) }, capital(tag)),
        all.map((one) => drawOperation(description, one)),
      ),
    ),
    h(
      'section',
      null,
      h('h2', { id: 'schemas' }, 'Schemas'),
      names.map((name) => drawSchema(description, name)),
    ),
  );
  // The page had nothing to go to when it was opened.
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

start();
