-- grant: cuts starts out of the window that all shards share, or takes back those that were not used.
-- KEYS[1] is <prefix>{limit}:rate-limit. time or "", starts wanted (below 0: given back), the window that they
-- were for, window length, limit, run id of the server.
local wanted, given_for, length = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, run = tonumber(ARGV[5]), ARGV[6]
local wall = tonumber(ARGV[1])
if not wall then
  local t = redis.call('TIME')
  wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
local have = redis.call('HMGET', KEYS[1], 'window', 'granted', 'run', 'most')
local last, granted, most = tonumber(have[1] or 0), tonumber(have[2] or 0), tonumber(have[4] or 0)
local window = math.floor(wall / length)
if have[3] and have[3] ~= run then
  -- The server may have forgotten its last moments.
  last, granted = math.max(last, window), limit
elseif window > last then
  last, granted = window, 0
end
local grant = 0
if wanted > 0 then
  grant = math.max(0, math.min(wanted, limit - granted))
  granted = granted + grant
elseif given_for == last then
  granted = math.max(0, granted + wanted)
end
most = math.max(most, granted)
redis.call('HSET', KEYS[1], 'window', last, 'granted', granted, 'run', run, 'most', most)
return { last, grant, granted, most }
