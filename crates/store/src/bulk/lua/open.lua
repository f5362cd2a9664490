-- bulk open: prepares a shard for this program's settings, or rejects it. Atomic, so that of several processes that
-- start at once one creates the shard, and none uses a shard of another schema.
-- If the server has restarted since the last call, it may have lost its last moments: the running window counts as
-- spent.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  time (ms) or "", schema, shards, this shard, settings (JSON), run id of the server, the settings as they are
--   compared (JSON), and if they differ from the stored ones: "" rejects them, follow leaves the stored ones in place,
--   replace stores these; then a record of the change (JSON) or "", records to keep
-- RETURNS  ok; or schema, shards or importing with the stored number; or settings with the stored ones
-- BOUND  five keys and the queues
local P = string.sub(KEYS[1], 1, -5)
local schema, shards, shard = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local raw = redis.call('GET', KEYS[1])
local M
if raw then
  M = cmsgpack.unpack(raw)
  if M.schema ~= schema then return { 'schema', M.schema } end
  if M.shards ~= shards then return { 'shards', M.shards } end
  if M.importing then return { 'importing', 0 } end
else
  M = {
    schema = schema, shards = shards, shard = shard, run = ARGV[6], seq = 1, fence = 1, last = 0, off = 0, win = 0,
    mt = { w = 0, n = 0 }, ready = 0, active = 0, w = 0, c = { 0, 0, 0, 0, 0, 0 }, tstarted = 0, most = 0, throttles = 0, spins = 0,
    held = 0, pairs = 0, fin = 0, flows = 0, groups = 0, batches = 0, queues = {},
  }
end
local settings, compared = redis.call('GET', P .. 'settings'), redis.call('GET', P .. 'settings:compared')
local differs = settings and compared and compared ~= ARGV[7]
if differs and ARGV[8] == '' then return { 'settings', compared } end
if not (differs and ARGV[8] == 'follow') then
  -- Types may have other queues now (see move.lua).
  if raw and settings ~= ARGV[5] then
    M.remapped, M.moving = true, { group = 0, place = '', at = 0, moved = false }
  end
  settings = ARGV[5]
  redis.call('SET', P .. 'settings', settings)
  redis.call('SET', P .. 'settings:compared', ARGV[7])
end
local wall = tonumber(ARGV[1])
if not wall then
  local t = redis.call('TIME')
  wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
if differs and ARGV[9] ~= '' then
  local change = cjson.decode(ARGV[9])
  change.at = wall
  redis.call('RPUSH', P .. 'settings:changes', cjson.encode(change))
  redis.call('LTRIM', P .. 'settings:changes', -tonumber(ARGV[10]), -1)
end
local config = redis.call('GET', P .. 'config')
local C = in_force(cjson.decode(settings), limits_of(redis.call('GET', P .. 'limits')))
local other_window = config and cmsgpack.unpack(config).window ~= C.window
if M.run ~= ARGV[6] or other_window then
  M.last = math.max(M.last, wall + M.off)
  M.win, M.run = math.floor(M.last / C.window), ARGV[6]
  M.mt = { w = M.win, n = rate.most(C.rps, C.window) }
  -- Also if the limit is raised before it ends.
  M.spent = M.win
  for _, queue in ipairs(M.queues) do queue.mt = { w = 0, n = 0 } end
end
redis.call('SET', KEYS[1], cmsgpack.pack(M))
redis.call('SET', P .. 'config', cmsgpack.pack(C))
return { 'ok', 0 }
