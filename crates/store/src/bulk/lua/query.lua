-- bulk query: views of groups, batches, jobs and statistics; read-only. One call, so that all of a view is from one
-- moment.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then what, and its arguments:
--   groups, summary: after this group's number or "", maximum; stats: none
--   group, limit, congestion: group; batch: group, batch; job: group, job
--   jobs: group, batch, after this job's number or "", maximum
--   history: group, maximum entries
-- RETURNS  the time (ms), the share of a group, the end of the window (ms) and the queues that estimates need, then the
--   view; pages end with 1 if there are more; or no group, no batch, no job or cursor lost
-- BOUND  the maximum, and for each group its batches and flows; 64 flows of each order for estimates, a hundred batches; 100,000 job numbers for a page of jobs; 10,000
--   congested groups for a summary; 10,000 stale entries per flow
local what = next_arg()

-- In whole seconds, or -1: the precision of the core.
local function waiting_since(g)
  local since
  for _, flow in pairs(g.flows) do
    local created = flow_len(flow) > 0 and first_created(g, flow)
    if created then since = min(since or created, created) end
  end
  return since and floor(since / 1000) * 1000 or -1
end
local function group_view(g)
  local of_group = {}
  for i, seq in ipairs(call('ZRANGE', names.batches(int(g.seq)), 0, -1)) do
    of_group[i] = get_batch(tonumber(seq)).id
  end
  return { g.id, g.bp, g.lt or '', g.paused and 1 or 0, g.held and 1 or 0, is_active(g) and 1 or 0,
    g.c, of_group, waiting_since(g), group_pace(g), g.seq }
end
local function job_view(J)
  return view_of(J, get_batch(J.a))
end
local function congestion(g)
  local wait, _, level = next_backoff(g)
  return { g.id, g.cong, speed_of(g), wait, level, g.st[1], g.st[2] or -1, g.st[3], g.st[4], g.st[5], g.seq }
end
local function page(view)
  local after, most = next_number(), max(1, next_number())
  local from = after and '(' .. int(after) or '-inf'
  local seqs = call('ZRANGEBYSCORE', K.group_seqs, from, '+inf', 'LIMIT', 0, most + 1)
  local out = {}
  for i = 1, min(most, #seqs) do out[i] = view(get_group(tonumber(seqs[i]))) end
  return out, #seqs > most and 1 or 0
end
local common = { now, per_group_limit(), window_end(), paces }

if what == 'groups' then
  local items, more = page(group_view)
  return { common, items, more }
elseif what == 'stats' then
  local standing, remembered = { 0, 0, 0 }, 0
  for _, queue in ipairs(M.queues) do
    for priority = 1, 3 do
      standing[priority] = standing[priority] + queue.o[priority].len
      remembered = remembered + queue.o[priority].rem
    end
  end
  return { common, standing, M.active, M.c, M.tstarted, M.most, rate.widest(), M.throttles, M.spins, M.groups, M.batches,
    M.flows + remembered, remembered }
elseif what == 'summary' then
  local total, worst, who = 0, 0, ''
  for _, seq in ipairs(call('ZRANGE', K.congested, 0, 9999)) do
    local g = get_group(tonumber(seq))
    total = total + g.cong
    local _, _, level = next_backoff(g)
    if g.cong > 0 and level > worst then worst, who = level, g.id end
  end
  local items, more = page(congestion)
  return { common, M.active, total, worst, who, items, more }
end

local g = find_group(next_arg())
if not g then return { 'no group' } end
if what == 'group' then
  return { common, group_view(g) }
elseif what == 'batch' then
  local a = find_batch(g, next_arg())
  if not a then return { 'no batch' } end
  return { common, a.id, a.status, a.sealed and 1 or 0, a.paused and 1 or 0, g.paused and 1 or 0,
    a.cancelled and 1 or 0, a.c, a.err,
    a.cr, a.fin or -1, call('HGET', K.summary, a.seq), a.cb or '', a.un, group_pace(g), batches_before(g, a) }
elseif what == 'job' then
  local seq = call('HGET', names.ids(int(g.seq)), next_arg())
  local J = seq and get_job(tonumber(seq))
  if not J then return { 'no job' } end
  return { common, job_view(J) }
elseif what == 'jobs' then
  local a = find_batch(g, next_arg())
  if not a then return { 'no batch' } end
  local after, most = next_number(), max(1, next_number())
  if after then
    local J = get_job(after)
    if not J or J.a ~= a.seq then return { 'cursor lost' } end
  end
  local from, out, more, passed = after and after + 1 or 0, {}, 0, 0
  while more == 0 and passed < 100000 do
    local seqs = numbers_from(a, from, min(1000, most + 1))
    if #seqs == 0 then break end
    load_jobs(seqs)
    runs.load(seqs)
    for _, seq in ipairs(seqs) do
      from, passed = seq + 1, passed + 1
      if jobs[seq] then
        if #out >= most then more = 1 break end
        out[#out + 1] = job_view(jobs[seq])
      end
    end
  end
  return { common, out, more }
elseif what == 'limit' then
  return { common, meter.at(M.mt, C.rps), rate.window(), meter.at(g.mt, g.lr), M.active }
elseif what == 'congestion' then
  return { common, congestion(g) }
else
  local most, out = next_number(), {}
  local oldest = (M.snap or 0) - C.stats_age
  for _, raw in ipairs(call('LRANGE', names.history(int(g.seq)), -max(1, most), -1)) do
    local at, count, wait, speed = struct.unpack('>I7I4I7I7', raw)
    if at >= oldest and most > 0 then out[#out + 1] = { at, count, wait, speed } end
  end
  return { common, out }
end
