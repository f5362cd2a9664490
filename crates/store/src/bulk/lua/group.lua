-- Groups, their flows, and the fair order of the flows. One record per group, with its flows inside.
--
-- Shared by every transition: a pick, a settlement and an enqueue change the same counts and the same order, and they
-- must agree within one call.
--
-- A group's limits: g.lr its rate (per second) and g.lm its running jobs over all queues, g.lq both in single queues by
-- name ({ r, m }), g.lt all of them as text, for views.
--
-- A flow is named "<queue>:<priority>" within its group. `pk` and `pt` are its key and turn while it is in the order.
-- The member in the sorted set is "<turn>:<group>", so equal keys go by turn.

local groups, dropped_groups, owner, placed, heaps
resets[#resets + 1] = function() groups, dropped_groups, owner, placed, heaps = {}, {}, {}, {}, {} end

local function order_of(flow) return M.queues[flow.l].o[flow.v] end
-- A number for each queue and priority.
local function place_of(queue, priority) return queue * 4 + priority end
local function member(g, flow) return padded(flow.pt) .. ':' .. int(g.seq) end

-- Brings a flow's tag to the order's current base (see rebase).
local function settle_tag(flow)
  local o = order_of(flow)
  if flow.ep ~= o.ep then
    flow.tag = flow.ep == o.ep - 1 and max(0, flow.tag - o.base) or 0
    flow.ep = o.ep
    if flow.pk and not C.score then flow.pk = flow.tag end
  end
end

local function get_group(seq)
  local g = groups[seq]
  if g then return g end
  local raw = call('HGET', K.group, seq)
  if not raw then return nil end
  g = decode(raw)
  g.seq = seq
  groups[seq] = g
  for _, flow in pairs(g.flows) do
    owner[flow] = g
    if flow.pk then placed[flow] = member(g, flow) end
    settle_tag(flow)
  end
  return g
end
local function find_group(id)
  local seq = call('HGET', K.group_ids, id)
  return seq and get_group(tonumber(seq))
end
local function find_or_create_group(id, base_priority, step)
  local g = find_group(id)
  if g then return g end
  local seq = give_seq()
  g = {
    seq = seq, id = id, bp = base_priority, step = step, paused = false, cr = now, idle = now,
    c = { 0, 0, 0, 0, 0, 0 }, cong = 0, mt = { w = 0, n = 0 }, flows = {}, opens = {}, fin = 0, st = { 0, false, 0, 0, 0 },
  }
  groups[seq] = g
  M.groups = M.groups + 1
  call('HSET', K.group_ids, id, seq)
  call('ZADD', K.group_seqs, seq, seq)
  zput(K.idle, padded(seq), now)
  return g
end
local function clear_stats(g)
  g.st, g.hl, g.ht = { 0, false, 0, 0, 0 }, nil, nil
  call('DEL', names.history(g.seq))
end

local function is_active(g) return g.c[WAITING] + g.c[READY] + g.c[RUNNING] + g.c[DELAYED] > 0 end
-- Starts that this window allows, and the most that any window allows.
function rate.window() return rate.allowed(C.rps, C.window, M.win) end
function rate.widest() return rate.most(C.rps, C.window) end
local function per_group_limit() return max(1, floor(rate.widest() / max(1, M.active + others_active))) end

-- What was charged in the window of a limit, and what later windows still have to pay: the same rule as `limits::meter` of
-- the core. m.n was charged in window m.w, and m.o is owed from there on, if anything. Rates are per second or nil.
local meter = {}
-- What is charged in the current window, and owed beyond it: the windows before have paid what they could, and this one
-- pays its part.
function meter.at(m, rps)
  local n, owed = m.w == M.win and m.n or 0, m.o or 0
  if not rps then return m.w == M.win and n + owed or 0, 0 end
  if owed > 0 then
    if m.w ~= M.win then owed = max(0, owed - rate.between(rps, C.window, m.w + 1, M.win)) end
    local paid = min(owed, max(0, rate.allowed(rps, C.window, M.win) - n))
    n, owed = n + paid, owed - paid
  end
  return n, owed
end
function meter.room(m, rps)
  local n = meter.at(m, rps)
  return max(0, rate.allowed(rps, C.window, M.win) - n)
end
-- Whether something of this cost may start when so much is promised to others. What no window can hold may start in any
-- that has room.
function meter.fits(m, rps, promised, cost)
  local room = meter.room(m, rps) - promised
  return room > 0 and (cost <= room or cost > rate.most(rps, C.window))
end
-- When the first window after this one begins that may have room.
function meter.till(m, rps)
  local _, owed = meter.at(m, rps)
  return rate.next(rps, C.window, M.win + 1 + floor(owed / rate.most(rps, C.window))) * C.window
end
function meter.charge(m, rps, cost)
  local n, owed = meter.at(m, rps)
  local paid = rps and min(cost, max(0, rate.allowed(rps, C.window, M.win) - n)) or cost
  m.w, m.n, owed = M.win, n + paid, owed + cost - paid
  m.o = owed > 0 and owed or nil
end
function meter.refund(m, cost)
  if m.w ~= M.win then return end
  local owed = min(m.o or 0, cost)
  if owed > 0 then m.o = m.o > owed and m.o - owed or nil end
  m.n = max(0, m.n - (cost - owed))
end
-- Groups that are out of the order although they have jobs: g.held is 'P' (paused), until when its rate or share allows
-- nothing (ms), or 'L' (as many of its jobs run as may). Those with a time are in a sorted set, M.held of them.
local held = {}
resets[#resets + 1] = function() held.till = nil end
-- The limit over all queues that keeps the group from starting one more job: until when, 'L', or nil.
function held.why(g, promised)
  local starts = meter.at(g.mt, g.lr) + promised
  if g.lr and starts >= rate.allowed(g.lr, C.window, M.win) then return meter.till(g.mt, g.lr) end
  if C.strict and starts >= per_group_limit() then return window_end() end
  if g.lm and g.c[RUNNING] + promised >= g.lm then return 'L' end
end
function held.set(g, why)
  if type(g.held) == 'number' then
    zdrop(K.held, padded(g.seq))
    M.held = M.held - 1
  end
  g.held = why
  if type(why) == 'number' then
    zput(K.held, padded(g.seq), why)
    M.held = M.held + 1
    held.till = min(held.till or why, why)
  end
end
-- A group's limits as arguments: as text or "" without any, its rate (per second) or "", running jobs or "", the number
-- of queues with limits of their own, and for each: name, rate or "", running jobs or "".
function held.read_limits(g)
  local text = next_arg()
  g.lt, g.lr, g.lm, g.lq = text ~= '' and text or nil, next_number(), next_number(), nil
  for _ = 1, next_number() do
    g.lq = g.lq or {}
    g.lq[next_arg()] = { r = next_number(), m = next_number() }
  end
end
-- When the next group may try again.
function held.next()
  local till = held.till
  if M.held > 0 then
    local first = call('ZRANGEBYSCORE', K.held, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then till = min(till or tonumber(first[2]), tonumber(first[2])) end
  end
  return till
end

-- The part of the order that this call inspects: in-memory heaps by key and turn, filled from the sorted set.
local heap = {}
function heap.before(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end
function heap.push(h, entry)
  local i = #h + 1
  while i > 1 do
    local up = floor(i / 2)
    if not heap.before(entry, h[up]) then break end
    h[i], i = h[up], up
  end
  h[i] = entry
end
-- Replaces the first entry.
function heap.replace(h, entry)
  local n, i = #h, 1
  while true do
    local down = i * 2
    if down > n then break end
    if down < n and heap.before(h[down + 1], h[down]) then down = down + 1 end
    if not heap.before(h[down], entry) then break end
    h[i], i = h[down], down
  end
  h[i] = entry
end
function heap.pop(h)
  local top, last = h[1], table.remove(h)
  if h[1] then heap.replace(h, last) end
  return top
end

local function insert_flow(g, flow)
  settle_tag(flow)
  local o = order_of(flow)
  o.turn, o.len, o.w = o.turn + 1, o.len + 1, o.w + 1048576 / g.step
  throughput.enters(o, g, flow)
  if C.score then
    local waiting = flow.nr + flow.nt + flow.nf
    flow.pk = flow.since + g.bp + floor(C.alpha * min(1, flow.served / max(1, waiting)))
  else
    flow.pk = flow.tag
  end
  flow.pt = o.turn
  local h = heaps[place_of(flow.l, flow.v)]
  if not h then return end
  local top = h[1]
  if top and top[5] == flow then
    -- Usually the flow that has just been served moves back.
    top[1], top[2] = flow.pk, flow.pt
    heap.replace(h, top)
  else
    heap.push(h, { flow.pk, flow.pt, g.seq, g, flow })
  end
end
local function leave_order(flow)
  if flow.pk then
    flow.pk, flow.pt = nil, nil
    local o = order_of(flow)
    o.len = o.len - 1
    throughput.leaves(o, flow)
    o.w = o.len > 0 and max(0, o.w - 1048576 / owner[flow].step) or 0
  end
end
local function flow_len(flow) return flow.nr + flow.nt + flow.nf end
-- A group in a queue: g.pairs by queue, each a meter with run and rdy, its running and ready jobs there, d,
-- what its own downstream sustains if it was ever overloaded, and held, until when its flows are out of the order, or 'L'
-- until one of its leases ends. The held ones of a queue are in a sorted set, queue.hp of them.
local pair = { LONG = 4503599627370496 }
function pair.any(g, index) return g.pairs and g.pairs[tostring(index)] end
-- One whose downstream was overloaded. Those of an older generation are as good as gone: switching adaptive control off
-- begins a new one.
function pair.of(g, index)
  local p = pair.any(g, index)
  if p and p.d and p.gen == M.pairs then return p end
end
-- Without it, nothing would be different.
function pair.is_over(p)
  return p.run == 0 and p.rdy == 0 and not p.held and not (p.d and p.gen == M.pairs) and (p.w ~= M.win or p.n == 0) and not p.o
end
-- Created if needed, in place of those that are over.
function pair.make(g, index)
  local p = pair.any(g, index)
  if p then return p end
  g.pairs = g.pairs or {}
  for k, other in pairs(g.pairs) do
    if pair.is_over(other) then g.pairs[k] = nil end
  end
  p = { run = 0, rdy = 0, w = 0, n = 0 }
  g.pairs[tostring(index)] = p
  return p
end
-- The group's own rate (per second) and running jobs in this queue; where it has none, those of every group in it.
function pair.limit(g, index)
  local name = M.queues[index].n
  local own, each = g.lq and g.lq[name], C.queues[name]
  return own and own.r or each and each.grps, own and own.m or each and each.grun
end
function pair.is_held(g, index)
  local p = pair.any(g, index)
  return p and p.held ~= nil
end

-- Puts a flow into the order if it has jobs, its group is not held and it is not there yet.
local function enter_order(g, flow)
  if flow.pk or g.held or flow_len(flow) == 0 or pair.is_held(g, flow.l) then return end
  settle_tag(flow)
  flow.tag = max(flow.tag, order_of(flow).vt)
  flow.since, flow.served = now, 0
  insert_flow(g, flow)
  notify_work = true
end

-- Keeps tags of flows without unfinished jobs while they are ahead of virtual time.
local function forget_tags(flow)
  local o = order_of(flow)
  if o.rem == 0 then return end
  local key = names.remembered(flow.l, flow.v)
  if o.len == 0 then
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
    if last[2] then o.vt = max(o.vt, tonumber(last[2])) end
    call('DEL', key)
    o.rem = 0
  else
    o.rem = o.rem - call('ZREMRANGEBYSCORE', key, '-inf', o.vt)
  end
end

-- Subtracts virtual time from every tag, so that tags stay exact. Flows not in memory follow at their next read
-- (settle_tag).
local function rebase(flow)
  local o = order_of(flow)
  local base = o.vt
  local function shift(key)
    local all = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    local put = {}
    for i = 1, #all, 2 do
      put[i], put[i + 1] = max(0, tonumber(all[i + 1]) - base), all[i]
    end
    in_parts('ZADD', key, put)
  end
  if not C.score then shift(names.order(flow.l, flow.v)) end
  shift(names.remembered(flow.l, flow.v))
  o.base, o.ep, o.vt = base, o.ep + 1, 0
  for _, g in pairs(groups) do
    for _, other in pairs(g.flows) do
      if other.l == flow.l and other.v == flow.v then settle_tag(other) end
    end
  end
  local h = heaps[place_of(flow.l, flow.v)]
  if h and not C.score then
    for _, entry in ipairs(h) do entry[1] = max(0, entry[1] - base) end
    if h.last then h.last[1] = max(0, h.last[1] - base) end
  end
end

-- Moves a served flow back: virtual time advances, and the flow gets its next tag.
local function reenter_order(g, flow)
  leave_order(flow)
  settle_tag(flow)
  local o = order_of(flow)
  o.vt = max(o.vt, flow.tag)
  flow.tag = flow.tag + g.step
  flow.since, flow.served = now, flow.served + 1
  if o.vt >= TAG_LIMIT - 2 * g.step then rebase(flow) end
  if flow_len(flow) > 0 then insert_flow(g, flow) end
  forget_tags(flow)
end
local function refund_pick(g, flow)
  settle_tag(flow)
  flow.tag = max(0, flow.tag - g.step)
end

-- The first flow in the order of a queue and priority, with its group.
local function first_flow(queue, priority, chunk)
  local h = heaps[place_of(queue, priority)]
  if not h then
    h = { read = 0, whole = false, key = names.order(queue, priority) }
    heaps[place_of(queue, priority)] = h
    -- Flows that entered the order in this call before the heap was created.
    for seq, g in pairs(groups) do
      for _, flow in pairs(g.flows) do
        if flow.l == queue and flow.v == priority and flow.pk and placed[flow] ~= member(g, flow) then
          heap.push(h, { flow.pk, flow.pt, seq })
        end
      end
    end
  end
  while true do
    while not h.whole and (not h[1] or not h.last or heap.before(h.last, h[1])) do
      local got = call('ZRANGE', h.key, h.read, h.read + chunk - 1, 'WITHSCORES')
      for i = 1, #got, 2 do
        local turn, seq = string.match(got[i], '(%d+):(%d+)')
        local entry = { tonumber(got[i + 1]), tonumber(turn), tonumber(seq) }
        heap.push(h, entry)
        h.last = { entry[1], entry[2] }
      end
      h.read = h.read + #got / 2
      if #got / 2 < chunk then h.whole = true end
    end
    local top = h[1]
    if not top then return nil end
    local g, flow = top[4], top[5]
    if not g then
      g = get_group(top[3])
      flow = g and g.flows[queue .. ':' .. priority]
      top[4], top[5] = g, flow
    end
    if flow and flow.pk == top[1] and flow.pt == top[2] then return g, flow end
    heap.pop(h)
  end
end

local function queue_named(name)
  for i, queue in ipairs(M.queues) do
    if queue.n == name then return i, queue end
  end
end
local function queue_for(name)
  local i = queue_named(name)
  if i then return i end
  local order = function() return { vt = 0, turn = 0, len = 0, w = 0, pw = 0, rem = 0, ep = 0, base = 0 } end
  M.queues[#M.queues + 1] = {
    n = name, c = { 0, 0, 0 }, r = 0, mt = { w = 0, n = 0 }, gr = 0, run = 0, un = 0, dl = 0, d = downstream.new(), hp = 0,
    m = throughput.new(), asked = 0,
    o = { order(), order(), order() },
  }
  return #M.queues
end
-- The weight of the groups in a queue's order, in thousandths. Groups held for a time count, too: they return without a
-- signal.
local function standing_weight(queue)
  return floor((queue.o[1].w + queue.o[2].w + queue.o[3].w + M.held) * 1000 + 0.5)
end
local function kind_of(name) return C.kinds[name] or C.kind end

-- The group's flow in this queue and priority; created if needed, with its remembered tag.
local function has_jobs_in(g, queue)
  for _, flow in pairs(g.flows) do
    if flow.l == queue then return true end
  end
  return false
end
local function flow_for(g, queue, priority)
  local k = queue .. ':' .. priority
  local flow = g.flows[k]
  if flow then return flow end
  if not has_jobs_in(g, queue) then M.queues[queue].gr = M.queues[queue].gr + 1 end
  flow = { k = k, l = queue, v = priority, tag = 0, since = 0, served = 0, un = 0, nr = 0, nt = 0, nf = 0,
    dn = 0, ds = 0, dl = 0, m = throughput.new() }
  local o = M.queues[queue].o[priority]
  flow.ep = o.ep
  if o.rem > 0 then
    local tag = call('ZSCORE', names.remembered(queue, priority), g.seq)
    if tag then
      flow.tag, o.rem = tonumber(tag), o.rem - 1
      call('ZREM', names.remembered(queue, priority), g.seq)
    end
  end
  g.flows[k], owner[flow] = flow, g
  M.flows = M.flows + 1
  return flow
end
local function drop_lists(g, flow)
  for _, name in ipairs({ 'r', 't', 'f' }) do
    local key = names.flow(g.seq, flow.k, name)
    lists[key] = nil
    call('DEL', key)
  end
  flow.stale = nil
end
local function flow_gains(flow, n)
  flow.un = flow.un + n
  local queue = M.queues[flow.l]
  queue.un = queue.un + n
end
local function flow_loses(g, flow)
  flow_gains(flow, -1)
  if flow.un > 0 then return end
  leave_order(flow)
  settle_tag(flow)
  if placed[flow] then zdrop(names.order(flow.l, flow.v), placed[flow]) placed[flow] = nil end
  drop_lists(g, flow)
  g.flows[flow.k] = nil
  if not has_jobs_in(g, flow.l) then M.queues[flow.l].gr = M.queues[flow.l].gr - 1 end
  M.flows = M.flows - 1
  local o = order_of(flow)
  if flow.tag > o.vt then
    o.rem = o.rem + call('ZADD', names.remembered(flow.l, flow.v), flow.tag, g.seq)
  end
  forget_tags(flow)
end

-- Takes all flows of the group out of the order.
local function hold(g, why)
  for _, flow in pairs(g.flows) do leave_order(flow) end
  held.set(g, why)
end
local function unhold(g)
  held.set(g, g.paused and 'P' or nil)
  if not g.held then
    for _, flow in pairs(g.flows) do enter_order(g, flow) end
  end
end

-- What keeps the group from starting its next job in this queue: until when, 'L', or nil. With `promised`, its ready jobs
-- there start first.
function pair.why(g, index, promised)
  local p = pair.any(g, index)
  local ready = promised and p and p.rdy or 0
  local rps, most = pair.limit(g, index)
  local m = p or { w = 0, n = 0 }
  if rps and meter.at(m, rps) + ready >= rate.allowed(rps, C.window, M.win) then return meter.till(m, rps) end
  if most and (p and p.run or 0) + ready >= most then return 'L' end
  p = pair.of(g, index)
  if not p then return nil end
  local settings = C.queues[M.queues[index].n]
  downstream.advance(p.d, settings and settings.rps or C.rps)
  if downstream.room(p.d) > 0 then return nil end
  return downstream.next_start(p.d)
end
-- Takes the group's flows in this queue out of the order.
resets[#resets + 1] = function() pair.till = {} end
function pair.hold(g, index, till)
  for _, flow in pairs(g.flows) do
    if flow.l == index then leave_order(flow) end
  end
  local p = pair.make(g, index)
  if not p.held then M.queues[index].hp = M.queues[index].hp + 1 end
  p.held = till
  if till == 'L' then
    zput(names.pairs(index), padded(g.seq), pair.LONG)
    return
  end
  pair.till[index] = min(pair.till[index] or till, till)
  zput(names.pairs(index), padded(g.seq), till)
  notify_timer = true
end
function pair.unhold(g, index)
  local p = pair.any(g, index)
  if not p or not p.held then return end
  p.held = nil
  M.queues[index].hp = M.queues[index].hp - 1
  zdrop(names.pairs(index), padded(g.seq))
  for _, flow in pairs(g.flows) do
    if flow.l == index then enter_order(g, flow) end
  end
end
-- Puts groups back that may try again; at most a thousand of each queue.
function pair.unhold_due()
  for index, queue in ipairs(M.queues) do
    if queue.hp > 0 then
      local due = call('ZRANGEBYSCORE', names.pairs(index), '-inf', now, 'LIMIT', 0, 1000)
      for _, text in ipairs(due) do
        local g = get_group(tonumber(text))
        if g and pair.is_held(g, index) then pair.unhold(g, index)
        else
          queue.hp = queue.hp - 1
          zdrop(names.pairs(index), text)
        end
      end
    end
  end
end
-- Puts the groups of a queue back, because their limits have changed: the next pick holds those again that are still at
-- theirs. At most a thousand at once, the others when they would have come.
function pair.release(index)
  if M.queues[index].hp == 0 then return end
  for _, text in ipairs(call('ZRANGE', names.pairs(index), 0, 999)) do
    local g = get_group(tonumber(text))
    if g then pair.unhold(g, index) end
  end
end
-- Nobody follows a downstream any more: groups go on as if none had ever been overloaded.
function pair.forget()
  M.pairs = M.pairs + 1
  for index in ipairs(M.queues) do pair.release(index) end
end
-- Puts the group back in all queues, or in those where it is held for its running jobs.
function pair.unhold_all(g, running_only)
  if not g.pairs then return end
  for index in ipairs(M.queues) do
    local p = pair.any(g, index)
    if p and p.held and (not running_only or p.held == 'L') then pair.unhold(g, index) end
  end
end
-- When the next group may try again in this queue.
function pair.next(index)
  local till = pair.till[index]
  if M.queues[index].hp > 0 then
    local first = call('ZRANGEBYSCORE', names.pairs(index), '(' .. int(now), '(' .. int(pair.LONG), 'WITHSCORES', 'LIMIT', 0, 1)
    if first[2] then till = min(till or tonumber(first[2]), tonumber(first[2])) end
  end
  return till
end
-- Changes what is known of the group's downstream, if it was ever overloaded.
function pair.change(g, index, change, started)
  local p = pair.of(g, index)
  if not p then return end
  local probing = p.d.hold == 2
  change(p.d, started)
  local free = downstream.is_free(p.d)
  local let_go = free or (probing and p.d.hold ~= 2)
  if free then p.d, p.gen = nil, nil end
  if let_go then pair.unhold(g, index) end
end
-- The group's own downstream is overloaded: it alone slows down.
function pair.overloaded(g, index, started, after, guess)
  local p = pair.make(g, index)
  if p.gen ~= M.pairs then
    if p.gen then pair.unhold(g, index) end
    p.d, p.gen = downstream.new(), M.pairs
  end
  downstream.overloaded(p.d, started, after, guess)
end

-- Puts back groups that are held until `till` at the latest; at most a thousand.
function held.release(till)
  if M.held == 0 then return end
  for _, text in ipairs(call('ZRANGEBYSCORE', K.held, '-inf', till, 'LIMIT', 0, 1000)) do
    local g = get_group(tonumber(text))
    if g then unhold(g) end
  end
end
-- Puts back groups that may try again.
function held.release_due()
  pair.unhold_due()
  held.release(int(now))
end
-- The limit of its own that keeps the group from starting one more job in this queue: over all queues, or in this one.
-- With `promised`, its ready jobs start first.
function held.blocked(g, index, promised)
  local everywhere = held.why(g, promised and g.c[READY] or 0)
  if everywhere then return everywhere, nil end
  return nil, pair.why(g, index, promised)
end

-- Counts a job's transition from one state to another.
local function shift(g, from, to)
  local was = is_active(g)
  if from then
    g.c[from], M.c[from] = g.c[from] - 1, M.c[from] - 1
  end
  if to then
    g.c[to], M.c[to] = g.c[to] + 1, M.c[to] + 1
  end
  local is = is_active(g)
  if is and not was then
    M.active, M.w = M.active + 1, M.w + 1048576 / g.step
    zdrop(K.idle, padded(g.seq))
  elseif was and not is then
    M.active = M.active - 1
    M.w = M.active > 0 and max(0, M.w - 1048576 / g.step) or 0
    g.idle = now
    zput(K.idle, padded(g.seq), now)
  end
  -- A ready job that does not start frees its place for the next one.
  if from == READY and to ~= RUNNING then
    if g.held == 'L' then unhold(g) end
    pair.unhold_all(g, true)
  end
end

local function write_groups()
  local put = {}
  for seq, g in pairs(groups) do
    if not dropped_groups[seq] then
      for _, flow in pairs(g.flows) do
        local was, is = placed[flow], flow.pk and member(g, flow)
        if was ~= is then
          local key = names.order(flow.l, flow.v)
          if was then zdrop(key, was) end
          if is then zput(key, is, flow.pk) end
        end
      end
      g.seq = nil
      put[#put + 1] = seq
      put[#put + 1] = encode(g)
      g.seq = seq
    end
  end
  in_parts('HSET', K.group, put)
end
