-- bulk dead: a page of dead jobs, those that died last first; read-only. One call, so that a job and its batch
-- match.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: after this time of death (ms) and this job's number or "" twice, maximum jobs, maximum jobs inspected, group or "", type or
--   "", reason or ""
-- RETURNS  for each: group, job; then the time of death and the number of the last job inspected, or -1 twice at the end
-- BOUND  the jobs inspected, or about a megabyte of them
local died_at, number, most, left = next_number(), next_number(), next_number(), next_number()
local after = died_at and padded(died_at) .. padded(number)
local group_id, kind, reason = next_arg(), next_arg(), next_number()
local of_group = group_id ~= '' and find_group(group_id)
if group_id ~= '' and not of_group then return { {}, -1, -1 } end

local function matches(J, a)
  return (not of_group or a.g == of_group.seq) and (kind == '' or J.kind == kind) and (not reason or J.death == reason)
end
local out, bytes = {}, 0
while true do
  local found = call('ZREVRANGEBYLEX', K.dead, after and '(' .. after or '+', '-', 'LIMIT', 0, 51)
  local seqs = {}
  for i = 1, min(50, #found) do seqs[i] = tonumber(string.sub(found[i], 17)) end
  load_jobs(seqs)
  runs.load(seqs)
  for i, seq in ipairs(seqs) do
    local J = jobs[seq]
    local a = get_batch(J.a)
    after, left, bytes = found[i], left - 1, bytes + #J.blob + #J.text + #runs.of(J)
    if matches(J, a) then
      out[#out + 1] = { get_group(a.g).id, view_of(J, a) }
    end
    if #out == most or left == 0 or bytes > 1048576 then
      local more = i < #found
      return { out, more and J.at or -1, more and seq or -1 }
    end
  end
  if #found <= 50 then return { out, -1, -1 } end
end
