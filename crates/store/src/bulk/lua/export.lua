-- bulk export: a page of the store's data; read-only. One call, so that a record is never half of two states.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then what, and its arguments:
--   groups: after this group's number or "", maximum
--   batches: from this group's number on, after this batch's number of it or "", maximum
--   runs: batch, after this job's number
--   jobs: for each run of job numbers: first, count
-- RETURNS  groups: the groups, 1 if there are more
--   batches: the batches, each with its first runs of job numbers and 1 if it has more; then the next two arguments
--     or -1
--   runs: the runs, 1 if there are more
--   jobs: the jobs, the number to continue from or -1
-- BOUND  the maximum; a thousand groups inspected for their batches; 64 runs per batch, a thousand of one; for jobs
--   what the caller lists, or about a megabyte
local what = next_arg()

local function flag(b) return b and 1 or 0 end
local function runs_of(a, from, most)
  local out = {}
  local got = call('ZRANGEBYSCORE', names.runs(int(a)), from, '+inf', 'LIMIT', 0, most + 1)
  for i = 1, min(most, #got) do
    local first, count = string.match(got[i], '(%d+):(%d+)')
    out[#out + 1] = tonumber(first)
    out[#out + 1] = tonumber(count)
  end
  return out, flag(#got > most)
end

if what == 'groups' then
  local after, most = next_number(), next_number()
  local from = after and '(' .. int(after) or '-inf'
  local seqs = call('ZRANGEBYSCORE', K.group_seqs, from, '+inf', 'LIMIT', 0, most + 1)
  local out = {}
  for i = 1, min(most, #seqs) do
    local g = get_group(tonumber(seqs[i]))
    out[i] = { g.seq, g.id, g.bp, flag(g.paused), g.lt or '', g.cr }
  end
  return { out, flag(#seqs > most) }
elseif what == 'batches' then
  local group, after, most = next_number(), next_number(), next_number()
  local seqs = call('ZRANGEBYSCORE', K.group_seqs, int(group), '+inf', 'LIMIT', 0, 1000)
  local out = {}
  for _, text in ipairs(seqs) do
    local g = tonumber(text)
    local from = g == group and after and '(' .. int(after) or '-inf'
    for _, of in ipairs(call('ZRANGEBYSCORE', names.batches(int(g)), from, '+inf', 'LIMIT', 0, most - #out)) do
      local a = get_batch(tonumber(of))
      local runs, more = runs_of(a.seq, '-inf', 64)
      out[#out + 1] = { a.seq, a.g, a.id, a.th, flag(a.keep), a.cb or '', a.status, flag(a.sealed), flag(a.paused),
        flag(a.cancelled), a.xf, flag(a.implicit), flag(a.conf), a.cr, a.fin or -1, is_open(a) and a.d or a.c, a.err,
        call('HGET', K.summary, a.seq), runs, more }
    end
    if #out >= most then return { out, g, out[#out][1] } end
  end
  if #seqs == 1000 then return { out, tonumber(seqs[1000]) + 1, -1 } end
  return { out, -1, -1 }
elseif what == 'runs' then
  local a, after = next_number(), next_number()
  local runs, more = runs_of(a, '(' .. int(after), 1000)
  return { runs, more }
end

local out, bytes = {}, 0
while arg < #ARGV do
  local first, count = next_number(), next_number()
  for from = first, first + count - 1, 50 do
    if bytes > 1048576 then return { out, from } end
    local seqs = {}
    for seq = from, min(from + 49, first + count - 1) do seqs[#seqs + 1] = seq end
    load_jobs(seqs)
    runs.load(seqs)
    for _, seq in ipairs(seqs) do
      local J = jobs[seq]
      if J then
        out[#out + 1] = { seq, J.state, J.sp, J.att, J.thr, J.fence, J.at, J.delay, J.death, flag(J.lifted), J.blob, J.text,
          J.started, J.owner, flag(J.doomed), runs.of(J) }
        bytes = bytes + #J.blob + #J.text + #runs.of(J)
      end
    end
  end
end
return { out, -1 }
