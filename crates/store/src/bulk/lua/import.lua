-- bulk import: one step of filling an empty shard. Atomic, so that a step that may have run before does not run
-- again, and no other call sees half of an import.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: the import's id, step, what, and its arguments:
--   begin: only without existing groups; from here on M.importing names the import
--   limits: limits set at run time, as a record of the export (JSON), what it overrides (JSON)
--   records: for each: g, a or j, then a group, batch or job (see restore.lua)
--   finished, flows: none; work that needs all records to be present
--   batches: numbers of batches to continue, because they are cancelled or complete
--   end: none; the shard is complete
-- RETURNS  facts, then ok and a number (begin: the first number to assign; finished, flows: 1 if there are more);
--   lost if another import has taken over; full; or bad and why
-- BOUND  the caller's records; a thousand entries for finished and flows
local who, step, what = next_arg(), next_number(), next_arg()

if what == 'begin' then
  if M.importing ~= who then
    if M.importing then return { nothing(), 'lost' } end
    if M.groups > 0 then return { nothing(), 'full' } end
    M.importing, M.imported = who, 0
  end
  return { nothing(), 'ok', M.seq }
end
if what == 'end' and not M.importing and M.imported == who then return { nothing(), 'ok', 0 } end
if M.importing ~= who then return { nothing(), 'lost' } end

local more = 0
local function take(key, most)
  local got = step > M.imported and call('ZPOPMIN', key, most) or {}
  more = call('EXISTS', key)
  local members = {}
  for i = 1, #got, 2 do members[#members + 1] = got[i] end
  return members
end

if what == 'finished' then
  local ended = take(restored_finished, 1000)
  load_entries(ended)
  for _, text in ipairs(ended) do
    local J = get_job(tonumber(text))
    keep_finished(get_group(get_batch(J.a).g), entry(J), J.at)
  end
elseif what == 'flows' then
  for _, text in ipairs(take(restored_flows, 1000)) do
    local seq, k = string.match(text, '(%d+):(.+)')
    local g = get_group(tonumber(seq))
    enter_order(g, g.flows[k])
  end
elseif what == 'limits' then
  local L = { v = 1, text = next_arg(), over = cjson.decode(next_arg()) }
  C = in_force(cjson.decode(call('GET', K.settings)), L)
  call('SET', K.config, encode(C))
  call('SET', K.limits, encode(L))
elseif what == 'end' then
  M.importing, M.imported = nil, who
  -- The first process that opens the store brings its settings.
  call('DEL', K.compared)
  notify_work, notify_aggregate, notify_timer = true, true, true
  return { flush(), 'ok', 0 }
elseif step > M.imported then
  while arg < #ARGV do
    if what == 'batches' then
      local a = get_batch(next_number())
      if a.cancelled and a.un > 0 then
        a.cur = 0
        call('ZADD', K.cancelling, a.seq, a.seq)
      end
      complete_if_done(a)
    else
      local kind, bad = next_arg(), nil
      if kind == 'g' then bad = restore_group()
      elseif kind == 'a' then bad = restore_batch()
      else bad = restore_job() end
      if bad then return { nothing(), 'bad', bad } end
    end
  end
  end_run()
end
M.imported = max(M.imported, step)
return { flush(), 'ok', more }
