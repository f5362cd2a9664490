// Light, dark, or the system's default; remembered in this browser. A plain script, so that it runs before the
// first paint: a module would show the wrong colours for a moment.
(function () {
  'use strict';
  const KEY = 'tidegate-theme';
  const MODES = ['system', 'light', 'dark'];
  const WORDS = { system: 'system default', light: 'light', dark: 'dark' };
  const SHAPES = {
    system: 'M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 2v10A5 5 0 0 1 8 3Z',
    light:
      'M8 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM7.2 0h1.6v3H7.2V0Zm0 13h1.6v3H7.2v-3ZM0 7.2h3v1.6H0V7.2Zm13 0h3v1.6h-3V7.2ZM2 3.1 3.1 2l2.1 2.1-1.1 1.1L2 3.1Zm8.8 8.8 1.1-1.1 2.1 2.1-1.1 1.1-2.1-2.1ZM2 12.9l2.1-2.1 1.1 1.1L3.1 14 2 12.9Zm8.8-8.8L12.9 2 14 3.1l-2.1 2.1-1.1-1.1Z',
    dark: 'M6.2 1.2a7 7 0 1 0 8.6 8.6A6 6 0 0 1 6.2 1.2Z',
  };

  function read() {
    try {
      const kept = localStorage.getItem(KEY);
      return MODES.includes(kept) ? kept : 'system';
    } catch {
      return 'system';
    }
  }

  function keep(mode) {
    try {
      localStorage.setItem(KEY, mode);
    } catch {
      // A browser that keeps nothing still switches for this visit.
    }
  }

  function apply(mode) {
    if (mode === 'system') document.documentElement.removeAttribute('data-theme');
    else document.documentElement.dataset.theme = mode;
  }

  function draw(button, mode) {
    const next = MODES[(MODES.indexOf(mode) + 1) % MODES.length];
    const label = `Colours: ${WORDS[mode]}. Switch to ${WORDS[next]}`;
    button.setAttribute('aria-label', label);
    button.title = label;
    const space = 'http://www.w3.org/2000/svg';
    const svg = document.createElementNS(space, 'svg');
    svg.setAttribute('viewBox', '0 0 16 16');
    svg.setAttribute('aria-hidden', 'true');
    const path = document.createElementNS(space, 'path');
    path.setAttribute('d', SHAPES[mode]);
    svg.append(path);
    button.replaceChildren(svg);
  }

  let mode = read();
  apply(mode);
  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    if (!button) return;
    draw(button, mode);
    button.addEventListener('click', () => {
      mode = MODES[(MODES.indexOf(mode) + 1) % MODES.length];
      keep(mode);
      apply(mode);
      draw(button, mode);
    });
  });
})();
