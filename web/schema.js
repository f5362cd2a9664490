// Reads JSON Schema as OpenAPI 3.1 uses it: names of types, tables of fields, and an example of a value.

import { h } from './dom.js';

/** Limit: how deep an example goes; schemas may hold themselves. */
const DEEPEST = 5;

const REF = '#/components/schemas/';

/** What a reference means. */
export function resolve(description, schema) {
  return schema?.$ref
    ? (description.components.schemas[schema.$ref.slice(REF.length)] ?? {})
    : (schema ?? {});
}

/** Words in backticks become code. */
export function prose(text) {
  return text.split('`').map((part, index) => (index % 2 === 1 ? h('code', null, part) : part));
}

const link = (name) => h('a', { href: `#schema-${name.toLowerCase()}` }, name);

/** The schema that an inlined one is a copy of: generic types are written out in full. */
function original(description, schema) {
  const text = JSON.stringify(schema);
  return Object.entries(description.components.schemas).find(([, one]) => JSON.stringify(one) === text)?.[0];
}

const isNull = (schema) => schema.type === 'null';

function variants(schema) {
  return (schema.oneOf ?? schema.anyOf ?? []).filter((one) => !isNull(one));
}

/** A type in words, with links to the schemas it names. */
export function typeOf(description, schema) {
  if (schema.$ref) return link(schema.$ref.slice(REF.length));
  const copied = schema.properties && original(description, schema);
  if (copied) return link(copied);
  const some = variants(schema);
  if (some.length > 0)
    return h(
      'span',
      null,
      some.map((one, index) => [index > 0 && ' or ', typeOf(description, one)]),
    );
  if (schema.allOf?.length === 1) return typeOf(description, schema.allOf[0]);
  if (schema.enum)
    return h(
      'span',
      null,
      schema.enum.map((value, index) => [index > 0 && ', ', h('code', null, JSON.stringify(value))]),
    );
  if (schema.const !== undefined) return h('code', null, JSON.stringify(schema.const));
  const types = [schema.type ?? 'any'].flat().filter((type) => type !== 'null');
  if (types.includes('array')) return h('span', null, 'list of ', typeOf(description, schema.items ?? {}));
  if (types.includes('object') && schema.additionalProperties?.type)
    return h('span', null, 'map to ', typeOf(description, schema.additionalProperties));
  return h('span', null, `${types.join(' or ')}${bounds(schema)}`);
}

function bounds(schema) {
  if (schema.format === 'date-time') return ' (time)';
  if (schema.minimum !== undefined && schema.maximum !== undefined)
    return `, ${schema.minimum} to ${schema.maximum}`;
  if (schema.minimum > 0) return `, at least ${schema.minimum}`;
  return '';
}

/** The fields of an object, or of each of its variants; null if it has none. */
export function schemaTable(description, given) {
  const schema = resolve(description, given);
  if (schema.oneOf?.some((one) => one.properties)) {
    return h(
      'div',
      null,
      schema.oneOf.map((one) =>
        h(
          'div.variant',
          null,
          one.description && h('p.muted', null, one.description),
          fields(description, one),
        ),
      ),
    );
  }
  if (schema.allOf)
    return h(
      'div',
      null,
      schema.allOf.map((one) => schemaTable(description, one)),
    );
  return schema.properties ? fields(description, schema) : null;
}

function fields(description, { properties = {}, required = [] }) {
  const row = ([name, field]) =>
    h(
      'tr',
      null,
      h(
        'th',
        { scope: 'row' },
        h('code', null, name),
        required.includes(name) && h('span.required', null, ' required'),
      ),
      h('td', null, typeOf(description, field)),
      h('td', null, prose(field.description ?? '')),
    );
  return h(
    'table.fields',
    null,
    h('caption.unseen', null, 'Fields'),
    h(
      'thead',
      null,
      h(
        'tr',
        null,
        ['Field', 'Type', 'Description'].map((name) => h('th', { scope: 'col' }, name)),
      ),
    ),
    h('tbody', null, Object.entries(properties).map(row)),
  );
}

/** A value that fits: what is required, with plain contents. */
export function example(description, given, depth = 0) {
  const schema = resolve(description, given);
  if (schema.examples?.length) return schema.examples[0];
  if (schema.example !== undefined) return schema.example;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.default !== undefined) return schema.default;
  const some = variants(schema);
  if (some.length > 0) return example(description, some[0], depth);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((one) => example(description, one, depth)));
  const type = [schema.type].flat().find((one) => one !== 'null');
  if (type === 'array') return depth < DEEPEST ? [example(description, schema.items ?? {}, depth + 1)] : [];
  if (type === 'integer' || type === 'number') return schema.minimum > 0 ? schema.minimum : 1;
  if (type === 'boolean') return true;
  if (type === 'string') return 'text';
  const wanted = Object.entries(schema.properties ?? {}).filter(([name]) => schema.required?.includes(name));
  return Object.fromEntries(
    depth < DEEPEST ? wanted.map(([name, field]) => [name, example(description, field, depth + 1)]) : [],
  );
}
