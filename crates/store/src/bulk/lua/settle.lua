-- bulk settle: records the outcomes of runs. Atomic, so that a fence is used once, and exactly one outcome completes
-- a batch.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then for each outcome: job, fence, outcome, wait (ms) or "", text (result or error). Outcomes: d
--   completed, b completed with a result that is too large (text is the error), f failed, t throttled, r retry, x
--   released
-- RETURNS  facts, then for each: done and 1 if that completed the batch; dead, why, and 1 if that completed the
--   batch; delayed, until when (ms) and why; returned; or stale
-- BOUND  the caller's outcomes; a released job also searches the returned jobs of its flow
local count = (#ARGV - arg) / 5
local seqs, states = {}, {}
for i = 1, count do seqs[i] = tonumber(ARGV[arg + i * 5 - 4]) end
for from = 1, count, 4000 do
  -- The state of a running job is all that is needed.
  local to = min(count, from + 3999)
  local got = call('HMGET', K.state, unpack(seqs, from, to))
  for i = from, to do states[i] = got[i - from + 1] end
end
-- The job of an outcome, read on demand; nil unless it is running.
local function leased_job(i)
  local seq, raw = seqs[i], states[i]
  if jobs[seq] == nil and raw and string.byte(raw) == LEASED then
    jobs[seq] = read_state({ seq = seq, lifted = false, text = '' }, raw)
  end
  return jobs[seq]
end

local function dead(J, reason, text)
  local complete = die(J, reason, text)
  return { 'dead', reason, complete and 1 or 0 }
end
local function carry_out(J, outcome, time, text)
  local a, g, line = home(J)
  local queue, kind = M.queues[J.queue], kind_of(J.kind)
  local failures = J.att
  if outcome ~= 'd' and outcome ~= 'b' and outcome ~= 'f' and a.cancelled then
    return dead(J, DIED.CANCELLED, '')
  end
  if outcome == 'd' or outcome == 'b' then
    local settings = C.queues[queue.n]
    if C.cong and settings and settings.slow and now - J.started > settings.slow then cut_pace(queue) end
    if outcome == 'b' then return dead(J, DIED.FAILED, text) end
    g.st[4], g.st[5] = g.st[4] + 1, g.st[5] + J.thr
    finish(J, DONE, text)
    if is_open(a) then a.c[2] = a.c[2] + 1 end
    return { 'done', complete_if_done(a) and 1 or 0 }
  elseif outcome == 'f' then
    return dead(J, DIED.FAILED, text)
  elseif outcome == 't' then
    if C.cong then cut_pace(queue) end
    local wait = throttle(g, J)
    local due = now + (time and min(time, C.retry_after) or wait)
    delay(g, J, due, DELAY.API_THROTTLED)
    return { 'delayed', due, DELAY.API_THROTTLED }
  elseif outcome == 'r' then
    J.att = J.att + 1
    if failures >= kind.retries then return dead(J, DIED.ATTEMPTS, text) end
    local due = now + (time and min(time, C.retry_after) or retry_backoff(kind, failures))
    delay(g, J, due, DELAY.TRANSIENT_ERROR)
    return { 'delayed', due, DELAY.TRANSIENT_ERROR }
  else
    J.sp, J.text = NOWHERE, ''
    set_waiting(g, J)
    give_back(g, line, J)
    return { 'returned' }
  end
end

-- A retry of the same call: what the first attempt did.
local function before(seq, fence)
  local J = get_job(seq)
  if not J or J.fence ~= fence then return { 'stale' } end
  if J.ph == DONE then return { 'done', 0 } end
  if J.ph == DEAD then return { 'dead', J.death, 0 } end
  if J.ph == DELAYED then return { 'delayed', J.at, J.delay } end
  return { 'returned' }
end

-- Plain outcomes, "completed" with nothing special about job, batch or group, are counted together: only their state
-- differs. Everything counted so far is written before any other outcome, so the result is as if they had come one by
-- one.
local plain, plain_states, plain_ended = {}, {}, {}
local FENCE_AT, LEASE_AT = 9, 28
local done_head = string.char(DONE, FINISHED)
local done_tail = struct.pack('>I7BBBI2', now, DELAY.SCHEDULED, DIED.FAILED, 1, 0)
local out = {}
local function book_plain()
  local last_of = {}
  for _, p in pairs(plain) do
    local a, g, line, n = p.a, p.g, p.line, p.n
    last_of[a] = max(last_of[a] or 0, p.last)
    g.st[4], g.st[5] = g.st[4] + n, g.st[5] + p.throttles
    g.c[LEASED], M.c[LEASED] = g.c[LEASED] - n + 1, M.c[LEASED] - n + 1
    g.c[DONE], M.c[DONE] = g.c[DONE] + n - 1, M.c[DONE] + n - 1
    shift(g, LEASED, DONE)
    line.un = line.un - n + 1
    line_loses(g, line)
    a.un, a.c[2] = a.un - n, a.c[2] + n
  end
  -- The last outcome of a batch, in whichever of its flows, completes it.
  for a, last in pairs(last_of) do
    if complete_if_done(a) then out[last] = { 'done', 1 } end
  end
  plain = {}
end
-- Returns true if the outcome could be counted as a plain one.
local function book_if_plain(i, at)
  local raw, seq = states[i], seqs[i]
  if ARGV[at - 2] ~= 'd' or not raw or jobs[seq] ~= nil or string.byte(raw) ~= LEASED then return false end
  local throttles, fence = struct.unpack('>I2I7', raw, FENCE_AT - 2)
  if fence ~= tonumber(ARGV[at - 3]) then return false end
  local _, exp, aseq, queue, priority = struct.unpack('>I7I7I5I2B', raw, LEASE_AT)
  if exp > 0 then return false end
  local key = aseq * 1024 + queue * 4 + priority
  local p = plain[key]
  if not p then
    local a = get_batch(aseq)
    local g, settings = get_group(a.g), C.queues[M.queues[queue].n]
    local special = queue > 255 or a.keep or not is_open(a) or g.held == 'L' or (settings and settings.slow)
    p = { a = a, g = g, line = g.lines[queue .. ':' .. priority], n = 0, throttles = 0, special = special }
    plain[key] = not special and p or nil
    if special then return false end
  end
  p.n, p.last, p.throttles = p.n + 1, i, p.throttles + throttles
  local text = ARGV[at - 4]
  local n = string.sub(raw, 3, 4)
  if n ~= '\0\0' then
    local a, b = string.byte(n, 1, 2)
    text = text .. ':' .. a * 256 + b
  end
  push(K.finished, text)
  M.fin = M.fin + 1
  plain_states[#plain_states + 1] = seq
  plain_states[#plain_states + 1] = done_head .. string.sub(raw, 3, 15) .. done_tail .. ARGV[at]
  plain_ended[#plain_ended + 1] = padded(seq)
  -- The same job a second time in this call is stale.
  jobs[seq], out[i] = false, { 'done', 0 }
  return true
end

for i = 1, count do
  local at = arg + i * 5
  if not book_if_plain(i, at) then
    book_plain()
    local seq, fence = seqs[i], tonumber(ARGV[at - 3])
    local J = leased_job(i)
    if J and J.ph == LEASED and J.fence == fence then
      end_lease(J)
      out[i] = carry_out(J, ARGV[at - 2], tonumber(ARGV[at - 1]), ARGV[at])
      lease_ended(get_group(get_batch(J.a).g))
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
