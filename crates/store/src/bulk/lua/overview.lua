-- bulk overview: what exists under a prefix, without opening it; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  time (ms) or ""
-- RETURNS  nothing if there is nothing; else schema, shards, groups, the import in progress or "", the finished
--   import or "", time since the last call (ms)
-- BOUND  one key
local raw = redis.call('GET', KEYS[1])
if not raw then return {} end
local fine, M = pcall(cmsgpack.unpack, raw)
if not fine or type(M) ~= 'table' or not M.schema then return { 0, 0, 0, '', '', 0 } end
local wall = tonumber(ARGV[1])
if not wall then
  local t = redis.call('TIME')
  wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
local since = math.max(0, wall + (M.off or 0) - (M.last or 0))
local finished = type(M.imported) == 'string' and M.imported or ''
return { M.schema, M.shards or 0, M.groups or 0, M.importing or '', finished, since }
