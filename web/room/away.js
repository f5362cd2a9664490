// The page that stands in for a room that cannot be shown: it looks by itself whether the room is back, now and then, and
// at random moments, because a crowd waits for the same.

const pause = () => 4_000 + 6_000 * Math.random();

async function look() {
  const back = await fetch(location.href, { cache: 'no-store' }).then(
    (response) => ![429, 503].includes(response.status),
    () => false,
  );
  if (back) location.reload();
  else setTimeout(look, pause());
}

setTimeout(look, pause());
