-- Restores the records of an export, as the core's restore does. Flows enter the order, and finished jobs their list,
-- once all records are present: until then two sorted sets keep what goes where. Used by import.

local restored_flows, restored_finished = P .. 'importing:flows', P .. 'importing:finished'
local function next_flag() return next_arg() == '1' end

-- number, id, base priority, its step, paused, its limits as configure_group has them, created.
local function restore_group()
  M.seq = next_number()
  local id, base_priority, step = next_arg(), next_number(), next_number()
  if find_group(id) then return 'the group ' .. id .. ' occurs twice' end
  local g = find_or_create_group(id, base_priority, step)
  g.paused = next_flag()
  held.read_limits(g)
  g.cr = next_number()
  if g.paused then g.held = 'P' end
end

-- number, group, id, threshold, keep results, callback or "", implicit, status, sealed, paused, cancelled, its fence,
-- confirmed, created, finished or "", total, success, failed, number of errors, errors…, "1" with a summary, summary.
local function restore_batch()
  M.seq = next_number()
  local g, id = get_group(next_number()), next_arg()
  if find_batch(g, id) then return 'the batch ' .. id .. ' of ' .. g.id .. ' occurs twice' end
  local threshold, keep, callback, implicit = next_number(), next_flag(), next_arg(), next_flag()
  local a = create_batch(g, id, threshold, keep, implicit, callback ~= '' and callback or nil)
  a.status, a.sealed, a.paused, a.cancelled = next_number(), next_flag(), next_flag(), next_flag()
  a.xf, a.conf = next_number(), next_flag()
  a.cr, a.fin = next_number(), next_number()
  for i = 1, 3 do
    a.c[i] = next_number()
    a.d[i] = a.c[i]
  end
  for i = 1, next_number() do a.err[i] = next_arg() end
  local summed_up, summary = next_flag(), next_arg()
  if summed_up then call('HSET', K.summary, a.seq, summary) end
  if a.paused then a.pz = 1 end
  if a.sealed then g.opens = without(g.opens, a.seq) end
  if a.fin and a.conf then zput(K.finished_batches, padded(a.seq), a.fin)
  elseif not is_open(a) then zput(K.aggregating, padded(a.seq), 0) end
end

-- The current run of job numbers.
local run = { count = 0 }
local function end_run()
  if run.count > 0 then add_run(run.a, run.first, run.count) end
  run = { count = 0 }
end

local function restore_finished(J, a, g, at, reason, text)
  J.at, J.lifted, J.text, J.sp, J.dirty = at, true, text, NOWHERE, true
  shift(g, nil, J.state)
  if J.state == DEAD then
    J.death = reason
    zput(K.dead, dead_entry(J), 0)
    if is_open(a) and reason ~= DIED.CANCELLED then keep_error(a, text) end
  end
  if is_open(a) then
    local i = J.state == COMPLETED and 2 or 3
    a.c[1], a.c[i], a.status = a.c[1] + 1, a.c[i] + 1, max(a.status, BATCH.RUNNING)
  end
  if not a.keep then
    J.sp = FINISHED
    zput(restored_finished, padded(J.seq), at)
  end
end

local function restore_unfinished(J, a, g, state, at, reason)
  local flow = flow_for(g, J.queue, J.v)
  flow_gains(flow, 1)
  a.un = a.un + 1
  if is_open(a) then a.c[1] = a.c[1] + 1 end
  if J.exp and not J.lifted then zput(K.expiring, padded(J.seq), J.exp) end
  if state == '' and at and at > now then state, reason = 'l', DELAY.SCHEDULED end
  if state == 'l' then
    J.state, J.sp, J.at, J.delay, J.dirty = DELAYED, NOWHERE, at, reason, true
    zput(K.delayed, padded(J.seq), at)
    M.queues[J.queue].dl = M.queues[J.queue].dl + 1
    throughput.due(flow, at)
    if reason ~= DELAY.SCHEDULED then congest(g) end
    shift(g, nil, DELAYED)
    return
  end
  shift(g, nil, WAITING)
  -- The flow is ordered by its first job: the first returned one, else the first of all.
  if flow_len(flow) == 0 or (state == 'w' and flow.nr == 0) then
    zput(restored_flows, int(g.seq) .. ':' .. flow.k, J.seq)
  end
  if state == 'w' then
    local was = g.held
    g.held = 'I'
    push_returned(g, flow, J)
    g.held = was
  else
    push(names.flow(int(g.seq), flow.k, 'f'), entry(J))
    flow.nf = flow.nf + 1
  end
end

-- number, batch, created, type, packed job, state ("" without a state, w waiting, l delayed, d completed, x dead),
-- attempts, throttles, fence, "1" if it still expires, time of the state (run_at without a state) or "", reason,
-- result or error, when the run began that completed it or 0, its worker, "1" if it was cancelled while it ran, its runs.
local function restore_job()
  local seq, a, created, kind, tail = next_number(), get_batch(next_number()), next_number(), next_arg(), next_arg()
  local g, queue = get_group(a.g), queue_for(kind_of(kind).queue)
  M.seq = seq + 1
  local J = read_job(seq, struct.pack('>I5I6I2', a.seq, created, queue) .. tail)
  if call('HSETNX', names.ids(int(g.seq)), job_id(J), seq) == 0 then
    return 'the job ' .. job_id(J) .. ' of ' .. g.id .. ' occurs twice'
  end
  call('HSET', K.job, seq, J.blob)
  jobs[seq] = J
  if run.a ~= a or run.first + run.count ~= seq then
    end_run()
    run = { a = a, first = seq, count = 0 }
  end
  run.count = run.count + 1
  a.kept = a.kept + 1
  local state = next_arg()
  J.att, J.thr, J.fence, J.lifted = next_number(), next_number(), next_number(), not next_flag()
  local at, reason, text = next_number(), next_number(), next_arg()
  J.started, J.owner, J.doomed = next_number(), next_arg(), next_flag()
  local of_job = next_arg()
  if of_job ~= '' then call('HSET', K.runs, seq, of_job) end
  if J.doomed then J.dirty = true end
  M.fence = max(M.fence, J.fence + 1)
  if state == 'd' or state == 'x' then
    J.state = state == 'd' and COMPLETED or DEAD
    restore_finished(J, a, g, at, reason, text)
  else
    restore_unfinished(J, a, g, state, at, reason)
  end
end
