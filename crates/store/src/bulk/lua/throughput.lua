-- How fast jobs start: the same record, in the same arithmetic, as `limits::throughput` of the core. Shared, because
-- leases, settlements and expired leases change it. Times are in ms.
--
-- A record is an array: since, idle time so far, idle since (0: busy), begin of the running busy spell, its starts, number
-- of the latest slot, starts of the six latest slots (the latest first), starts before them, busy time before them.

local throughput = {}
function throughput.new() return { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } end
-- Moves slots that are over to where they belong.
function throughput.turn(m, busy)
  local slot = floor(busy / 5000)
  local passed = slot - m[6]
  if passed <= 0 then return end
  m[6] = slot
  for _ = 1, min(passed, 6) do
    m[13] = m[13] + m[12]
    m[12], m[11], m[10], m[9], m[8], m[7] = m[11], m[10], m[9], m[8], m[7], 0
  end
  local ends = max(0, slot - 5) * 5000
  m[14] = m[14] + max(0, ends - max(max(0, ends - passed * 5000), m[1]))
  while m[14] > 300000 do m[13], m[14] = floor(m[13] / 2), floor(m[14] / 2) end
end
-- Counts starts. Those that begin the measure are only its origin.
function throughput.start(m, count)
  if m[3] > 0 then
    local idle = max(0, now - m[3])
    if idle > 900000 then
      for i = 1, 14 do m[i] = 0 end
    else
      m[2], m[3], m[4], m[5] = m[2] + idle, 0, now, 0
    end
  end
  local busy = max(0, now - m[2])
  if m[1] == 0 then
    m[1], m[4], m[5], m[6] = busy, now, 0, floor(busy / 5000)
    return
  end
  throughput.turn(m, busy)
  m[7], m[5] = m[7] + count, m[5] + count
end
-- A start at this time came to nothing.
function throughput.refund(m, started)
  local back = m[6] - floor(max(0, started - m[2]) / 5000)
  if back >= 0 and back < 6 and m[1] > 0 then m[7 + back] = max(0, m[7 + back] - 1) end
end
-- From here on nothing waits.
function throughput.idle(m)
  if m[3] > 0 or m[1] == 0 then return end
  throughput.turn(m, max(0, now - m[2]))
  local spell = max(0, now - m[4])
  if spell < 1000 then m[7], m[2] = max(0, m[7] - m[5]), m[2] + spell end
  m[3] = now
end

-- The weight of a group in thousandths, as in the core.
function throughput.weight(g) return floor((1048576000 + floor(g.step / 2)) / g.step) end
-- A flow enters and leaves its order, which knows the weight of its flows.
function throughput.enters(o, g, flow)
  flow.pw = throughput.weight(g)
  o.pw = o.pw + flow.pw
end
function throughput.leaves(o, flow)
  o.pw = o.pw - flow.pw
  flow.pw = nil
end
-- A job of the flow starts; the flow may have no other one.
function throughput.starts(flow)
  throughput.start(flow.m, 1)
  if flow.nr + flow.nt + flow.nf == 0 then throughput.idle(flow.m) end
end
-- A lease call has ended: if it found too few jobs, the limit was what there is to do.
function throughput.leased(queue, count, stop)
  if stop == 'empty' then throughput.idle(queue.m)
  elseif count > 0 then throughput.start(queue.m, count) end
  queue.asked = now
end
-- The run of a job came to nothing.
function throughput.back(queue, flow, started)
  throughput.refund(queue.m, started)
  throughput.refund(flow.m, started)
end
-- A paused group is not slow.
function throughput.rest(g)
  for _, flow in pairs(g.flows) do throughput.idle(flow.m) end
end
-- Delayed jobs of a flow: how many, the sum of their due times in whole seconds, the last one.
function throughput.due(flow, at)
  flow.dn, flow.ds, flow.dl = flow.dn + 1, flow.ds + floor(at / 1000), max(flow.dl, at)
end
function throughput.undue(flow, at)
  flow.dn, flow.ds = max(0, flow.dn - 1), max(0, flow.ds - floor(at / 1000))
  if flow.dn == 0 then flow.ds, flow.dl = 0, 0 end
end
