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
  local own = max(0, rate.allowed(configured(queue), C.window, M.win) - queue.s)
  local most = running.most(queue)
  if most then own = min(own, max(0, most - queue.run)) end
  return min(own, downstream.room(queue.d))
end

-- Starts left in this window: of the limit, or of this call's grant.
local function window_room()
  if not granted then return M.spent == M.win and 0 or max(0, rate.window() - M.started) end
  return granted_window == M.win and granted or 0
end
local function charge()
  M.started = M.started + 1
  if granted then granted = granted - 1 end
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
    return 'limited', rate.next(C.rps, C.window, M.win + 1) * C.window
  end
  local own = configured(queue)
  if queue.s + queue.r >= rate.allowed(own, C.window, M.win) then
    return 'limited', rate.next(own, C.window, M.win + 1) * C.window
  end
  if running.full(queue) then return 'busy', 0 end
  return 'limited', downstream.next_start(queue.d) or window_end()
end
-- What an outcome says about the downstream.
local feedback = {}
function feedback.outcome(J, g, outcome, time)
  local index, queue, started = J.queue, M.queues[J.queue], J.started
  if outcome ~= 'd' and outcome ~= 'b' and outcome ~= 'f' then
    throughput.back(queue, g.flows[index .. ':' .. J.v], started)
  end
  if outcome == 'x' then
    downstream.release(queue.d)
    pair.change(g, index, downstream.release)
    if floor(started / C.window) == M.win then
      M.started, queue.s = max(0, M.started - 1), max(0, queue.s - 1)
      g.sw, g.sn = M.win, max(0, started_in(g, M.win) - 1)
    end
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
-- Starts in the queue; `g` and its flow if it is one of a group that may have a limit of its own.
function feedback.starts(index, count, g, flow)
  if flow then throughput.starts(flow) end
  downstream.start(M.queues[index].d, count)
  local p = g and pair.of(g, index)
  if p then downstream.start(p.d, count) end
end
