-- bulk open_batch: opens a batch, with its group if needed. Atomic, so that one of several callers creates it.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, base priority, its step, batch, failure threshold (percent), "1" if it keeps
--   results, callback or ""
-- RETURNS  facts, then new, already, finished, cancelled or sealed
-- BOUND  one group and one batch
local group_id, base_priority, step, id = next_arg(), next_number(), next_number(), next_arg()
local threshold, keep, callback = next_number(), next_arg() == '1', next_arg()
local g = find_or_create_group(group_id, base_priority, step)
local a = find_batch(g, id)
if a then
  local answer = 'already'
  if not is_open(a) then answer = 'finished'
  elseif a.cancelled then answer = 'cancelled'
  elseif a.sealed then answer = 'sealed' end
  return { nothing(), answer }
end
create_batch(g, id, threshold, keep, false, callback ~= '' and callback or nil)
return { flush(), 'new' }
