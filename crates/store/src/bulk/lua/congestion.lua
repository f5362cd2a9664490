-- How long throttled jobs wait, and how many jobs a queue may start: the same formulas as in the core. Shared, because
-- every start and every throttle of a call charges the same window.

-- The queue's own rate, in starts per second.
local function configured(queue)
  local settings = C.queues[queue.n]
  return settings and settings.rps or C.rps
end
-- Starts in one window that the group gets, if all want more, in the slowest queue that has jobs of it.
local function speed_of(g)
  local slowest = per_group_limit()
  for _, flow in pairs(g.flows) do
    local queue = M.queues[flow.l]
    local limit, sustained = rate.most(configured(queue), C.window), downstream.rate(queue.d)
    if sustained then limit = min(limit, floor(max(1.0, sustained * C.window / 1000.0))) end
    slowest = min(slowest, max(1, floor(limit / max(1, queue.gr))))
  end
  return slowest
end

local function next_backoff(g)
  if not C.cong then return C.base, C.base, 0 end
  local uncapped = C.base + floor(g.cong / speed_of(g)) * C.window
  local level
  if uncapped <= C.base then level = 0
  elseif uncapped < C.base * 3 then level = 1
  elseif uncapped < C.base * 10 then level = 2
  elseif uncapped < C.base * 30 then level = 3
  else level = 4 end
  return min(uncapped, C.cmax), uncapped, level
end
-- Counts one throttle of the group and returns the job's backoff.
local function throttle(g)
  local wait, uncapped, level = next_backoff(g)
  g.st[1], g.st[2], g.st[3] = g.st[1] + 1, now, wait
  M.throttles = M.throttles + 1
  M.spins = M.spins + max(0, floor(wait / max(1, C.base)) - 1)
  return wait, uncapped, level
end
local function congest(g)
  if g.cong == 0 then zput(K.congested, int(g.seq), g.seq) end
  g.cong = g.cong + 1
end
local function uncongest(g, reason)
  if reason ~= DELAY.SCHEDULED then g.cong = g.cong - 1 end
end

-- Jobs of a queue that run at once.
local running = {}
function running.most(queue)
  local settings = C.queues[queue.n]
  return settings and settings.running
end
function running.full(queue)
  local most = running.most(queue)
  return most and queue.run >= most
end

local pace = {}
function pace.advance(queue) downstream.advance(queue.d, configured(queue)) end
-- Starts that the queue's rate and its downstream still allow in this window.
function pace.room(queue)
  local own = meter.room(queue.mt, configured(queue))
  local most = running.most(queue)
  if most then own = min(own, max(0, most - queue.run)) end
  return min(own, downstream.room(queue.d))
end

-- Starts left in this window: of the limit, or of this call's grant.
local function window_room()
  if not granted then return M.spent == M.win and 0 or meter.room(M.mt, C.rps) end
  return granted_window == M.win and granted or 0
end
-- Charges the whole system, the queue, the group, and the group in the queue.
function pace.charge(g, index, cost)
  meter.charge(M.mt, C.rps, cost)
  meter.charge(M.queues[index].mt, configured(M.queues[index]), cost)
  meter.charge(g.mt, g.lr, cost)
  local rps = pair.limit(g, index)
  meter.charge(pair.make(g, index), rps, cost)
end
-- What has too little room for a job that costs more than one: until when the whole system or the queue has not, or until
-- when the group has not, over all queues or in this one. With `promised`, ready jobs start first.
function pace.too_much(J, g, index, promised)
  local cost = J.cost
  if cost == 1 then return nil end
  local queue = M.queues[index]
  local function ready(n) return promised and n or 0 end
  if M.spent == M.win or not meter.fits(M.mt, C.rps, ready(M.ready), cost) then return meter.till(M.mt, C.rps) end
  local own = configured(queue)
  if not meter.fits(queue.mt, own, ready(queue.r), cost) then return meter.till(queue.mt, own) end
  if g.lr and not meter.fits(g.mt, g.lr, ready(g.c[READY]), cost) then return nil, meter.till(g.mt, g.lr) end
  local p, rps = pair.any(g, index), pair.limit(g, index)
  local m = p or { w = 0, n = 0 }
  if rps and not meter.fits(m, rps, ready(p and p.rdy or 0), cost) then return nil, nil, meter.till(m, rps) end
end
-- How many more starts this queue may promise in this window.
local function room(queue)
  local own = max(0, pace.room(queue) - queue.r)
  if granted then return min(window_room(), own) end
  return min(max(0, window_room() - M.ready), own)
end
-- The queue may start nothing more now: why (limited or busy), and until when.
function pace.stop(queue)
  if window_room() <= (granted and 0 or M.ready) then
    if granted then return 'limited', window_end() end
    return 'limited', meter.till(M.mt, C.rps)
  end
  local own = configured(queue)
  if meter.room(queue.mt, own) <= queue.r then return 'limited', meter.till(queue.mt, own) end
  if running.full(queue) then return 'busy', 0 end
  return 'limited', downstream.next_start(queue.d) or window_end()
end
-- What an outcome says about the downstream.
local feedback = {}
function feedback.outcome(J, g, outcome, time, used)
  local index, queue, started = J.queue, M.queues[J.queue], J.started
  if outcome ~= 'd' and outcome ~= 'b' and outcome ~= 'f' then
    throughput.back(queue, g.flows[index .. ':' .. J.v], started)
  end
  if outcome == 'x' then
    downstream.release(queue.d)
    pair.change(g, index, downstream.release)
  elseif outcome == 'g' and C.adaptive then
    downstream.answered(queue.d, started)
    local guess = max(max(1, g.c[RUNNING]) * 1000.0 / max(1, now - started), 2.0)
    pair.overloaded(g, index, started, time and min(time, C.retry_after), min(guess, configured(queue)))
  elseif (outcome == 't' or outcome == 'o') and C.adaptive then
    local after = outcome == 't' and time and min(time, C.retry_after) or nil
    downstream.overloaded(queue.d, started, after, configured(queue))
    pair.change(g, index, downstream.lost, started)
  else
    downstream.answered(queue.d, started)
    pair.change(g, index, downstream.answered, started)
  end
  -- A job that did not run uses up nothing; another one may have used up more or less than its cost.
  local more = (outcome == 'x' and 0 or used or J.cost) - J.cost
  if more > 0 then pace.charge(g, index, more)
  elseif more < 0 and floor(started / C.window) == M.win then
    meter.refund(M.mt, -more)
    meter.refund(queue.mt, -more)
    meter.refund(g.mt, -more)
    meter.refund(pair.make(g, index), -more)
  end
end
-- The downstream answered a plain call: one of a group without a limit of its own.
function feedback.plain(index, started) downstream.answered(M.queues[index].d, started) end
-- A lease ended without an answer: if the call was a probe, another one follows.
function feedback.lost(J, g)
  throughput.back(M.queues[J.queue], g.flows[J.queue .. ':' .. J.v], J.started)
  downstream.lost(M.queues[J.queue].d, J.started)
  pair.change(g, J.queue, downstream.lost, J.started)
end
feedback.leased = throughput.leased
-- A job of the group starts in the queue, from this flow.
function feedback.start(index, g, flow)
  throughput.starts(flow)
  downstream.start(M.queues[index].d, 1)
  local p = pair.make(g, index)
  p.run = p.run + 1
  if pair.of(g, index) then downstream.start(p.d, 1) end
end
