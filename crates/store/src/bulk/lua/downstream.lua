-- What a downstream sustains, found by calling it: the same rule, in the same arithmetic, as `limits::downstream` of the
-- core. Shared, because leases, settlements and expired leases change it. Times are in ms.
--
-- d.cut is the rate after the last cut, absent if none is in effect; d.hold is 0 none, 1 until d.hold_at, 2 probing
-- since d.hold_at.

local downstream = {}
function downstream.new()
  return { cut_at = 0, growth = 0, grown_at = 0, limiting = false, next = 0, hold = 0, hold_at = 0, hold_length = 0,
    cycle_since = 0, cycle_count = 0, cycle = 0,
    since = { 0, 0, 0 }, count = { 0, 0, 0 }, rejected = { 0, 0, 0 }, last = 0, round_trip = 0 }
end
do
local function grown(units) return 1.0 + 0.02 * units + 0.02 * units * units * units end
function downstream.rate(d) return d.cut and d.cut * grown(d.growth) end
function downstream.is_free(d) return not d.cut and d.hold == 0 end

function downstream.advance(d, configured)
  local r = downstream.rate(d)
  if not r then return end
  if d.limiting and d.hold == 0 then
    local calls = 64.0 / (1.0 + d.growth)
    if d.growth >= 2.0 then calls = calls / (1.0 + d.growth) end
    local unit = max(max(max(1000.0, d.round_trip), d.cycle), min(calls * 1000.0 / r, 120000.0))
    local since = max(d.grown_at, d.cut_at + d.round_trip)
    d.growth = d.growth + min(max(now - since, 0.0), unit) / unit
  end
  d.grown_at, d.limiting = now, false
  if r >= configured * 1.5 then d.cut, d.cycle = nil, 0 end
end
-- How many calls may start now.
function downstream.room(d)
  local room
  if d.hold == 1 then room = now >= d.hold_at and 1 or 0
  elseif d.hold == 2 then room = 0
  else
    local r = downstream.rate(d)
    if not r then return 1e15 end
    local spacing = 1000.0 / r
    room = floor(min(max((now + max(100.0, spacing) - d.next) / spacing, 0.0), 1e15))
  end
  if room == 0 then d.limiting = true end
  return room
end
function downstream.start(d, calls)
  if d.hold == 1 then d.hold, d.hold_at = 2, now end
  local r = downstream.rate(d)
  if r then
    for _ = 1, calls do d.next = max(d.next, now) + 1000.0 / r end
  end
end
function downstream.release(d)
  if d.hold == 2 then d.hold = 1 end
  local r = downstream.rate(d)
  if r then d.next = d.next - 1000.0 / r end
end
-- When the next call may start, if none may now; nil if nothing keeps calls from starting.
function downstream.next_start(d)
  local at
  local r = downstream.rate(d)
  if d.hold == 1 then at = d.hold_at
  elseif d.hold == 2 then at = now + 1000.0
  elseif r then at = max(d.next - max(100.0, 1000.0 / r) + 1000.0 / r, now + 10.0)
  else return nil end
  return max(math.ceil(at), now)
end

local function count_answer(d, started)
  local total = d.count[1] + d.count[2] + d.count[3]
  local gap = total == 0 and 0.0 or (d.last - d.since[1]) / total * 8.0
  if started - d.last > max(gap, 2000.0) then
    d.since, d.count, d.rejected = { now, now, now }, { 0, 0, 0 }, { 0, 0, 0 }
  end
  d.last = now
  if d.count[3] >= 3 and now - d.since[3] >= 500.0 then
    d.since = { d.since[2], d.since[3], now }
    d.count = { d.count[2], d.count[3], 0 }
    d.rejected = { d.rejected[2], d.rejected[3], 0 }
  end
  d.round_trip = d.round_trip + (min(now - started, 60000.0) - d.round_trip) / 8.0
end
-- The downstream delivered.
function downstream.answered(d, started)
  count_answer(d, started)
  d.count[3], d.cycle_count = d.count[3] + 1, d.cycle_count + 1
  if d.hold == 2 and started >= d.hold_at then
    local r = downstream.rate(d)
    d.hold, d.grown_at = 0, now
    d.next = now + (r and max(100.0, 1000.0 / r) or 0.0)
  end
end
-- The call ended without an answer.
function downstream.lost(d, started)
  if d.hold == 2 and started >= d.hold_at then d.hold, d.hold_at = 1, now end
end
-- The downstream is overloaded, says the answer to a call; `after` is its Retry-After, or nil.
function downstream.overloaded(d, started, after, configured)
  count_answer(d, started)
  local probe = d.hold == 2 and started >= d.hold_at
  local sustained
  if after then
    local till = now + after
    if not (d.hold == 1 and d.hold_at >= till) then
      d.hold, d.hold_at, d.hold_length = 1, till, after
      local cycle = till - d.cycle_since
      if d.cycle_since > 0 and cycle > 0 and cycle <= 10.0 * after then
        sustained, d.cycle = d.cycle_count * 1000.0 / cycle, min(cycle, 120000.0)
      end
      d.cycle_since, d.cycle_count = till, 0
    end
  elseif probe then
    local length = min(max(d.hold_length * 2.0, 1000.0), 60000.0)
    d.hold, d.hold_at, d.hold_length = 1, now + length, length
  end
  if probe or (d.cut_at > 0 and started <= d.cut_at and now - d.cut_at > 1500.0) then return end
  local current = downstream.rate(d) or configured
  local total = d.count[1] + d.count[2] + d.count[3]
  d.rejected[3] = d.rejected[3] + 1
  if total == 0 and d.cut then
    if started <= d.cut_at then return end
    if d.hold == 0 then d.hold, d.hold_at, d.hold_length = 1, now + 1000.0, 1000.0 end
    return
  end
  local delivered = current / 2.0
  if total > 0 then
    delivered = total * 1000.0 / max(now - d.since[1], 1000.0)
    if d.cut and total >= 3 and d.rejected[1] == 0 and d.rejected[2] == 0 and d.rejected[3] == 1 then
      delivered = current
    elseif total < 30 and d.cut then
      local calls = max(total + (d.rejected[1] + d.rejected[2] + d.rejected[3]), 1.0)
      delivered = max(delivered, current * (total / calls))
    end
  end
  local least = 0.0
  if not d.cut then least = 1.0
  elseif not d.limiting and (d.growth == 0.0 or d.growth == 3.0) then least = current / 2.0 end
  if sustained then delivered = max(min(sustained, delivered), 1.0 / 60.0) else delivered = max(delivered, least) end
  local settled = d.cut_at == 0 or (started > d.cut_at and now - d.cut_at >= 1000.0)
  local target = min(delivered * 0.98, settled and current * 0.97 or current)
  if target >= current then return end
  target = max(target, min(1.0 / 60.0, configured))
  d.growth = total < 3 and 3.0 or 0.0
  d.cut = target / grown(d.growth)
  if d.cut_at == 0 or started > d.cut_at then d.cut_at = now end
  d.grown_at, d.limiting = now, false
  d.next = now + max(100.0, 1000.0 / target)
end
end
