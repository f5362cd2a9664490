// Does something again and again while somebody looks.

/** Runs `work` at once and then every `ms` after it has ended, until `signal`; not while the tab is hidden. */
export function poll(work, ms, signal) {
  let timer = null;
  let running = false;

  async function round() {
    clearTimeout(timer);
    if (running || signal.aborted) return;
    running = true;
    try {
      await work();
    } catch (error) {
      if (error.name !== 'AbortError') console.warn(error);
    }
    running = false;
    if (!signal.aborted && !document.hidden) timer = setTimeout(round, ms);
  }

  const shown = () => (document.hidden ? clearTimeout(timer) : round());
  document.addEventListener('visibilitychange', shown, { signal });
  signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  round();
  return round;
}
