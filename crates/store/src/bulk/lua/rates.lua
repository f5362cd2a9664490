-- Rates set at run time, which override the configuration.
--
-- `settings` is the configuration as received, `limits` the rates set at run time, `config` the rates in effect. So a
-- process that connects with the configured rates does not undo a change.
--
-- A record of limits: v its version, global_rps, queues (rates by name), changes (at, by, why, queue, from_rps,
-- to_rps, and the call that made it), the newest last.

local function limits_of(raw)
  if raw then return cmsgpack.unpack(raw) end
  return { v = 0, queues = {}, changes = {} }
end
-- A record in the format of a stream.
local function limits_from(text, version)
  local L = cjson.decode(text)
  L.v = version
  if L.global_rps == cjson.null then L.global_rps = nil end
  for _, change in ipairs(L.changes) do
    if change.queue == cjson.null then change.queue = nil end
  end
  return L
end
-- The rate of a queue or, without one, of the whole system.
local function rps_of(settings, L, queue)
  local of_all = L.global_rps or settings.rps
  local own = queue and settings.queues[queue]
  return queue and (L.queues[queue] or own and own.rps) or of_all
end
-- Settings with the rates in effect.
local function in_force(settings, L)
  settings.rps = L.global_rps or settings.rps
  for name, rps in pairs(L.queues) do
    settings.queues[name] = settings.queues[name] or {}
    settings.queues[name].rps = rps
  end
  return settings
end

-- The reply: version, rate set or "", queues and their rates, changes, configured rate.
local function stored_limits(settings, L)
  local function exact(rps) return string.format('%.17g', rps) end
  local queues, changes = {}, {}
  for name, rps in pairs(L.queues) do
    queues[#queues + 1] = name
    queues[#queues + 1] = exact(rps)
  end
  for i, change in ipairs(L.changes) do
    changes[i] = { change.at, change.by, change.why, change.queue or '', exact(change.from_rps), exact(change.to_rps) }
  end
  return { L.v, L.global_rps and exact(L.global_rps) or '', queues, changes, exact(settings.rps) }
end
