-- Picks what goes next: priority, then flow, then job. Shared by admit and lease, so that both follow one order.
-- `looks` caps the jobs and groups that one call inspects, `wanted` says how many it hopes to get.

local YES, BATCH_PAUSED = -1, -2
local wanted, looks = 1, 0
-- The lists of the flows that this call has inspected.
local lists_of
resets[#resets + 1] = function() lists_of = {} end

-- Whether a job may start: YES, BATCH_PAUSED, or why it is dead.
local function startable(J)
  local a = get_batch(J.a)
  if a.cancelled then return DIED.CANCELLED end
  if J.exp and not J.lifted and J.exp <= now then return DIED.EXPIRED end
  if a.paused then return BATCH_PAUSED end
  return YES
end

-- The first job in one of a flow's lists. Drops stale entries before it.
local function front_of(g, line, name)
  local of_line = lists_of[line]
  if not of_line then
    of_line = {}
    lists_of[line] = of_line
  end
  local l = of_line[name]
  if not l or lists[l.key] ~= l then
    l = list(names.line(int(g.seq), line.k, name))
    of_line[name] = l
  end
  local known = l.buf[l.i]
  if known then
    local J = job_at(known)
    if J then return J, l end
  end
  local fresh = name == 'f' and not line.stale
  local ahead = max(4, math.ceil(wanted / max(1, order_of(line).len)) + 1)
  local count = name == 'f' and line.nf or name == 't' and line.nt or line.nr
  while true do
    local text, got = head(l, line.stale and ahead or min(ahead, count))
    if not text then error('TIDEGATE a list is shorter than its count: ' .. l.key) end
    if got then load_entries(got, fresh) end
    local J = job_at(text)
    if J then return J, l end
    pop(l)
  end
end
local function front(g, line)
  if line.nr > 0 then return front_of(g, line, 'r') end
  if line.nt > 0 then return front_of(g, line, 't') end
  return front_of(g, line, 'f')
end
-- Takes a job from the head of its list.
local function take_front(g, line, J, l)
  pop(l)
  local sp = spot(J, get_batch(J.a))
  J.sp, J.dirty = NOWHERE, true
  one_less(g, line, sp)
end

local function push_returned(g, line, J)
  J.sp, J.dirty = RETURNED, true
  push(names.line(int(g.seq), line.k, 'r'), entry(J))
  line.nr = line.nr + 1
  enter_order(g, line)
end
-- Puts a job back at the head of its flow. Jobs that were never leased keep their order of arrival among each other.
local function give_back(g, line, J)
  J.sp, J.dirty = RETURNED, true
  local key = names.line(int(g.seq), line.k, 'r')
  local text, before_this, from = entry(J), nil, 0
  if lists[key] then write_list(lists[key]) end
  if line.nr > 0 then
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
  line.nr = line.nr + 1
  enter_order(g, line)
end

-- Moves a job of a paused batch from the head of its flow to the batch's parking.
local function park(g, line, J, l)
  take_front(g, line, J, l)
  set_waiting(g, J)
  local a = get_batch(J.a)
  changed_batches[a.seq] = true
  local place
  for _, parked in ipairs(a.parked) do
    if parked.k == line.k then place = parked end
  end
  if not place then
    place = { k = line.k, n = 0 }
    a.parked[#a.parked + 1] = place
  end
  place.n = place.n + 1
  J.sp, J.pz = PARKED, a.pz
  push(names.parked(int(a.seq), line.k), entry(J))
end
-- Moves a ready job back to the head of its flow and reverts its pick.
local function unready(J)
  local _, g, line = home(J)
  detach(J)
  set_waiting(g, J)
  leave_order(line)
  refund_pick(g, line)
  give_back(g, line, J)
end
-- Moves back all ready jobs of a flow: those behind the first must not overtake it.
local function unready_line(queue, line)
  local key = names.ready(line.l)
  local l = list(key)
  local entries = call('LRANGE', key, l.popped, -1)
  for i = l.j, #l.added do entries[#entries + 1] = l.added[i] end
  load_entries(entries)
  for _, text in ipairs(entries) do
    local J = job_at(text)
    if J and J.sp == IN_READY and J.queue == line.l then
      local _, _, of = home(J)
      if of == line then unready(J) end
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

-- Takes the next job of the queue out of its flow. Returns the job, or nil and 'empty' or 'more'.
local waits = {}
local function pick(index)
  local queue = M.queues[index]
  while true do
    if looks == 0 then return nil, 'more' end
    local o = queue.o
    waits[1], waits[2], waits[3] = o[1].len > 0, o[2].len > 0, o[3].len > 0
    local priority = choose_priority(queue, waits)
    if not priority then return nil, 'empty' end
    local g, line = first_line(index, priority, min(1000, max(8, wanted)))
    if not g then error('TIDEGATE the order is shorter than its count: ' .. names.order(index, priority)) end
    local held = at_ceiling(g, g.c[READY])
    if held then
      hold(g, held)
      looks = looks - 1
    else
      while g.lines[line.k] == line and line_len(line) > 0 do
        if looks == 0 then break end
        local J, l = front(g, line)
        local may = startable(J)
        if may == YES then
          take_front(g, line, J, l)
          book_priority(queue, priority, waits)
          reenter_order(g, line)
          return J, g, line
        elseif may == BATCH_PAUSED then
          park(g, line, J, l)
        else
          take_front(g, line, J, l)
          die(J, may, '')
        end
        looks = looks - 1
      end
    end
  end
end

local function make_ready(J, g, line)
  local queue = M.queues[line.l]
  set_waiting(g, J)
  J.ph, J.sp, J.at, J.dirty = READY, IN_READY, now, true
  push(names.ready(line.l), entry(J))
  queue.r, M.ready = queue.r + 1, M.ready + 1
  if granted then granted = granted - 1 end
  shift(g, WAITING, READY)
  raise_status(get_batch(J.a), DISPATCHED)
end
-- Nothing is in the order: either nothing waits, or everything waiting is at a ceiling.
local function nothing_startable()
  if M.held == 0 then return 'empty', 0 end
  return 'held', window_end()
end
