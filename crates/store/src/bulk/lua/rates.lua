-- Limits set at run time, which override the configuration.
--
-- `settings` is the configuration as received, `limits` the limits set at run time, `config` those in effect. So a
-- process that connects with the configured limits does not undo a change.
--
-- A record of limits: v its version, text (the record as processes read it), over (what it overrides: rps, adaptive, and
-- queues by name with the fields of their settings), req the call that stored it. Processes decide the changes.

local function limits_of(raw)
  if raw then return cmsgpack.unpack(raw) end
  return { v = 0, text = '', over = { queues = {} } }
end
-- Settings with the limits in effect.
local function in_force(settings, L)
  local over = L.over
  settings.rps = over.rps or settings.rps
  if over.adaptive ~= nil then settings.adaptive = settings.cong and over.adaptive end
  for name, set in pairs(over.queues) do
    local own = settings.queues[name] or {}
    for field, value in pairs(set) do own[field] = value end
    settings.queues[name] = own
  end
  return settings
end
