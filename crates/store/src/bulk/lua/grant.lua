-- bulk grant: takes starts from the window that all shards share, or returns unused ones. Atomic, so that the shards
-- together never exceed the limit.
-- The limits passed are the configured ones; rates set at run time (adopt_rates) override them.
-- KEYS  <prefix>{limit}:rate-limit
-- ARGV  time (ms) or "", starts wanted (below 0: returned), the window that they were for, length of a window (ms),
--   limit (starts per second), run id of the server, the latest time that any shard reported (ms) or "", queue or "", the
--   queue's own limit (starts per second) or "", starts promised to ready jobs of other queues
-- RETURNS  the window, the starts granted, those of all calls in this window, the most in any window, the time (ms),
--   the limit, starts that were left before this call
-- BOUND  one hash, a constant number of fields
local wanted, given_for, length = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local rps, run, name, queue_rps = tonumber(ARGV[5]), ARGV[6], ARGV[8], tonumber(ARGV[9])
local promised, queue = tonumber(ARGV[10]), 'queue:' .. name
local wall = tonumber(ARGV[1])
if not wall then
  local t = redis.call('TIME')
  wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
local have = redis.call('HMGET', KEYS[1], 'window', 'granted', 'run', 'most', 'last', 'offset', queue, 'rates', 'spent')
local window, granted, most = tonumber(have[1] or 0), tonumber(have[2] or 0), tonumber(have[4] or 0)
local last, offset, spent = tonumber(have[5] or 0), tonumber(have[6] or 0), tonumber(have[9] or -1)
if have[8] then
  local over = limits_of(have[8]).over
  rps, queue_rps = over.rps or rps, over.queues[name] and over.queues[name].rps or queue_rps
end
-- The same clock as that of the shards: it never goes back, and follows the one that is ahead.
last = math.max(last, tonumber(ARGV[7]) or 0)
if wall + offset < last then offset = last - wall else last = wall + offset end
local current = math.floor(last / length)
if have[3] and have[3] ~= run then
  -- The server may have lost its last moments.
  window, granted = math.max(window, current), rate.most(rps, length)
  spent = window
elseif current > window then
  window, granted = current, 0
end
local limit, of_queue = rate.allowed(rps, length, window), 0
if have[7] then
  local of_window, count = string.match(have[7], '(%d+):(%d+)')
  if tonumber(of_window) == window then of_queue = tonumber(count) end
end
local room, grant = spent == window and 0 or math.max(0, limit - granted), 0
if wanted > 0 then
  grant = math.min(wanted, room - promised)
  if queue_rps then grant = math.min(grant, rate.allowed(queue_rps, length, window) - of_queue) end
  grant = math.max(0, grant)
elseif given_for == window then
  grant = wanted
end
granted, of_queue = math.max(0, granted + grant), math.max(0, of_queue + grant)
most = math.max(most, granted)
redis.call('HSET', KEYS[1], 'window', window, 'granted', granted, 'run', run, 'most', most, 'last', last, 'offset',
  offset, 'spent', spent)
-- Counted for every queue: it may get its own limit at any time.
if name ~= '' then redis.call('HSET', KEYS[1], queue, window .. ':' .. of_queue) end
return { window, math.max(0, grant), granted, most, last, limit, room }
