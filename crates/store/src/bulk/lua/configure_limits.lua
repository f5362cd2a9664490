-- bulk configure_limits: changes limits at run time. Atomic, so that the record of changes and the limits in effect
-- agree.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: changes to remember, queues that may be set, global rate, adaptive control, who, why, then for
--   each queue: name, rate, running jobs. A value is a number (adaptive control: 1 or 0), "" (unchanged) or "reset"
-- RETURNS  facts, then ok and the limits (see rates.lua), or queues if there would be too many
-- BOUND  the queues, the remembered changes, a thousand groups held in this window, and a thousand of each queue that
--   wait for their downstream
local kept, most = next_number(), next_number()
local of_all, adaptive, by, why = next_arg(), next_arg(), next_arg(), next_arg()
local settings = cjson.decode(call('GET', K.settings))
local raw = call('GET', K.limits)
local was, L = limits_of(raw), limits_of(raw)
if retried then
  for _, change in ipairs(L.changes) do
    if change.req == request then return { nothing(), 'ok', stored_limits(settings, L) } end
  end
end

local function set(text, before)
  if text == '' then return before end
  return tonumber(text)
end
L.global_rps = set(of_all, L.global_rps)
local on = set(adaptive, L.adaptive and 1 or L.adaptive == false and 0 or nil)
if on then L.adaptive = on == 1 else L.adaptive = nil end
local changed, named = L.global_rps ~= was.global_rps or L.adaptive ~= was.adaptive, {}
while arg < #ARGV do
  local name, rps, running = next_arg(), next_arg(), next_arg()
  local before = was.queues[name] or {}
  local after = { rps = set(rps, before.rps), max_running = set(running, before.max_running) }
  if after.rps ~= before.rps or after.max_running ~= before.max_running then changed = true end
  L.queues[name] = next(after) and after or nil
  named[#named + 1] = name
end
local count = 0
for _ in pairs(L.queues) do count = count + 1 end
if count > most then return { nothing(), 'queues' } end

local function remember(queue, setting, from, to)
  if from == to then return end
  L.changes[#L.changes + 1] = {
    at = now, by = by, why = why, queue = queue, setting = setting, from = from, to = to, req = request,
  }
end
remember(nil, 'rps', rps_of(settings, was), rps_of(settings, L))
remember(nil, 'adaptive', adaptive_of(settings, was) and 1 or 0, adaptive_of(settings, L) and 1 or 0)
for _, name in ipairs(named) do
  remember(name, 'rps', rps_of(settings, was, name), rps_of(settings, L, name))
  remember(name, 'max_running', running_of(settings, was, name), running_of(settings, L, name))
end
while #L.changes > kept do table.remove(L.changes, 1) end
local answer = stored_limits(settings, L)
if not changed then return { nothing(), 'ok', answer } end
L.v = L.v + 1
answer[1] = L.v
enforce(settings, L)
return { flush(), 'ok', answer }
