-- Picks what goes next: priority, then flow, then job. Shared by admit and lease, so that both follow one order.
-- `inspections` caps the jobs and groups that one call inspects, `wanted` says how many it hopes to get.

local YES, BATCH_PAUSED = -1, -2
local wanted, inspections = 1, 0
-- The lists of the flows that this call has inspected.
local lists_of
resets[#resets + 1] = function() lists_of = {} end

-- Whether a job may start: YES, BATCH_PAUSED, or why it is dead.
local function startable(J)
  local a = get_batch(J.a)
  if is_cancelled(J, a) then return DIED.CANCELLED end
  if J.exp and not J.lifted and J.exp <= now then return DIED.EXPIRED end
  if a.paused then return BATCH_PAUSED end
  return YES
end

-- The first job in one of a flow's lists. Drops stale entries before it.
local function front_of(g, flow, name)
  local of_flow = lists_of[flow]
  if not of_flow then
    of_flow = {}
    lists_of[flow] = of_flow
  end
  local l = of_flow[name]
  if not l or lists[l.key] ~= l then
    l = list(names.flow(int(g.seq), flow.k, name))
    of_flow[name] = l
  end
  local known = l.buf[l.i]
  if known then
    local J = job_at(known)
    if J then return J, l end
  end
  local fresh = name == 'f' and not flow.stale
  local ahead = max(4, math.ceil(wanted / max(1, order_of(flow).len)) + 1)
  local count = name == 'f' and flow.nf or name == 't' and flow.nt or flow.nr
  while true do
    local text, got = head(l, flow.stale and ahead or min(ahead, count))
    if not text then error('TIDEGATE a list is shorter than its count: ' .. l.key) end
    if got then load_entries(got, fresh) end
    local J = job_at(text)
    if J then return J, l end
    pop(l)
  end
end
local function front(g, flow)
  if flow.nr > 0 then return front_of(g, flow, 'r') end
  if flow.nt > 0 then return front_of(g, flow, 't') end
  return front_of(g, flow, 'f')
end
-- Takes a job from the head of its list.
local function take_front(g, flow, J, l)
  pop(l)
  local sp = spot(J, get_batch(J.a))
  J.sp, J.dirty = NOWHERE, true
  one_less(g, flow, sp)
end

local function push_returned(g, flow, J)
  J.sp, J.dirty = RETURNED, true
  push(names.flow(int(g.seq), flow.k, 'r'), entry(J))
  flow.nr = flow.nr + 1
  enter_order(g, flow)
end
-- Puts a job back at the head of its flow. Jobs that were never leased keep their order of arrival among each other.
local function give_back(g, flow, J)
  J.sp, J.dirty = RETURNED, true
  local key = names.flow(int(g.seq), flow.k, 'r')
  local text, before_this, from = entry(J), nil, 0
  if lists[key] then write_list(lists[key]) end
  if flow.nr > 0 then
    while not before_this do
      local got = call('LRANGE', key, from, from + 99)
      if #got == 0 then break end
      load_entries(got)
      for _, other in ipairs(got) do
        local J2 = job_at(other)
        if J2 and not (J2.fence == 0 and J2.seq < J.seq) then before_this = other break end
      end
      from = from + 100
    end
  end
  if before_this then
    call('LINSERT', key, 'BEFORE', before_this, text)
  else
    call('RPUSH', key, text)
  end
  flow.nr = flow.nr + 1
  enter_order(g, flow)
end

-- Moves a job of a paused batch from the head of its flow to the batch's parking.
local function park(g, flow, J, l)
  take_front(g, flow, J, l)
  set_waiting(g, J)
  local a = get_batch(J.a)
  changed_batches[a.seq] = true
  local place
  for _, parked in ipairs(a.parked) do
    if parked.k == flow.k then place = parked end
  end
  if not place then
    place = { k = flow.k, n = 0 }
    a.parked[#a.parked + 1] = place
  end
  place.n = place.n + 1
  J.sp, J.pz = PARKED, a.pz
  push(names.parked(int(a.seq), flow.k), entry(J))
end
-- Moves a ready job back to the head of its flow and reverts its pick.
local function unready(J)
  local _, g, flow = home(J)
  detach(J)
  set_waiting(g, J)
  leave_order(flow)
  refund_pick(g, flow)
  give_back(g, flow, J)
end
-- Moves back all ready jobs of a flow: those behind the first must not overtake it. The last one goes first, so that
-- they keep the order in which they were picked.
local function unready_flow(queue, flow)
  local key = names.ready(flow.l)
  local l = list(key)
  local entries = call('LRANGE', key, l.popped, -1)
  for i = l.j, #l.added do entries[#entries + 1] = l.added[i] end
  load_entries(entries)
  for i = #entries, 1, -1 do
    local J = job_at(entries[i])
    if J and J.sp == IN_READY and J.queue == flow.l then
      local _, _, of = home(J)
      if of == flow then unready(J) end
    end
  end
end

-- The priority of the next pick: one that has earned its minimum first, else the first that waits.
local function choose_priority(queue, waits)
  for v = 1, 3 do
    if waits[v] and queue.c[v] >= 100 then return v end
  end
  for v = 1, 3 do
    if waits[v] then return v end
  end
end
local function book_priority(queue, priority, waits)
  local c = queue.c
  for v = 1, 3 do
    local earned = 0
    if waits[v] then earned = min(200, c[v] + (v == 1 and 0 or v == 2 and C.normal_min or C.low_min)) end
    c[v] = v == priority and max(0, earned - 100) or earned
  end
end

-- Takes the next job of the queue out of its flow. Returns the job, or nil and 'empty', 'more', or 'limited' and
-- until when.
local waits = {}
local function pick(index)
  local queue = M.queues[index]
  while true do
    if inspections == 0 then return nil, 'more' end
    local o = queue.o
    waits[1], waits[2], waits[3] = o[1].len > 0, o[2].len > 0, o[3].len > 0
    local priority = choose_priority(queue, waits)
    if not priority then return nil, 'empty' end
    local g, flow = first_flow(index, priority, min(1000, max(8, wanted)))
    if not g then error('TIDEGATE the order is shorter than its count: ' .. names.order(index, priority)) end
    local everywhere, till = held.blocked(g, index, true)
    if everywhere then
      hold(g, everywhere)
      inspections = inspections - 1
    elseif till then
      pair.hold(g, index, till)
      inspections = inspections - 1
    else
      while g.flows[flow.k] == flow and flow_len(flow) > 0 do
        if inspections == 0 then break end
        local J, l = front(g, flow)
        local may = startable(J)
        local all, everywhere, here
        if may == YES then all, everywhere, here = pace.too_much(J, g, index, true) end
        if all then return nil, 'limited', all end
        if everywhere or here then
          if everywhere then hold(g, everywhere) else pair.hold(g, index, here) end
          inspections = inspections - 1
          break
        end
        if may == YES then
          take_front(g, flow, J, l)
          book_priority(queue, priority, waits)
          reenter_order(g, flow)
          return J, g, flow
        elseif may == BATCH_PAUSED then
          park(g, flow, J, l)
        else
          take_front(g, flow, J, l)
          die(J, may, '')
        end
        inspections = inspections - 1
      end
    end
  end
end

local function make_ready(J, g, flow)
  local queue = M.queues[flow.l]
  set_waiting(g, J)
  J.state, J.sp, J.at, J.dirty = READY, IN_READY, now, true
  push(names.ready(flow.l), entry(J))
  queue.r, M.ready = queue.r + 1, M.ready + 1
  local p = pair.make(g, flow.l)
  p.rdy = p.rdy + 1
  if granted then granted = granted - 1 end
  shift(g, WAITING, READY)
  raise_status(get_batch(J.a), BATCH.DISPATCHED)
end
-- Nothing is in the order: either nothing waits, or everything waiting is at a limit of its group.
local function nothing_startable(index)
  local till, other = pair.next(index), held.next()
  if other then till = min(till or other, other) end
  if not till then return 'empty', 0 end
  return 'held', till
end
