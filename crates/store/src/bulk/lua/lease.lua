-- bulk lease: leases jobs to a worker, ready ones first. The only place where the rate is charged. Atomic, so that no
-- two workers get one job, and the starts of all workers stay within the limits.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: queue, maximum jobs, owner
-- RETURNS  facts, then why it stopped (enough, limited, busy, more, empty, held), until when (ms) or 0, granted starts that
--   are left, group and batch of each batch that occurs, then for each job: number, fence, its batch's index,
--   attempt, deadline (ms), timeout (ms), packed job; ready jobs and weight in the order of the queue
-- BOUND  the maximum, plus ten times as many inspected jobs and a thousand; a retry inspects up to 100,000 leases for
--   those of its first attempt
local name, most, who = next_arg(), next_number(), next_arg()

-- The reply: groups and batches once each, then seven values per job.
local count, out, of, index_of = 0, {}, {}, {}
local function hand_out(J, a, g, kind)
  local at = index_of[J.a]
  if not at then
    of[#of + 1] = g.id
    of[#of + 1] = a.id
    at = #of / 2
    index_of[J.a] = at
  end
  local n = count * 7
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = J.seq, J.fence, at, J.att + 1
  out[n + 5], out[n + 6], out[n + 7] = J.at, kind.timeout, J.blob
  count = count + 1
end

if retried then
  -- A retry of the same call returns the leases of the first attempt.
  local all = call('ZRANGEBYSCORE', K.inflight, '(' .. int(now), '+inf', 'LIMIT', 0, 100000)
  for from = 1, #all, 1000 do
    local seqs = {}
    for i = from, min(#all, from + 999) do seqs[#seqs + 1] = tonumber(all[i]) end
    load_jobs(seqs)
    for _, seq in ipairs(seqs) do
      local J = jobs[seq]
      if J and J.state == RUNNING and J.req == request then
        local a = get_batch(J.a)
        hand_out(J, a, get_group(a.g), kind_of(J.kind))
      end
    end
  end
  if count > 0 then
    local _, queue = queue_named(name)
    return { nothing(), 'enough', 0, 0, of, out, queue.r, standing_weight(queue) }
  end
end

held.release_due()
local index, queue = queue_named(name)
if not index then return { flush(), 'empty', 0, granted or 0, {}, {}, 0, 0 } end
inspections, wanted, marks_changes = most * 10 + 1000, most, true
pace.advance(queue)

-- The next job to start, detached, within every limit; or nil, why, until when.
local function next_start()
  while queue.r > 0 do
    if window_room() == 0 or pace.room(queue) == 0 then return nil, pace.stop(queue) end
    if inspections == 0 then return nil, 'more', 0 end
    local l = list(names.ready(index))
    local J
    while not J do
      local text, got = head(l, min(1000, max(4, queue.r)))
      if not text then error('TIDEGATE ready is shorter than its count: ' .. l.key) end
      if got then load_entries(got) end
      J = job_at(text)
      if not J then pop(l) end
    end
    inspections = inspections - 1
    local _, g, flow = home(J)
    local may = startable(J)
    if may == BATCH_PAUSED then unready(J)
    elseif may ~= YES then
      take_front(g, flow, J, l)
      die(J, may, '')
    elseif g.paused then unready_flow(queue, flow)
    else
      local everywhere, till = held.blocked(g, index, false)
      local all
      if not everywhere and not till then all, everywhere, till = pace.too_much(J, g, index, false) end
      if all then return nil, 'limited', all end
      if not everywhere and not till then
        take_front(g, flow, J, l)
        return J, g, flow
      end
      unready_flow(queue, flow)
      if everywhere then hold(g, everywhere) else pair.hold(g, index, till) end
    end
  end
  if room(queue) == 0 then return nil, pace.stop(queue) end
  local J, g, flow = pick(index)
  if J then return J, g, flow end
  if g == 'more' then return nil, 'more', 0 end
  if g == 'limited' then return nil, 'limited', flow end
  return nil, nothing_startable(index)
end

local stop, till = nil, 0
local states = M.c

count = plain_starts(index, queue, most, who, out, of)

while not stop do
  if count >= most then stop = 'enough' break end
  wanted = most - count
  local J, g, flow = next_start()
  if not J then stop, till = g, flow break end
  if J.state == DELAYED then set_waiting(g, J) end
  local kind, from, of_group = kind_of(J.kind), J.state, g.c
  J.fence = M.fence
  M.fence = M.fence + 1
  J.state, J.sp, J.at, J.dirty = RUNNING, NOWHERE, now + kind.timeout + C.margin, true
  J.started, J.owner, J.req, J.progress = now, who, request, ''
  queue.run = queue.run + 1
  if granted then granted = granted - 1 end
  feedback.start(index, g, flow)
  pace.charge(g, index, J.cost)
  -- As shift does; a start makes no group active or idle.
  of_group[from], of_group[RUNNING] = of_group[from] - 1, of_group[RUNNING] + 1
  states[from], states[RUNNING] = states[from] - 1, states[RUNNING] + 1
  zput(K.inflight, padded(J.seq), J.at)
  local a = get_batch(J.a)
  raise_status(a, BATCH.RUNNING)
  M.tstarted = M.tstarted + 1
  M.most = max(M.most, M.mt.n)
  hand_out(J, a, g, kind)
end
feedback.leased(queue, count, stop)
return { flush(), stop, till, granted or 0, of, out, queue.r, standing_weight(queue) }
