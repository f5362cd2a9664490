-- bulk clear: removes what an incomplete import left behind, part by part. Atomic, so that a shard of another import
-- is never touched.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: the import's id
-- RETURNS  ok and 1 if there is more, or lost if the shard does not belong to this import
-- BOUND  a hundred groups, a thousand batches; large values are unlinked, not deleted
local who = next_arg()
if M.importing ~= who and M.imported ~= who then return { 'lost', 0 } end

local budget = 1000
for _, text in ipairs(call('ZRANGE', K.group_seqs, 0, 99)) do
  local g = get_group(tonumber(text))
  local of = call('ZRANGE', names.batches(text), 0, budget)
  for i = 1, min(#of, budget) do
    call('UNLINK', names.runs(of[i]))
    call('ZREM', names.batches(text), of[i])
  end
  if #of > budget then return { 'ok', 1 } end
  budget = budget - #of
  for _, flow in pairs(g and g.flows or {}) do
    for _, name in ipairs({ 'r', 't', 'f' }) do call('UNLINK', names.flow(text, flow.k, name)) end
  end
  call('UNLINK', names.ids(text), names.batches(text), names.history(text), names.finished(text))
  call('ZREM', K.group_seqs, text)
end
if call('EXISTS', K.group_seqs) == 1 then return { 'ok', 1 } end
for index in ipairs(M.queues) do
  call('UNLINK', names.ready(index), names.pairs(index))
  for priority = 1, 3 do call('UNLINK', names.order(index, priority), names.remembered(index, priority)) end
end
call('UNLINK', P .. 'importing:flows', P .. 'importing:finished')
for _, key in pairs(K) do call('UNLINK', key) end
return { 'ok', 0 }
