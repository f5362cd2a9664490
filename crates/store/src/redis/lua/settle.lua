-- settle: what came of runs. Per answer: job, fence, verdict, time or "", text.
-- Verdicts: d done, b done with a result that is too large (text is the error), f failed, t throttled,
-- r retry, x returned.
local count = (#ARGV - arg) / 5
local seqs = {}
for i = 1, count do seqs[i] = tonumber(ARGV[arg + i * 5 - 4]) end
for from = 1, count, 4000 do
  -- The state of a leased job says all that is needed.
  local to = min(count, from + 3999)
  local states = call('HMGET', K.state, unpack(seqs, from, to))
  for i = from, to do
    local raw, seq = states[i - from + 1], seqs[i]
    if raw and jobs[seq] == nil and string.byte(raw) == LEASED then
      jobs[seq] = read_state({ seq = seq, lifted = false, text = '' }, raw)
    end
  end
end

local function dead(J, reason, text)
  local complete = die(J, reason, text)
  return { 'dead', reason, complete and 1 or 0 }
end
local function carry_out(J, verdict, time, text)
  local a, g, line = home(J)
  local lane, kind = M.lanes[J.lane], kind_of(J.kind)
  local failures = J.att
  if verdict ~= 'd' and verdict ~= 'b' and verdict ~= 'f' and a.cancelled then
    return dead(J, DIED_CANCELLED, '')
  end
  if verdict == 'd' or verdict == 'b' then
    local settings = C.lanes[lane.n]
    if C.cong and settings and settings.slow and now - J.started > settings.slow then cut_pace(lane) end
    if verdict == 'b' then return dead(J, DIED_FAILED, text) end
    g.st[4], g.st[5] = g.st[4] + 1, g.st[5] + J.thr
    finish(J, DONE, text)
    if is_open(a) then a.c[2] = a.c[2] + 1 end
    return { 'done', complete_if_done(a) and 1 or 0 }
  elseif verdict == 'f' then
    return dead(J, DIED_FAILED, text)
  elseif verdict == 't' then
    if C.cong then cut_pace(lane) end
    local wait = throttle(g, J)
    local due = now + (time and min(time, C.retry_after) or wait)
    delay(g, J, due, API_THROTTLED)
    return { 'delayed', due, API_THROTTLED }
  elseif verdict == 'r' then
    J.att = J.att + 1
    if failures >= kind.retries then return dead(J, DIED_ATTEMPTS, text) end
    local due = now + (time and min(time, C.retry_after) or retry_backoff(kind, failures))
    delay(g, J, due, TRANSIENT_ERROR)
    return { 'delayed', due, TRANSIENT_ERROR }
  else
    J.sp, J.text = NOWHERE, ''
    set_waiting(g, J)
    give_back(g, line, J)
    return { 'returned' }
  end
end

-- The same call again: what the first one did.
local function before(seq, fence)
  local J = get_job(seq)
  if not J or J.fence ~= fence then return { 'stale' } end
  if J.ph == DONE then return { 'done', 0 } end
  if J.ph == DEAD then return { 'dead', J.death, 0 } end
  if J.ph == DELAYED then return { 'delayed', J.at, J.delay } end
  return { 'returned' }
end

local out = {}
for i = 1, count do
  local at = arg + i * 5
  local seq, fence = seqs[i], tonumber(ARGV[at - 3])
  local J = jobs[seq]
  if J and J.ph == LEASED and J.fence == fence then
    end_lease(J)
    out[i] = carry_out(J, ARGV[at - 2], tonumber(ARGV[at - 1]), ARGV[at])
    lease_ended(get_group(get_action(J.a).g))
  elseif retried and not J then
    out[i] = before(seq, fence)
  else
    out[i] = { 'stale' }
  end
end
return { flush(), out }
