-- What estimates are made of: how fast a group gets on in each of its queues. Shared by the read-only views; the core
-- decides.

-- The queues that the reply needs, once each.
local paces, seen = {}, {}
local function exact(n) return n and string.format('%.17g', n) or '' end
local function standing_of(index, v)
  local out = {}
  for i, text in ipairs(call('ZRANGE', names.order(index, v), 0, 63)) do
    local g = get_group(tonumber(string.match(text, ':(%d+)')))
    local flow = g.flows[index .. ':' .. v]
    out[i * 2 - 1], out[i * 2] = flow.pw, flow_len(flow)
  end
  return out
end
local function add_pace(index)
  if seen[index] then return end
  seen[index] = true
  local queue = M.queues[index]
  local own, sustained, d = configured(queue), downstream.rate(queue.d), queue.d
  paces[#paces + 1] = { index, exact(min(own, C.rps)), own ~= C.rps and 1 or 0, exact(sustained), queue.run,
    floor(d.round_trip), queue.asked, d.hold == 1 and floor(d.hold_at) or -1, C.normal_min, C.low_min,
    { queue.o[1].pw, queue.o[2].pw, queue.o[3].pw },
    { standing_of(index, 1), standing_of(index, 2), standing_of(index, 3) }, queue.m }
end
-- The group's own part: its weight, running jobs, limit (starts per second or "", running jobs or -1) and flows, each with
-- its limit in the queue.
local function group_pace(g)
  local flows = {}
  for _, flow in pairs(g.flows) do
    add_pace(flow.l)
    local p = pair.of(g, flow.l)
    local sustained = p and downstream.rate(p.d)
    local rps, most = pair.limit(g, flow.l)
    flows[#flows + 1] = { flow.l, flow.v, flow.un, flow_len(flow), flow.dn, flow.ds, flow.dl, flow.pk and 1 or 0,
      exact(sustained), exact(rps), most or -1, flow.m }
  end
  return { throughput.weight(g), g.c[RUNNING], g.paused and 1 or 0, exact(g.lr), g.lm or -1, flows }
end
-- A batch and those before it: the numbers that they and their last jobs got, and their unfinished jobs.
local function batches_before(g, a)
  local last = a.rf and a.rf + a.rn - 1 or 0
  local out = { last }
  for _, text in ipairs(call('ZREVRANGEBYSCORE', names.batches(int(g.seq)), last, '-inf', 'LIMIT', 0, 100)) do
    local b = get_batch(tonumber(text))
    out[#out + 1] = b.seq
    out[#out + 1] = b.rf and b.rf + b.rn - 1 or 0
    out[#out + 1] = b.un
  end
  return out
end
