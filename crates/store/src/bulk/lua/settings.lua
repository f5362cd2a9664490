-- bulk settings: the settings of a store as processes compare them, and their changes; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  time (ms) or "" (not used)
-- RETURNS  the settings (JSON) or "", the changes (JSON), the newest last
-- BOUND  the remembered changes
local P = string.sub(KEYS[1], 1, -5)
return {
  redis.call('GET', P .. 'settings:compared') or '',
  redis.call('LRANGE', P .. 'settings:changes', 0, -1),
}
