-- bulk enqueue: accepts each job exactly once, into a batch that is open. Atomic, so that a repeated call finds the
-- jobs of the first one, and no job enters a batch after its seal.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, base priority, its step, batch or "", number of types, types…, then for each job:
--   id, flags (priority + 4 with run_at + 8 with expires_at + 16 with a cost + 32 if the payload is too large, 64 if the cost
--   is impossible, + 128 x type), packed job
-- RETURNS  facts, then ok, batch, jobs of the batch and for each: its number (accepted), minus its number
--   (duplicate; 0 if it is no longer kept), or large, cost, full, crowded, expired or unknown; or cancelled or sealed with the batch
-- BOUND  the caller's jobs, and as many jobs that they replace

local group_id, base_priority, step, batch_id = next_arg(), next_number(), next_number(), next_arg()
local kinds = {}
for i = 1, next_number() do kinds[i] = next_arg() end
local count = (#ARGV - arg) / 3
local first = arg

-- The batches of jobs that are known but dropped.
local dropped_from = {}
local function known_ids(g)
  local found = {}
  for from = 1, count, 4000 do
    local ids = {}
    for i = from, min(count, from + 3999) do ids[#ids + 1] = ARGV[first + i * 3 - 2] end
    local got = call('HMGET', names.ids(int(g.seq)), unpack(ids))
    for i = 1, #ids do found[from + i - 1] = got[i] end
    -- Jobs that retention dropped before their batch was decided.
    for _, a in ipairs(g.remembering or {}) do
      local of_batch = call('SMISMEMBER', names.dropped(int(a)), unpack(ids))
      for i = 1, #ids do
        if of_batch[i] == 1 and not found[from + i - 1] then
          found[from + i - 1], dropped_from[from + i - 1] = '0', a
        end
      end
    end
  end
  return found
end

local g = find_group(group_id)
local a
if g then
  if batch_id ~= '' then a = find_batch(g, batch_id)
  elseif g.opens[1] then a = get_batch(g.opens[#g.opens]) end
end
if a and (a.cancelled or a.sealed) then
  -- A client that lost the response sends the same call again, perhaps after sealing.
  local found = count > 0 and known_ids(g) or {}
  local answers, all = {}, count > 0
  for i = 1, count do
    if not found[i] then all = false break end
    answers[i] = -tonumber(found[i])
  end
  if not all then return { nothing(), a.cancelled and 'cancelled' or 'sealed', a.id } end
  local of = get_batch(dropped_from[1] or get_job(-answers[1]).a)
  return { nothing(), 'ok', of.id, of.c[1], answers }
end

g = g or find_or_create_group(group_id, base_priority, step)
if not a then
  local implicit = batch_id == ''
  if implicit then
    batch_id = 'auto-' .. int(M.seq)
    -- The name may be taken.
    while find_batch(g, batch_id) do batch_id = batch_id .. '-' end
  end
  a = create_batch(g, batch_id, 100, false, implicit)
end
local again = retried and g.rq == request and g.rs
g.rq, g.rs = request, M.seq
local found, seen = known_ids(g), {}
-- The id of a cancelled job is free again, unless its batch may still need it.
local known_seqs = {}
for i = 1, count do
  local seq = found[i] and tonumber(found[i])
  if seq and seq > 0 then known_seqs[#known_seqs + 1] = seq end
end
load_jobs(known_seqs)
local function comes_again(seq)
  local J = seq > 0 and get_job(seq)
  if not J or J.state ~= DEAD or J.death ~= DIED.CANCELLED then return nil end
  local of = get_batch(J.a)
  return (of.status > BATCH.AGGREGATING or (of.cancelled and not of.keep)) and J
end
local answers, put, ids, fresh = {}, {}, {}, {}
local created, accepted = struct.pack('>I5I6', a.seq, now), 0
local waiting, delayed, of_flow = 0, 0, {}
-- Queue and flows by type and priority, looked up once.
local homes = {}
local function home_of(name, priority)
  local home = homes[name] and homes[name][priority]
  if not home then
    local queue = queue_for(kind_of(name).queue)
    home = { flow = flow_for(g, queue, priority), before = created .. struct.pack('>I2', queue) }
    homes[name] = homes[name] or {}
    homes[name][priority] = home
  end
  return home
end
local of_group = g.c[WAITING] + g.c[READY] + g.c[RUNNING] + g.c[DELAYED]
local queued = others_unfinished + M.c[WAITING] + M.c[READY] + M.c[RUNNING] + M.c[DELAYED]
for i = 1, count do
  local id, flags, tail = ARGV[first + i * 3 - 2], tonumber(ARGV[first + i * 3 - 1]), ARGV[first + i * 3]
  local known = found[i] or seen[id]
  local before = not seen[id] and found[i] and comes_again(tonumber(found[i]))
  if before then known = nil end
  local run, exp
  if flags % 16 >= 4 then
    local pos = 6
    if floor(flags / 4) % 2 == 1 then run, pos = struct.unpack('>I7', tail, pos) end
    if floor(flags / 8) % 2 == 1 then exp = struct.unpack('>I7', tail, pos) end
  end
  local name = kinds[floor(flags / 128) + 1]
  if known then
    known = tonumber(known)
    answers[i] = again and known >= again and known or -known
  elseif floor(flags / 32) % 2 == 1 then answers[i] = 'large'
  elseif floor(flags / 64) % 2 == 1 then answers[i] = 'cost'
  elseif queued + accepted >= C.queued then answers[i] = 'full'
  elseif of_group + accepted >= C.queued_group then answers[i] = 'crowded'
  elseif exp and exp <= max(now, run or now) then answers[i] = 'expired'
  elseif C.known_only and not C.kinds[name] then answers[i] = 'unknown'
  else
    if before then drop_job(before) end
    local seq = give_seq()
    local home = home_of(name, flags % 4 + 1)
    local flow = home.flow
    flow_gains(flow, 1)
    accepted = accepted + 1
    answers[i], seen[id] = seq, seq
    put[accepted * 2 - 1], put[accepted * 2] = seq, home.before .. tail
    ids[accepted * 2 - 1], ids[accepted * 2] = id, seq
    if exp then
      zput(K.expiring, padded(seq), exp)
      notify_timer = true
    end
    if run and run > now then
      delayed = delayed + 1
      M.queues[flow.l].dl = M.queues[flow.l].dl + 1
      zput(K.delayed, padded(seq), run)
      throughput.due(flow, run)
      call('HSET', K.state, seq, struct.pack(STATE, DELAYED, NOWHERE, 0, 0, 0, 0, run, DELAY.SCHEDULED, 0, 0, 0)
        .. runs.none)
      notify_timer = true
    else
      waiting = waiting + 1
      flow.nf = flow.nf + 1
      local entries = of_flow[flow.k]
      if not entries then entries = {} of_flow[flow.k] = entries end
      entries[#entries + 1] = seq
    end
  end
end
write_dropped()
if accepted > 0 then
  add_run(a, M.seq - accepted, accepted)
  a.c[1], a.un, a.kept = a.c[1] + accepted, a.un + accepted, a.kept + accepted
  local function gain(state, n)
    if n == 0 then return end
    shift(g, nil, state)
    g.c[state], M.c[state] = g.c[state] + n - 1, M.c[state] + n - 1
  end
  gain(WAITING, waiting)
  gain(DELAYED, delayed)
  in_parts('HSET', K.job, put)
  in_parts('HSET', names.ids(int(g.seq)), ids)
  for k, entries in pairs(of_flow) do in_parts('RPUSH', names.flow(int(g.seq), k, 'f'), entries) end
end
for _, flow in pairs(g.flows) do enter_order(g, flow) end
return { flush(), 'ok', a.id, a.c[1], answers }
