-- bulk configure_limits: changes rates at run time. Atomic, so that the record of changes and the rates in effect
-- agree.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: changes to remember, queues that may be set, global rate, who, why, then for each queue:
--   name, rate. A rate is a number (per second), "" (unchanged) or "reset"
-- RETURNS  facts, then ok and the rates (see rates.lua), or queues if there would be too many
-- BOUND  the queues, the remembered changes, and a thousand groups held in this window
local kept, most = next_number(), next_number()
local of_all, by, why = next_arg(), next_arg(), next_arg()
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
local changed, named = L.global_rps ~= was.global_rps, { false }
while arg < #ARGV do
  local name, rate = next_arg(), next_arg()
  L.queues[name] = set(rate, L.queues[name])
  if L.queues[name] ~= was.queues[name] then changed = true end
  named[#named + 1] = name
end
local count = 0
for _ in pairs(L.queues) do count = count + 1 end
if count > most then return { nothing(), 'queues' } end

for _, queue in ipairs(named) do
  local from, to = rps_of(settings, was, queue), rps_of(settings, L, queue)
  if from ~= to then
    L.changes[#L.changes + 1] = {
      at = now, by = by, why = why, queue = queue or nil, from_rps = from, to_rps = to, req = request,
    }
  end
end
while #L.changes > kept do table.remove(L.changes, 1) end
local answer = stored_limits(settings, L)
if not changed then return { nothing(), 'ok', answer } end
L.v = L.v + 1
answer[1] = L.v
enforce(settings, L)
return { flush(), 'ok', answer }
