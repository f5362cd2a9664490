// The page of a room that is unavailable: it checks now and then whether the room is available again. The pauses are random,
// because a crowd waits for the same room.

const pause = () => 4_000 + 6_000 * Math.random();

async function check() {
  const available = await fetch(location.href, { cache: 'no-store' }).then(
    (response) => ![429, 503].includes(response.status),
    () => false,
  );
  if (available) location.reload();
  else setTimeout(check, pause());
}

setTimeout(check, pause());
