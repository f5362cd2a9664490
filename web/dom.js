// Builds elements, and makes what is on the page equal to what was built.
//
// Text only ever becomes text: there is no way from data to markup here. A page that refreshes itself builds its
// tree again and hands it to `morph`, which changes what differs: focus, selection and opened details survive.

const SVG = 'http://www.w3.org/2000/svg';
const handlers = new WeakMap();
const keys = new WeakMap();

/** An element. `tag` may name classes (`div.tile`); `props` holds attributes, `on`, `style` and `key`. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag.split('.')[0]), tag, props, children);
}

/** An element of a drawing. */
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag.split('.')[0]), tag, props, children);
}

function build(element, tag, props, children) {
  const classes = tag.split('.').slice(1);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') listen(element, value);
    else if (name === 'key') keys.set(element, String(value));
    else if (name === 'class') classes.push(...String(value).split(' ').filter(Boolean));
    // The content policy forbids style attributes; setting properties one by one is allowed.
    else if (name === 'style')
      for (const [key, item] of Object.entries(value)) element.style.setProperty(key, item);
    else if (name === 'checked' || name === 'value') element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  if (classes.length > 0) element.setAttribute('class', classes.join(' '));
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

function listen(element, on) {
  const before = handlers.get(element) ?? {};
  handlers.set(element, on);
  for (const type of Object.keys(on)) {
    if (!(type in before)) element.addEventListener(type, dispatch);
  }
}

// Through a table, because `morph` has to be able to give an element other handlers.
function dispatch(event) {
  handlers.get(event.currentTarget)?.[event.type]?.(event);
}

/** Makes the children of `target` equal to `content`. */
export function morph(target, ...content) {
  const fragment = document.createDocumentFragment();
  append(fragment, content);
  const focused = document.activeElement;
  children(target, [...fragment.childNodes]);
  // An element that was moved has lost its focus.
  if (focused && focused !== document.activeElement && target.contains(focused)) focused.focus();
}

const keyOf = (node) => keys.get(node);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function children(target, wanted) {
  const known = new Map();
  for (const child of target.childNodes) if (keyOf(child) !== undefined) known.set(keyOf(child), child);
  let at = target.firstChild;
  for (const fresh of wanted) {
    const key = keyOf(fresh);
    const match = key === undefined ? at : known.get(key);
    if (match && alike(match, fresh)) {
      if (match === at) at = at.nextSibling;
      else target.insertBefore(match, at);
      node(match, fresh);
    } else {
      target.insertBefore(fresh, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function node(old, fresh) {
  if (old === fresh) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's business.
    if (!fresh.hasAttribute(name) && name !== 'open' && name !== 'style') old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  if (handlers.has(fresh)) listen(old, handlers.get(fresh));
  else if (handlers.has(old)) handlers.set(old, {});
  if (old.type === 'checkbox' && old.checked !== fresh.checked) old.checked = fresh.checked;
  children(old, [...fresh.childNodes]);
}
