-- Groups, their flows, and the fair order of the flows. One record per group, with its flows inside.
--
-- Shared by every transition: a pick, a settlement and an enqueue change the same counts and the same order, and they
-- must agree within one call.
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
    c = { 0, 0, 0, 0, 0, 0 }, cong = 0, sw = 0, sn = 0, flows = {}, opens = {}, fin = 0, st = { 0, false, 0, 0, 0 },
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
local function started_in(g, window) return g.sw == window and g.sn or 0 end
-- Starts that this window allows, and the most that any window allows.
function rate.window() return rate.allowed(C.rps, C.window, M.win) end
function rate.widest() return rate.most(C.rps, C.window) end
local function per_group_limit() return max(1, floor(rate.widest() / max(1, M.active + others_active))) end

-- The ceiling that keeps the group from starting one more job: a window's number, 'L', or nil.
local function at_ceiling(g, promised)
  local starts = started_in(g, M.win) + promised
  if (C.strict and starts >= per_group_limit()) or (g.cw and starts >= g.cw) then return M.win end
  if g.cl and g.c[RUNNING] + promised >= g.cl then return 'L' end
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
-- A group in a queue whose downstream limits each group on its own: g.pairs by queue, each with d, its downstream, and
-- held, until when its flows are out of the order. The held ones of a queue are in a sorted set, queue.hp of them.
local pair = {}
-- Those of an older generation are as good as gone: switching adaptive control off begins a new one.
function pair.any(g, index) return g.pairs and g.pairs[tostring(index)] end
function pair.of(g, index)
  local p = pair.any(g, index)
  if p and p.gen == M.pairs then return p end
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
    n = name, c = { 0, 0, 0 }, r = 0, s = 0, gr = 0, run = 0, d = downstream.new(), hp = 0,
    m = throughput.new(), asked = 0,
    o = { order(), order(), order() },
  }
  return #M.queues
end
-- The weight of the groups in a queue's order, in thousandths. Groups held until the window turns count, too: they
-- return without a signal.
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
local function flow_loses(g, flow)
  flow.un = flow.un - 1
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
  g.held = why
  if type(why) == 'number' then
    push(K.held, int(why) .. ':' .. int(g.seq))
    M.held = M.held + 1
  end
end
local function unhold(g)
  g.held = g.paused and 'P' or nil
  if not g.held then
    for _, flow in pairs(g.flows) do enter_order(g, flow) end
  end
end

-- When the group may start its next job in this queue, if its own downstream keeps it from that now.
function pair.wait(g, index)
  local p = pair.of(g, index)
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
  local p = pair.of(g, index)
  if not p.held then M.queues[index].hp = M.queues[index].hp + 1 end
  p.held = till
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
-- Nobody follows a downstream any more: groups go on as if none had ever been overloaded; at most a thousand of each
-- queue at once, the others when they would try again.
function pair.forget()
  M.pairs = M.pairs + 1
  for index, queue in ipairs(M.queues) do
    if queue.hp > 0 then
      for _, text in ipairs(call('ZRANGE', names.pairs(index), 0, 999)) do
        local g = get_group(tonumber(text))
        if g then pair.unhold(g, index) end
      end
    end
  end
end
-- When the next group may try again in this queue.
function pair.next(index)
  local till = pair.till[index]
  if M.queues[index].hp > 0 then
    local first = call('ZRANGEBYSCORE', names.pairs(index), '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
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
  if free or (probing and p.d.hold ~= 2) then pair.unhold(g, index) end
  if free then g.pairs[tostring(index)] = nil end
end
-- The group's own downstream is overloaded: it alone slows down.
function pair.overloaded(g, index, started, after, guess)
  g.pairs = g.pairs or {}
  local p = pair.of(g, index)
  if not p then
    pair.unhold(g, index)
    p = { d = downstream.new(), gen = M.pairs }
    g.pairs[tostring(index)] = p
  end
  downstream.overloaded(p.d, started, after, guess)
end

-- Puts back groups whose window has turned, or that were held in one before `turn`; at most a thousand.
local function unhold_turned(turn)
  if not turn then pair.unhold_due() end
  if M.held == 0 then return end
  local l = list(K.held)
  for _ = 1, 1000 do
    local entry = head(l, 100)
    if not entry then return end
    local window, seq = string.match(entry, '(%d+):(%d+)')
    window = tonumber(window)
    if window >= (turn or M.win) then return end
    pop(l)
    M.held = M.held - 1
    local g = get_group(tonumber(seq))
    if g and g.held == window then unhold(g) end
  end
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
  if from == READY and to ~= RUNNING and g.held == 'L' then unhold(g) end
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
