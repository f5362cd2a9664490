-- How long throttled jobs wait, and how fast a queue may go: the same formulas as in the core. Shared, because every
-- start and every throttle of a call charges the same window.

local function next_backoff(g)
  if not C.cong then return C.base, C.base, 0 end
  local uncapped = C.base + floor(g.cong / per_group_limit()) * C.window
  local level
  if uncapped <= C.base then level = 0
  elseif uncapped < C.base * 3 then level = 1
  elseif uncapped < C.base * 10 then level = 2
  elseif uncapped < C.base * 30 then level = 3
  else level = 4 end
  return min(uncapped, C.cmax), uncapped, level
end
-- Counts one throttle of the job and returns its backoff.
local function throttle(g, J)
  J.thr = min(65535, J.thr + 1)
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

local function configured(queue)
  local settings = C.queues[queue.n]
  return settings and settings.milli or C.milli
end
local function raise_pace(queue)
  local most = configured(queue)
  if queue.p >= most then queue.p = most return end
  local gained = floor(most * min(20000, max(0, now - queue.up)) / 20000)
  if gained > 0 then
    queue.p, queue.up = min(most, queue.p + gained), now
  end
end
-- The downstream is overloaded: x 0.7, at most once per second.
local function cut_pace(queue)
  raise_pace(queue)
  if queue.cut and now < queue.cut + 1000 then return end
  queue.cut, queue.up = now, now
  queue.p = max(floor(queue.p * 7 / 10), min(1000, configured(queue)))
end
local function pace_limit(queue)
  raise_pace(queue)
  local all = queue.p * C.window / 1000000
  -- The shards share a rate that was cut; the grants enforce the configured one.
  if others_active > 0 and queue.p < configured(queue) then all = math.ceil(all * M.active / (M.active + others_active)) end
  return max(1, floor(all))
end

-- Starts left in this window: of the limit, or of this call's grant.
local function window_room()
  if not granted then return M.spent == M.win and 0 or max(0, C.limit - M.started) end
  return granted_window == M.win and granted or 0
end
local function charge()
  M.started = M.started + 1
  if granted then granted = granted - 1 end
end
-- How many more starts this queue may promise in this window.
local function room(queue)
  local own = max(0, pace_limit(queue) - (queue.s + queue.r))
  if granted then return min(window_room(), own) end
  return min(max(0, window_room() - M.ready), own)
end
