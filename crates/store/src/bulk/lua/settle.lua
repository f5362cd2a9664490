-- bulk settle: records the outcomes of runs. Atomic, so that a fence is used once, and exactly one outcome completes
-- a batch.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then for each outcome: job, fence, outcome, wait (ms) or "", text (result or error), what it used up if
--   that is not the cost of the job, or "". Outcomes: d
--   completed, b completed with a result that is too large (text is the error), f failed, t throttled, g throttled for its
--   group, r retry, o retry because of overload, x released
-- RETURNS  facts, then for each: completed and 1 if that completed the batch; dead, why, and 1 if that completed the
--   batch; delayed, until when (ms) and why; released; or stale
-- BOUND  the caller's outcomes; a released job also searches the returned jobs of its flow
local count = (#ARGV - arg) / 6
local seqs, states = {}, {}
for i = 1, count do seqs[i] = tonumber(ARGV[arg + i * 6 - 5]) end
for from = 1, count, 4000 do
  -- The state of a running job is all that is needed.
  local to = min(count, from + 3999)
  local got = call('HMGET', K.state, unpack(seqs, from, to))
  for i = from, to do states[i] = got[i - from + 1] end
end
-- The job of an outcome, read on demand; nil unless it is running.
local function running_job(i)
  local seq, raw = seqs[i], states[i]
  if jobs[seq] == nil and raw and string.byte(raw) == RUNNING then
    jobs[seq] = read_state({ seq = seq, lifted = false, text = '' }, raw)
  end
  return jobs[seq]
end

-- How a run ended that did not complete its job. A released one was none.
local RAN = {
  b = runs.FAILED, f = runs.FAILED, t = runs.THROTTLED, g = runs.THROTTLED, r = runs.RETRY, o = runs.RETRY,
}
local function dead(J, reason, text)
  local complete = die(J, reason, text)
  return { 'dead', reason, complete and 1 or 0 }
end
local function carry_out(J, outcome, time, text, used)
  local a, g = home(J)
  local kind = kind_of(J.kind)
  local failures = J.att
  feedback.outcome(J, g, outcome, time, used)
  if outcome ~= 'd' and outcome ~= 'b' and outcome ~= 'f' and is_cancelled(J, a) then
    if outcome == 'r' or outcome == 'o' then J.att = failures + 1
    elseif outcome == 't' or outcome == 'g' then J.thr = min(65535, J.thr + 1) end
    return dead(J, DIED.CANCELLED, '')
  end
  if outcome == 'd' or outcome == 'b' then
    if outcome == 'b' then return dead(J, DIED.FAILED, text) end
    g.st[4], g.st[5] = g.st[4] + 1, g.st[5] + J.thr
    finish(J, COMPLETED, text)
    if is_open(a) then a.c[2] = a.c[2] + 1 end
    return { 'completed', complete_if_done(a) and 1 or 0 }
  elseif outcome == 'f' then
    return dead(J, DIED.FAILED, text)
  elseif outcome == 't' or outcome == 'g' then
    J.thr = min(65535, J.thr + 1)
    local wait = throttle(g)
    local due = now + (time and min(time, C.retry_after) or wait)
    delay(g, J, due, DELAY.API_THROTTLED)
    return { 'delayed', due, DELAY.API_THROTTLED }
  elseif outcome == 'r' or outcome == 'o' then
    J.att = J.att + 1
    if failures >= kind.retries then return dead(J, DIED.ATTEMPTS, text) end
    local due = now + (time and min(time, C.retry_after) or retry_backoff(kind, failures))
    delay(g, J, due, DELAY.TRANSIENT_ERROR)
    return { 'delayed', due, DELAY.TRANSIENT_ERROR }
  else
    J.sp, J.text, J.started, J.owner = NOWHERE, '', 0, ''
    set_waiting(g, J)
    move.home(J)
    give_back(g, g.flows[J.queue .. ':' .. J.v], J)
    return { 'released' }
  end
end

-- A retry of the same call: what the first attempt did.
local function before(seq, fence)
  local J = get_job(seq)
  if not J or J.fence ~= fence then return { 'stale' } end
  if J.state == COMPLETED then return { 'completed', 0 } end
  if J.state == DEAD then return { 'dead', J.death, 0 } end
  if J.state == DELAYED then return { 'delayed', J.at, J.delay } end
  return { 'released' }
end

-- Plain outcomes, "completed" with nothing special about job, batch or group, are counted together: only their state
-- differs. Everything counted so far is written before any other outcome, so the result is as if they had come one by
-- one.
local plain, plain_states, plain_ended = {}, {}, {}
local FENCE_AT, LEASE_AT = 9, 28
local completed_head = string.char(COMPLETED, FINISHED)
local completed_tail = struct.pack('>I7BBBI2', now, DELAY.SCHEDULED, DIED.FAILED, 1, 0)
local out = {}
local function book_plain()
  local last_of = {}
  for _, p in pairs(plain) do
    local a, g, flow, n = p.a, p.g, p.flow, p.n
    last_of[a] = max(last_of[a] or 0, p.last)
    g.st[4], g.st[5] = g.st[4] + n, g.st[5] + p.throttles
    g.c[RUNNING], M.c[RUNNING] = g.c[RUNNING] - n + 1, M.c[RUNNING] - n + 1
    g.c[COMPLETED], M.c[COMPLETED] = g.c[COMPLETED] + n - 1, M.c[COMPLETED] + n - 1
    shift(g, RUNNING, COMPLETED)
    flow_gains(flow, 1 - n)
    flow_loses(g, flow)
    a.un, a.c[2] = a.un - n, a.c[2] + n
    running.ended(M.queues[p.queue], n)
    local of_queue = pair.any(g, p.queue)
    of_queue.run = of_queue.run - n
  end
  -- The last outcome of a batch, in whichever of its flows, completes it.
  for a, last in pairs(last_of) do
    if complete_if_done(a) then out[last] = { 'completed', 1 } end
  end
  plain = {}
end
-- Returns true if the outcome could be counted as a plain one.
local function book_if_plain(i, at)
  local raw, seq = states[i], seqs[i]
  if ARGV[at - 3] ~= 'd' or ARGV[at] ~= '' or not raw or jobs[seq] ~= nil or string.byte(raw) ~= RUNNING then return false end
  local throttles, fence = struct.unpack('>I2I7', raw, FENCE_AT - 2)
  if fence ~= tonumber(ARGV[at - 4]) then return false end
  local started, exp, aseq, queue, priority = struct.unpack('>I7I7I5I2B', raw, LEASE_AT)
  if exp > 0 then return false end
  local key = aseq * 1024 + queue * 4 + priority
  local p = plain[key]
  if not p then
    local a = get_batch(aseq)
    local g = get_group(a.g)
    local special = queue > 255 or a.keep or not is_open(a) or g.held == 'L' or pair.of(g, queue)
      or pair.any(g, queue).held == 'L'
    p = { a = a, g = g, queue = queue, flow = g.flows[queue .. ':' .. priority], n = 0, throttles = 0, special = special }
    plain[key] = not special and p or nil
    if special then return false end
  end
  p.n, p.last, p.throttles = p.n + 1, i, p.throttles + throttles
  feedback.plain(queue, started)
  local kindlen, ownerlen = struct.unpack('>I2I2', raw, LEASE_AT + 26)
  local worker = string.sub(raw, LEASE_AT + 32 + kindlen, LEASE_AT + 31 + kindlen + ownerlen)
  local text = ARGV[at - 5]
  local n = string.sub(raw, 3, 4)
  if n ~= '\0\0' then
    local a, b = string.byte(n, 1, 2)
    text = text .. ':' .. a * 256 + b
  end
  keep_finished(p.g, text, now)
  plain_states[#plain_states + 1] = seq
  plain_states[#plain_states + 1] = completed_head .. string.sub(raw, 3, 15)  .. completed_tail
    .. struct.pack(runs.COMPLETING, started, ownerlen) .. worker .. ARGV[at - 1]
  plain_ended[#plain_ended + 1] = padded(seq)
  -- The same job a second time in this call is stale.
  jobs[seq], out[i] = false, { 'completed', 0 }
  return true
end

for i = 1, count do
  local at = arg + i * 6
  if not book_if_plain(i, at) then
    book_plain()
    local seq, fence = seqs[i], tonumber(ARGV[at - 4])
    local J = running_job(i)
    if J and J.state == RUNNING and J.fence == fence then
      end_lease(J)
      local ended_as = RAN[ARGV[at - 3]]
      if ended_as then runs.record(J, ended_as, ARGV[at - 1]) end
      out[i] = carry_out(J, ARGV[at - 3], tonumber(ARGV[at - 2]), ARGV[at - 1], tonumber(ARGV[at]))
      lease_ended(get_group(get_batch(J.a).g), J.queue)
    elseif retried and J == nil then
      out[i] = before(seq, fence)
    else
      out[i] = { 'stale' }
    end
  end
end
book_plain()
in_parts('HSET', K.state, plain_states)
in_parts('ZREM', K.inflight, plain_ended)
return { flush(), out }
