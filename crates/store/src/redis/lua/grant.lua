-- grant: cuts starts out of the window that all shards share, or takes back those that were not used.
-- KEYS[1] is <prefix>{limit}:rate-limit. time or "", starts wanted (below 0: given back), the window that they
-- were for, window length, limit, run id of the server, the latest time that any shard has told, lane, the
-- lane's own limit or "", starts promised to ready jobs of other lanes.
local wanted, given_for, length = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, run, lane, lane_limit = tonumber(ARGV[5]), ARGV[6], 'lane:' .. ARGV[8], tonumber(ARGV[9])
local promised = tonumber(ARGV[10])
local wall = tonumber(ARGV[1])
if not wall then
  local t = redis.call('TIME')
  wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
local have = redis.call('HMGET', KEYS[1], 'window', 'granted', 'run', 'most', 'last', 'offset', lane)
local window, granted, most = tonumber(have[1] or 0), tonumber(have[2] or 0), tonumber(have[4] or 0)
local last, offset = tonumber(have[5] or 0), tonumber(have[6] or 0)
-- The same clock as that of the shards: it never goes back, and follows the one that is ahead.
last = math.max(last, tonumber(ARGV[7]) or 0)
if wall + offset < last then offset = last - wall else last = wall + offset end
local current = math.floor(last / length)
if have[3] and have[3] ~= run then
  -- The server may have forgotten its last moments.
  window, granted = math.max(window, current), limit
elseif current > window then
  window, granted = current, 0
end
local of_lane = 0
if have[7] then
  local of_window, count = string.match(have[7], '(%d+):(%d+)')
  if tonumber(of_window) == window then of_lane = tonumber(count) end
end
local grant = 0
if wanted > 0 then
  grant = math.min(wanted, limit - granted - promised)
  if lane_limit then grant = math.min(grant, lane_limit - of_lane) end
  grant = math.max(0, grant)
elseif given_for == window then
  grant = wanted
end
granted, of_lane = math.max(0, granted + grant), math.max(0, of_lane + grant)
most = math.max(most, granted)
redis.call('HSET', KEYS[1], 'window', window, 'granted', granted, 'run', run, 'most', most, 'last', last, 'offset',
  offset)
if lane_limit then redis.call('HSET', KEYS[1], lane, window .. ':' .. of_lane) end
return { window, math.max(0, grant), granted, most, last }
