-- Limits set at run time, which override the configuration.
--
-- `settings` is the configuration as received, `limits` the limits set at run time, `config` those in effect. So a
-- process that connects with the configured limits does not undo a change.
--
-- A record of limits: v its version, global_rps, adaptive, queues (rps and max_running by name), changes (at, by, why,
-- queue, setting, from, to, and the call that made it), the newest last.

local function limits_of(raw)
  if raw then return cmsgpack.unpack(raw) end
  return { v = 0, queues = {}, changes = {} }
end
-- Absent fields of JSON are null.
local function without_nulls(t)
  for key, value in pairs(t) do
    if value == cjson.null then t[key] = nil
    elseif type(value) == 'table' then without_nulls(value) end
  end
  return t
end
-- A record in the format of a stream.
local function limits_from(text, version)
  local L = without_nulls(cjson.decode(text))
  L.v = version
  return L
end
-- The rate of a queue or, without one, of the whole system.
local function rps_of(settings, L, queue)
  local of_all = L.global_rps or settings.rps
  if not queue then return of_all end
  local set, own = L.queues[queue], settings.queues[queue]
  return set and set.rps or own and own.rps or of_all
end
-- How many jobs of a queue may run at once, or nil.
local function running_of(settings, L, queue)
  local set, own = L.queues[queue], settings.queues[queue]
  return set and set.max_running or own and own.running
end
local function adaptive_of(settings, L)
  if L.adaptive == nil then return settings.adaptive end
  return settings.cong and L.adaptive
end
-- Settings with the limits in effect.
local function in_force(settings, L)
  settings.adaptive = adaptive_of(settings, L)
  settings.rps = L.global_rps or settings.rps
  for name, set in pairs(L.queues) do
    local own = settings.queues[name] or {}
    own.rps, own.running = set.rps or own.rps, set.max_running or own.running
    settings.queues[name] = own
  end
  return settings
end

-- The reply: version, rate set or "", adaptive set (1, 0) or "", queues with their rate or "" and running jobs or "",
-- changes, configured rate, whether adaptive control is on.
local function stored_limits(settings, L)
  local function exact(n) return n and string.format('%.17g', n) or '' end
  local function bit(b) return b and '1' or '0' end
  local queues, changes = {}, {}
  for name, set in pairs(L.queues) do
    queues[#queues + 1] = { name, exact(set.rps), exact(set.max_running) }
  end
  for i, change in ipairs(L.changes) do
    changes[i] = { change.at, change.by, change.why, change.queue or '', change.setting, exact(change.from),
      exact(change.to) }
  end
  return { L.v, exact(L.global_rps), L.adaptive == nil and '' or bit(L.adaptive), queues, changes, exact(settings.rps),
    bit(adaptive_of(settings, L)) }
end
