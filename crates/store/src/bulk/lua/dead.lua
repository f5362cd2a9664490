-- bulk dead: a page of dead jobs, most recently accepted first; read-only. One call, so that a job and its batch
-- match.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: after this job's number or "", maximum jobs, maximum jobs inspected, group or "", type or
--   "", reason or ""
-- RETURNS  for each: group, batch, job; then the last number inspected, or -1 at the end
-- BOUND  the jobs inspected, or about a megabyte of them
local after, most, left = next_number(), next_number(), next_number()
local group_id, kind, reason = next_arg(), next_arg(), next_number()
local of_group = group_id ~= '' and find_group(group_id)
if group_id ~= '' and not of_group then return { {}, -1 } end

local function matches(J, a)
  return (not of_group or a.g == of_group.seq) and (kind == '' or J.kind == kind) and (not reason or J.death == reason)
end
local out, bytes = {}, 0
while true do
  local from = after and '(' .. int(after) or '+inf'
  local found = call('ZREVRANGEBYSCORE', K.dead, from, '-inf', 'LIMIT', 0, 51)
  local seqs = {}
  for i = 1, min(50, #found) do seqs[i] = tonumber(found[i]) end
  load_jobs(seqs)
  for i, seq in ipairs(seqs) do
    local J = jobs[seq]
    local a = get_batch(J.a)
    after, left, bytes = seq, left - 1, bytes + #J.blob + #J.text
    if matches(J, a) then
      out[#out + 1] = { get_group(a.g).id, a.id, { J.seq, J.v, J.ph, J.att, J.thr, J.at, J.delay, J.death,
        M.queues[J.queue].n, J.blob, J.text } }
    end
    if #out == most or left == 0 or bytes > 1048576 then return { out, i < #found and seq or -1 } end
  end
  if #found <= 50 then return { out, -1 } end
end
