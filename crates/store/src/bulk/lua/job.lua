-- Jobs: their records, the lists that name them, and their transitions between states.
--
-- `job` holds the immutable part: batch, creation, queue, then as the client packed it: flags (priority, run_at,
-- expires_at, cost), lengths, times, cost, id, type, payload. `job:state` holds the mutable part; a job without a state waits for
-- its first start.
--
-- Lists name jobs by "<number>" or "<number>:<n>". Taking a job out of the middle of a list raises its n, so that the
-- entry left behind is recognised as stale when it reaches the head.

local NOWHERE, RETURNED, THROTTLED, FRESH, PARKED, IN_READY, FINISHED = 0, 1, 2, 3, 4, 5, 6
local BLOB = '>I5I6I2BI2I2'
-- The defaults of a job without a state, and Lua libraries, which are not available while functions are loaded.
local UNTOUCHED, unpack_blob, cut, last_lease
local jobs, dropped_jobs
resets[#resets + 1] = function()
  jobs, dropped_jobs, unpack_blob, cut, last_lease = {}, {}, struct.unpack, string.sub, {}
  UNTOUCHED = { __index = {
    state = WAITING, sp = FRESH, n = 0, att = 0, thr = 0, fence = 0, at = now, delay = DELAY.SCHEDULED, death = DIED.FAILED,
    lifted = false, doomed = false, pz = 0, text = '', started = 0, owner = '', progress = '', cost = 1,
  } }
end

local function read_job(seq, blob)
  local a, _, queue, flags, idlen, kindlen, pos = unpack_blob(BLOB, blob)
  local exp, cost
  if flags >= 4 then
    if floor(flags / 4) % 2 == 1 then pos = pos + 7 end
    if floor(flags / 8) % 2 == 1 then exp, pos = unpack_blob('>I7', blob, pos) end
    if flags >= 16 then cost, pos = unpack_blob('>I4', blob, pos) end
  end
  -- Preallocates the fields that a start will set.
  return setmetatable({
    seq = seq, a = a, queue = queue, v = flags % 4 + 1, blob = blob, exp = exp, cost = cost,
    kind = cut(blob, pos + idlen, pos + idlen + kindlen - 1),
    ph = nil, sp = nil, fence = nil, at = nil, dirty = nil, started = nil, owner = nil, progress = nil, req = nil, row = nil,
  }, UNTOUCHED)
end
local function job_id(J)
  local _, _, _, flags, idlen, _, pos = unpack_blob(BLOB, J.blob)
  if floor(flags / 4) % 2 == 1 then pos = pos + 7 end
  if floor(flags / 8) % 2 == 1 then pos = pos + 7 end
  if flags >= 16 then pos = pos + 4 end
  return cut(J.blob, pos, pos + idlen - 1)
end

local STATE = '>BBI2I2I2I7I7BBBI2'
-- Of a running job: started, expires, batch, queue, priority, cost, lengths of type, owner and progress, which follow; then the
-- request that leased it.
local LEASE = '>I7I7I5I2BI4I2I2I2'
-- Runs: those that did not complete their job are recorded, see below. The state of a job that does not run begins, behind
-- its fixed part, with the run that completed it: when it began or 0, the length of its worker, which follows.
local runs = { COMPLETING = '>I7I2', FAILED = 1, RETRY = 2, THROTTLED = 3, LEASE_EXPIRED = 4 }
resets[#resets + 1] = function()
  runs.read, runs.changed, runs.none = {}, {}, struct.pack(runs.COMPLETING, 0, 0)
end
local function read_state(J, raw)
  local lifted, pos
  J.state, J.sp, J.n, J.att, J.thr, J.fence, J.at, J.delay, J.death, lifted, J.pz, pos = struct.unpack(STATE, raw)
  J.lifted, J.doomed = lifted % 2 == 1, lifted >= 2
  if J.state == RUNNING then
    local kindlen, ownerlen, progresslen
    J.started, J.exp, J.a, J.queue, J.v, J.cost, kindlen, ownerlen, progresslen, pos = struct.unpack(LEASE, raw, pos)
    if J.exp == 0 then J.exp = nil end
    -- A plain start does not repeat the type if no type has settings.
    if kindlen > 0 or not J.kind then J.kind = string.sub(raw, pos, pos + kindlen - 1) end
    J.owner = string.sub(raw, pos + kindlen, pos + kindlen + ownerlen - 1)
    J.progress = string.sub(raw, pos + kindlen + ownerlen, pos + kindlen + ownerlen + progresslen - 1)
    J.req = string.sub(raw, pos + kindlen + ownerlen + progresslen)
  else
    local ownerlen
    J.started, ownerlen, pos = struct.unpack(runs.COMPLETING, raw, pos)
    J.owner = string.sub(raw, pos, pos + ownerlen - 1)
    J.text = string.sub(raw, pos + ownerlen)
  end
  return J
end
local function state_of(J)
  local state = struct.pack(STATE, J.state, J.sp, J.n, J.att, J.thr, J.fence, J.at, J.delay, J.death,
    (J.lifted and 1 or 0) + (J.doomed and 2 or 0), J.pz)
  if J.state == COMPLETED then return state .. struct.pack(runs.COMPLETING, J.started, #J.owner) .. J.owner .. J.text end
  if J.state ~= RUNNING then return state .. runs.none .. J.text end
  -- The same for all leases of one call and batch.
  local last = last_lease
  if J.progress == '' and last.a == J.a and last.req == J.req and last.kind == J.kind and last.v == J.v and last.cost == J.cost
    and not J.exp and last.queue == J.queue and last.started == J.started then
    return state .. last.text
  end
  local text = struct.pack(LEASE, J.started, J.exp or 0, J.a, J.queue, J.v, J.cost, #J.kind, #J.owner, #J.progress) .. J.kind .. J.owner
    .. J.progress .. J.req
  if not J.exp and J.progress == '' then
    last.a, last.req, last.kind, last.v, last.queue, last.started, last.text = J.a, J.req, J.kind, J.v, J.queue, J.started, text
    last.cost = J.cost
  end
  return state .. text
end

-- Reads the jobs that are not in memory yet. `fresh`: none of them can have a state.
local function load_jobs(seqs, fresh)
  local missing = {}
  for _, seq in ipairs(seqs) do
    if jobs[seq] == nil then missing[#missing + 1] = seq end
  end
  for from = 1, #missing, 4000 do
    local to = min(from + 3999, #missing)
    local blobs = call('HMGET', K.job, unpack(missing, from, to))
    local states = not fresh and call('HMGET', K.state, unpack(missing, from, to))
    for i = from, to do
      local blob, seq = blobs[i - from + 1], missing[i]
      jobs[seq] = blob and read_job(seq, blob) or false
      local state = blob and states and states[i - from + 1]
      if state then read_state(jobs[seq], state) end
    end
  end
end
local function get_job(seq)
  if jobs[seq] == nil then load_jobs({ seq }) end
  return jobs[seq]
end
local function entry(J) return J.n == 0 and int(J.seq) or int(J.seq) .. ':' .. J.n end
local function parse(text)
  local seq = tonumber(text)
  if seq then return seq, 0 end
  local n
  seq, n = string.match(text, '(%d+):(%d+)')
  return tonumber(seq), tonumber(n)
end
-- The job that an entry of a list names; nil if the entry is stale.
local function job_at(text)
  local seq, n = parse(text)
  local J = get_job(seq)
  return J and J.n == n and J or nil
end
local function load_entries(entries, fresh)
  local seqs = {}
  for i, text in ipairs(entries) do seqs[i] = parse(text) end
  load_jobs(seqs, fresh)
end

local function home(J)
  local a = get_batch(J.a)
  local g = get_group(a.g)
  return a, g, g.flows[J.queue .. ':' .. J.v]
end
-- The list that a job is in. Resuming a batch moves its parked jobs all at once, without touching each.
local function spot(J, a)
  if J.sp == PARKED and not (a.paused and a.pz == J.pz) then return RETURNED end
  return J.sp
end
local function one_less(g, flow, sp)
  if sp == RETURNED then flow.nr = flow.nr - 1
  elseif sp == THROTTLED then flow.nt = flow.nt - 1
  elseif sp == FRESH then flow.nf = flow.nf - 1
  elseif sp == IN_READY then
    local queue = M.queues[flow.l]
    queue.r, M.ready = queue.r - 1, M.ready - 1
    local p = pair.any(g, flow.l)
    p.rdy = p.rdy - 1
  end
  if flow_len(flow) == 0 then
    leave_order(flow)
    if flow.stale then drop_lists(g, flow) end
  end
end
-- Takes a job out of whatever holds it; its state stays. A list keeps a stale entry.
local function detach(J)
  local a, g, flow = home(J)
  local sp = spot(J, a)
  if sp == PARKED then
    changed_batches[a.seq] = true
    for _, parked in ipairs(a.parked) do
      if parked.k == flow.k then parked.n = parked.n - 1 end
    end
  elseif sp == NOWHERE and J.state == DELAYED then
    zdrop(K.delayed, padded(J.seq))
    throughput.undue(flow, J.at)
  end
  if sp ~= NOWHERE then
    J.n = (J.n + 1) % 65536
    flow.stale = true
  end
  J.sp, J.dirty = NOWHERE, true
  one_less(g, flow, sp)
end

-- Whether the job, or its batch, was cancelled since the job was accepted or replayed: it must not start again.
local function is_cancelled(J, a) return J.doomed or (a.cancelled and J.fence < a.xf) end
-- Dead jobs by the time of their death; J.at is that time.
local function dead_entry(J) return padded(J.at) .. padded(J.seq) end

-- Counts a job as waiting, whatever it was before.
local function set_waiting(g, J)
  if J.state == WAITING then return end
  local from = J.state
  if from == DELAYED then
    uncongest(g, J.delay)
    M.queues[J.queue].dl = M.queues[J.queue].dl - 1
  end
  J.state, J.dirty = WAITING, true
  shift(g, from, WAITING)
end
-- Delays a job that was running.
local function delay(g, J, due, reason)
  J.state, J.delay, J.at, J.dirty, J.sp, J.text = DELAYED, reason, due, true, NOWHERE, ''
  zput(K.delayed, padded(J.seq), due)
  M.queues[J.queue].dl = M.queues[J.queue].dl + 1
  throughput.due(g.flows[J.queue .. ':' .. J.v], due)
  congest(g)
  shift(g, RUNNING, DELAYED)
  notify_timer = true
end

-- Adds an entry of a job that has ended to the finished ones of its group.
local function keep_finished(g, text, at)
  if g.fin == 0 then zput(K.finished, padded(g.seq), at) end
  push(names.finished(int(g.seq)), text)
  g.fin, M.fin = g.fin + 1, M.fin + 1
  if g.fin > C.jobs_max_group then zput(K.crowded, padded(g.seq), g.seq) end
end
-- Takes one of the finished jobs of the group; its entry in the list is stale from here on.
local function take_finished(g)
  g.fin, M.fin = g.fin - 1, M.fin - 1
  if g.fin <= C.jobs_max_group then zdrop(K.crowded, padded(g.seq)) end
  if g.fin == 0 then
    zdrop(K.finished, padded(g.seq))
    local key = names.finished(int(g.seq))
    lists[key] = nil
    call('DEL', key)
  end
end

-- Counts a detached job as finished.
local function finish(J, state, text)
  local a, g, flow = home(J)
  changed_batches[a.seq] = true
  if J.state == DELAYED then set_waiting(g, J) end
  if J.exp and not J.lifted then zdrop(K.expiring, padded(J.seq)) end
  local from = J.state
  J.state, J.at, J.lifted, J.doomed, J.dirty, J.text, J.sp = state, now, true, false, true, text, NOWHERE
  shift(g, from, state)
  flow_loses(g, flow)
  a.un = a.un - 1
  -- If the batch keeps its results, its jobs are deleted together with it.
  if not a.keep then
    J.sp = FINISHED
    keep_finished(g, entry(J), now)
  end
  return a, g
end
-- Ends a detached job without success; returns true if that completed its batch.
local function die(J, reason, text)
  if text == '' then text = DIED[reason] end
  J.death = reason
  local a = finish(J, DEAD, text)
  zput(K.dead, dead_entry(J), 0)
  if is_open(a) then
    a.c[3] = a.c[3] + 1
    if reason ~= DIED.CANCELLED then keep_error(a, text) end
  end
  return complete_if_done(a)
end
-- The records of the runs of a job that did not complete it, the latest ten: number, began or 0, ended, how, length of the
-- worker's name and of the error, which follow.
function runs.load(seqs)
  local missing = {}
  for _, seq in ipairs(seqs) do
    if runs.read[seq] == nil then missing[#missing + 1] = seq end
  end
  for from = 1, #missing, 4000 do
    local to = min(from + 3999, #missing)
    local got = call('HMGET', K.runs, unpack(missing, from, to))
    for i = from, to do runs.read[missing[i]] = got[i - from + 1] or '' end
  end
end
function runs.of(J)
  runs.load({ J.seq })
  return runs.read[J.seq]
end
function runs.record(J, ended_as, text)
  local raw, starts, number, pos = runs.of(J), {}, 0, 1
  while pos <= #raw do
    starts[#starts + 1] = pos
    local _, ownerlen, textlen
    number, _, _, _, ownerlen, textlen, pos = struct.unpack('>I4I7I7BI2I2', raw, pos)
    pos = pos + ownerlen + textlen
  end
  if #starts >= 10 then raw = string.sub(raw, starts[#starts - 8]) end
  local head = struct.pack('>I4I7I7BI2I2', number + 1, J.started, now, ended_as, #J.owner, #text)
  runs.read[J.seq], runs.changed[J.seq] = raw .. head .. J.owner .. text, true
end
function runs.write()
  local put = {}
  for seq in pairs(runs.changed) do
    put[#put + 1] = seq
    put[#put + 1] = runs.read[seq]
  end
  in_parts('HSET', K.runs, put)
end
-- A job as views show it.
local function view_of(J, a)
  return { J.seq, J.v, J.state, J.att, kind_of(J.kind).retries, J.thr, J.at, J.delay, J.death, a.id, M.queues[J.queue].n,
    J.blob, J.text, J.started, J.owner, J.progress, J.doomed and 1 or 0, runs.of(J) }
end
function running.ended(queue, count)
  -- Somebody may wait for the place.
  if running.full(queue) then notify_work = true end
  queue.run = queue.run - count
end
local function end_lease(J)
  zdrop(K.inflight, padded(J.seq))
  running.ended(M.queues[J.queue], 1)
  local p = pair.any(get_group(get_batch(J.a).g), J.queue)
  p.run = p.run - 1
end
-- Releases a group that was held for too many running jobs, everywhere or in the queue.
local function lease_ended(g, index)
  if g.held == 'L' then unhold(g) end
  local p = pair.any(g, index)
  if p and p.held == 'L' then pair.unhold(g, index) end
end
local function retry_backoff(kind, failures) return min(kind.backoff * 2 ^ min(failures, 60), kind.most) end

local function write_jobs()
  local put = {}
  for seq, J in pairs(jobs) do
    if J and J.dirty and not dropped_jobs[seq] then
      put[#put + 1] = seq
      put[#put + 1] = state_of(J)
    end
  end
  in_parts('HSET', K.state, put)
end

-- Writes every decision, then sends the signals.
local function flush()
  call('SET', K.meta, encode(M))
  write_groups()
  write_batches()
  write_jobs()
  runs.write()
  for _, l in pairs(lists) do write_list(l) end
  write_zsets()
  local bits = (notify_work and 1 or 0) + (notify_aggregate and 2 or 0) + (notify_timer and 4 or 0)
  if bits > 0 then call('PUBLISH', K.signals, bits) end
  return facts(bits)
end
