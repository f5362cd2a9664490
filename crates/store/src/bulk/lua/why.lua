-- bulk why: what keeps a job, or a group's next job, from starting; read-only. One call, so that its facts are of one
-- moment.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, job or ""
-- RETURNS  the facts that the core decides by, or only the state (0: none) if nothing holds it; or no group or no job
-- BOUND  64 flows of each order for estimates; inspected jobs are capped as in the core: 100,000 for a position or a due time (numbers only), a thousand
--   per flow for one that may start; ready is searched completely
local MAX_INSPECTIONS, INSPECTIONS_PER_FLOW = 100000, 1000
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { 'no group' } end
-- Starts that the queue's rate and its downstream allow in this window.
local function queue_allowed(queue)
  local own = rate.allowed(configured(queue), C.window, M.win)
  downstream.advance(queue.d, configured(queue))
  local sustained = downstream.rate(queue.d)
  return sustained and min(own, floor(max(sustained * C.window / 1000.0, 1.0))) or own
end
local common = { now, per_group_limit(), window_end(), paces }
local function flag(b) return b and 1 or 0 end

-- A limit of the group's own and its use: starts in this window, ready, running; what its rate allows in this window or
-- -1, in any window, and when again; running jobs at most or -1.
local function own(m, ready, run, rps, most)
  return { meter.at(m, rps), ready, run, rps and rate.allowed(rps, C.window, M.win) or -1,
    rps and rate.most(rps, C.window) or 0, rps and meter.till(m, rps) or 0, most or -1 }
end
local function facts_of(J, flow, batch_paused, ahead)
  local queue, p = M.queues[flow.l], pair.any(g, flow.l)
  -- Before the rates of this copy grow.
  local of_group = group_pace(g)
  return { common, J.state, queue.n, flag(g.paused), flag(batch_paused), J.at, J.delay, ahead,
    own(g.mt, g.c[READY], g.c[RUNNING], g.lr, g.lm),
    own(p or { w = 0, n = 0 }, p and p.rdy or 0, p and p.run or 0, pair.limit(g, flow.l)), flag(C.strict),
    meter.till(M.mt, C.rps), rate.window(), window_room(), M.ready, queue_allowed(queue), meter.till(queue.mt, configured(queue)),
    meter.at(queue.mt, configured(queue)), queue.r, C.ready_max, queue.run, running.most(queue) or -1, of_group, flow.l, flow.v }
end

-- How many jobs are ahead of an entry of a list. Stale entries do not count.
local function place(key, text, count)
  if call('LLEN', key) == count then
    return call('LPOS', key, text, 'MAXLEN', MAX_INSPECTIONS + 1) or MAX_INSPECTIONS
  end
  local n = 0
  for from = 0, MAX_INSPECTIONS - 1, 1000 do
    local entries, seqs = call('LRANGE', key, from, from + 999), {}
    if #entries == 0 then return n end
    for i, other in ipairs(entries) do seqs[i] = parse(other) end
    local states = call('HMGET', K.state, unpack(seqs))
    for i, other in ipairs(entries) do
      if other == text then return n end
      local _, of_entry = parse(other)
      local of_job = 0
      if states[i] then of_job = struct.unpack('>I2', states[i], 3)
      elseif call('HEXISTS', K.job, seqs[i]) == 0 then of_job = -1 end
      if of_entry == of_job then n = n + 1 end
    end
  end
  return n
end

if id ~= '' then
  local seq = call('HGET', names.ids(int(g.seq)), id)
  local J = seq and get_job(tonumber(seq))
  if not J then return { 'no job' } end
  if J.state == RUNNING or J.state == COMPLETED or J.state == DEAD then return { common, J.state } end
  local a, _, flow = home(J)
  local sp, ahead = spot(J, a), 0
  if J.state == WAITING and sp == RETURNED then
    ahead = place(names.flow(int(g.seq), flow.k, 'r'), entry(J), flow.nr)
  elseif J.state == WAITING and sp == FRESH then
    ahead = flow.nr + flow.nt + place(names.flow(int(g.seq), flow.k, 'f'), entry(J), flow.nf)
  end
  return facts_of(J, flow, a.paused, ahead)
end

-- The highest priority first, then the earliest arrival.
local best
local function candidate(J)
  if J and (not best or J.v < best.v or (J.v == best.v and J.seq < best.seq)) then best = J end
end
local function first_ready(index)
  local entries = call('LRANGE', names.ready(index), 0, -1)
  load_entries(entries)
  for _, text in ipairs(entries) do
    local J = job_at(text)
    if J and J.sp == IN_READY and J.queue == index and get_batch(J.a).g == g.seq then return J end
  end
end
-- The first job of a flow that may start, or its first job if none of the inspected ones may.
local function first_in_flow(flow)
  local first, inspected = nil, 0
  for _, name in ipairs({ 'r', 't', 'f' }) do
    local key, from, some = names.flow(int(g.seq), flow.k, name), 0, 8
    while from < 10 * INSPECTIONS_PER_FLOW do
      local entries = call('LRANGE', key, from, from + some - 1)
      if #entries == 0 then break end
      load_entries(entries)
      for _, text in ipairs(entries) do
        local J = job_at(text)
        if J then
          first = first or J
          if startable(J) == YES then return J end
          inspected = inspected + 1
          if inspected >= INSPECTIONS_PER_FLOW then return first end
        end
      end
      from, some = from + #entries, 100
    end
  end
  return first
end
-- The delayed job that is due first.
local function first_due()
  local first, at, inspected = nil, nil, 0
  for _, text in ipairs(call('ZRANGE', names.batches(int(g.seq)), 0, -1)) do
    local a, from = get_batch(tonumber(text)), 0
    while a.un > 0 and inspected < MAX_INSPECTIONS do
      local seqs, members = numbers_from(a, from, 1000), {}
      if #seqs == 0 then break end
      for i, seq in ipairs(seqs) do members[i] = padded(seq) end
      for i, due in ipairs(call('ZMSCORE', K.delayed, unpack(members))) do
        due = tonumber(due or nil)
        if due and (not at or due < at or (due == at and seqs[i] < first)) then first, at = seqs[i], due end
      end
      from, inspected = seqs[#seqs] + 1, inspected + #seqs
    end
  end
  return first and get_job(first)
end

if g.c[READY] > 0 then
  for index, queue in ipairs(M.queues) do
    if queue.r > 0 then candidate(first_ready(index)) end
  end
end
if not best then
  for _, flow in pairs(g.flows) do
    if flow_len(flow) > 0 then candidate(first_in_flow(flow)) end
  end
end
if not best and g.c[WAITING] > 0 then
  -- All waiting jobs are parked: which of them is next does not matter while their batches are paused.
  for _, flow in pairs(g.flows) do
    if flow.un > 0 then return facts_of({ state = WAITING, at = now, delay = 0 }, flow, true, 0) end
  end
end
if not best and g.c[DELAYED] > 0 then best = first_due() end
if best then
  local a, _, flow = home(best)
  return facts_of(best, flow, a.paused, 0)
end
return { common, g.c[RUNNING] > 0 and RUNNING or 0 }
