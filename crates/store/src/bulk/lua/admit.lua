-- bulk admit: moves jobs to ready in fair order, within every limit. With hold = "job" it also denies the next jobs
-- once the window is spent. Atomic, so that several dispatchers together promise no more starts than the window has.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: queue, maximum jobs, maximum ready jobs
-- RETURNS  facts, then the admitted jobs, for each denied one: job, group, wait (ms), uncapped wait (ms), congestion
--   level, starts of all in this window, limit, starts of the group, share of the group; why it stopped (enough,
--   full, limited, busy, more, empty, held), until when (ms) or 0; ready jobs and weight in the order of the queue
-- BOUND  the maximum, plus ten times as many inspected jobs and a thousand; a thousand groups that may try again
local name, most, cap = next_arg(), next_number(), next_number()
held.release_due()
local index, queue = queue_named(name)
if not index then return { flush(), {}, {}, 'empty', 0, 0, 0 } end
cap = min(cap, C.ready_max)
pace.advance(queue)
inspections, wanted, marks_changes = most * 10 + 1000, most, true
local admitted, stop, till = {}, nil, 0
while not stop do
  if #admitted >= most then stop = 'enough'
  elseif queue.r >= cap then stop = 'full'
  elseif room(queue) == 0 then stop, till = pace.stop(queue)
  else
    local J, g, flow = pick(index)
    if J then
      make_ready(J, g, flow)
      admitted[#admitted + 1] = J.seq
    elseif g == 'more' then stop = 'more'
    elseif g == 'limited' then stop, till = 'limited', flow
    else stop, till = nothing_startable(index) end
  end
end

-- hold = "job": denies the next jobs in fair order because the window is spent, one per flow and pass.
local denied = {}
local function deny_next(g, flow)
  local _, uncapped = next_backoff(g)
  if uncapped >= C.cmax or flow.nf == 0 then return false end
  local J, l = front_of(g, flow, 'f')
  pop(l)
  flow.nf = flow.nf - 1
  local wait, raw, priority = throttle(g)
  J.state, J.delay, J.sp, J.at, J.dirty = DELAYED, DELAY.RATE_LIMITED, THROTTLED, now + wait, true
  push(names.flow(int(g.seq), flow.k, 't'), entry(J))
  flow.nt = flow.nt + 1
  congest(g)
  M.queues[J.queue].dl = M.queues[J.queue].dl + 1
  shift(g, WAITING, DELAYED)
  denied[#denied + 1] = { J.seq, g.id, wait, raw, priority, meter.at(M.mt, C.rps) + M.ready, rate.window(),
    meter.at(g.mt, g.lr) + g.c[READY], per_group_limit() }
  return true
end
if stop == 'limited' and C.hold_job then
  local standing = {}
  for priority = 1, 3 do
    for seq, g in pairs(groups) do
      local flow = g.flows[index .. ':' .. priority]
      if flow and flow.pk and placed[flow] ~= member(g, flow) then
        standing[#standing + 1] = { priority, flow.pk, flow.pt, g, flow }
      end
    end
    local got = call('ZRANGE', names.order(index, priority), 0, most + #standing)
    for _, text in ipairs(got) do
      local g = get_group(tonumber(string.match(text, ':(%d+)')))
      local flow = g and g.flows[index .. ':' .. priority]
      if flow and placed[flow] == text and flow.pk and member(g, flow) == text then
        standing[#standing + 1] = { priority, flow.pk, flow.pt, g, flow }
      end
    end
  end
  table.sort(standing, function(x, y)
    if x[1] ~= y[1] then return x[1] < y[1] end
    if x[2] ~= y[2] then return x[2] < y[2] end
    return x[3] < y[3]
  end)
  local left = {}
  for i = 1, min(most, #standing) do left[i] = standing[i] end
  while #denied < most and #left > 0 do
    local still = {}
    for _, s in ipairs(left) do
      if #denied < most and deny_next(s[4], s[5]) then still[#still + 1] = s end
    end
    left = still
  end
end
return { flush(), admitted, denied, stop, till, queue.r, standing_weight(queue) }
