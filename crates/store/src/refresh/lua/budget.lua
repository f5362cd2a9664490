-- The budget of one target, as in the core, in one hash. Buckets are in thousandths of a token.
local budget = {}
do
  local TOKEN, DAY = 1000, 86400000
  -- How long a denied caller's tokens stay reserved, and how long nothing is granted when past grants are unknown.
  local PATIENCE, SETTLING = 100, 1000
  local RATE, LOW_CAP, DAY_QUOTA, HOLD = 1, 2, 3, 4
  local NEVER = 9007199254740991
  local FIELDS = { 'last', 'offset', 'all', 'all_at', 'low', 'low_at', 'high_ask', 'high_until', 'low_ask', 'low_until',
    'credit', 'day', 'used', 'used_low', 'hold', 'lifted' }

  -- Every call begins with: time or "", "1" if it may have run before, its id, the server's run id, the maximum that
  -- the caller has seen (day, calls, calls of low, hold), then the settings: rate, burst, rate and burst of low,
  -- floor of low in percent, quota of a day for all and for low, how far the day begins before the epoch's (ms),
  -- validity (ms). The second value is the reply of a call that did run.
  --
  -- If the hash is missing, or another run of the server wrote it, the last grants may be lost: the buckets start
  -- empty and wait. The day's calls are then at least those that any caller has seen.
  function budget.load(keys, args)
    local b = { key = keys[1], request = args[3], run = args[4] }
    local have = redis.call('HMGET', b.key, 'run', 'request', 'answer', unpack(FIELDS))
    if args[2] == '1' and have[2] == b.request then return b, cmsgpack.unpack(have[3]) end
    for i, field in ipairs(FIELDS) do b[field] = tonumber(have[i + 3]) or 0 end
    b.rate, b.burst, b.low_rate, b.low_burst = tonumber(args[9]), tonumber(args[10]), tonumber(args[11]), tonumber(args[12])
    b.floor, b.quota, b.quota_low = tonumber(args[13]), tonumber(args[14]), tonumber(args[15])
    b.shift, b.validity = tonumber(args[16]), tonumber(args[17])
    local wall = tonumber(args[1])
    if not wall then
      local t = redis.call('TIME')
      wall = t[1] * 1000 + math.floor(t[2] / 1000)
    end
    -- Time never goes back: a backward step becomes an offset.
    if wall + b.offset < b.last then b.offset = b.last - wall else b.last = wall + b.offset end
    b.now = b.last
    -- The raw server clock decides the day: after a backward step, store time stays ahead and would turn it too
    -- early.
    b.shift = b.shift - b.offset
    if have[1] ~= b.run then
      b.all, b.low, b.all_at, b.low_at = 0, 0, b.now + SETTLING, b.now + SETTLING
      b.high_ask, b.high_until, b.low_ask, b.low_until, b.credit = 0, 0, 0, 0, 0
    end
    local day, used, used_low = tonumber(args[5]), tonumber(args[6]), tonumber(args[7])
    if day > b.day then
      b.day, b.used, b.used_low = day, used, used_low
    elseif day == b.day then
      b.used, b.used_low = math.max(b.used, used), math.max(b.used_low, used_low)
    end
    -- A hold that the caller has seen was lifted since, if it ends no later than the last lifted one.
    local seen = tonumber(args[8])
    if seen > b.lifted then b.hold = math.max(b.hold, seen) end
    return b
  end

  -- Writes the budget; the reply begins with the state of the day.
  function budget.save(b, answer)
    local whole = { b.day, b.used, b.used_low, b.hold, unpack(answer) }
    local put = { 'run', b.run, 'request', b.request, 'answer', cmsgpack.pack(whole) }
    for _, field in ipairs(FIELDS) do
      put[#put + 1] = field
      put[#put + 1] = string.format('%.0f', b[field])
    end
    redis.call('HSET', b.key, unpack(put))
    return whole
  end

  -- Mints the due tokens.
  local function refill(level, at, rate, burst, now)
    local full, elapsed = burst * TOKEN, math.max(0, now - at)
    if elapsed >= math.ceil(full / rate) then level = full else level = math.min(full, level + elapsed * rate) end
    return level, math.max(at, now)
  end

  -- When `tokens` are available if nobody takes any.
  local function ready_at(level, at, rate, burst, tokens)
    local missing = tokens * TOKEN - level
    if missing <= 0 then return 0 end
    if tokens > burst then return NEVER end
    return at + math.ceil(missing / rate)
  end

  local function day_of(b, at) return math.floor(math.max(0, at + b.shift) / DAY) end
  local function day_start(b, day) return math.max(0, day * DAY - b.shift) end

  local function day_left(b, priority)
    local left = math.max(0, b.quota - b.used)
    if priority == 'h' then return left end
    return math.min(left, math.max(0, b.quota_low - b.used_low))
  end

  -- The first moment from `at` on at which the day allows a call of this priority. Nothing is granted in the last
  -- moments of a day, for as long as a token is valid.
  local function open_day(b, priority, at)
    local today, later = math.max(day_of(b, at), b.day), day_of(b, at + b.validity)
    if later > today then return day_start(b, later) end
    if today == b.day and day_left(b, priority) == 0 then return day_start(b, today + 1) end
    return at
  end

  local function asked(tokens, till, now) return now < till and tokens or 0 end

  -- Whole tokens that low earned by waiting.
  local function owed(b) return math.min(math.floor(b.credit / (100 - b.floor)), math.ceil(b.burst / 2)) end

  -- Tokens reserved from the other priority.
  local function kept_for(b, priority)
    if priority == 'h' then return math.min(asked(b.high_ask, b.high_until, b.now), b.burst) end
    return math.min(asked(b.low_ask, b.low_until, b.now), owed(b))
  end

  local function within_reach(b, priority)
    local level = math.floor(b.all / TOKEN)
    if priority == 'h' then return math.max(0, level - kept_for(b, 'l')) end
    return math.max(0, level - kept_for(b, 'h'), math.min(level, owed(b)))
  end

  local function remember(b, priority, tokens, from)
    local till = tokens > 0 and from + PATIENCE or 0
    if priority == 'h' then
      b.high_ask, b.high_until = tokens, till
    else
      b.low_ask, b.low_until = tokens, till
      if tokens == 0 then b.credit = 0 end
    end
  end

  local function spend(b, priority, tokens)
    b.all, b.used = b.all - tokens * TOKEN, b.used + tokens
    local share = 100 - b.floor
    if priority == 'l' then
      b.low, b.used_low = b.low - tokens * TOKEN, b.used_low + tokens
      b.credit = math.max(0, b.credit - share * tokens)
    elseif asked(b.low_ask, b.low_until, b.now) > 0 then
      b.credit = math.min(share * b.burst, b.credit + b.floor * tokens)
    end
  end

  local function next_by_rate(b, priority)
    local one = ready_at(b.all, b.all_at, b.rate, b.burst, 1)
    local kept, till = kept_for(b, 'l'), b.low_until
    if priority == 'l' then
      if owed(b) > 0 then return one end
      kept, till = kept_for(b, 'h'), b.high_until
    end
    if kept == 0 then return one end
    -- Either enough for both is minted, or the other one does not return.
    return math.min(ready_at(b.all, b.all_at, b.rate, b.burst, kept + 1), math.max(one, till))
  end

  -- When one token is available, and the limit that blocks longest.
  local function next_at(b, priority)
    local at, by = next_by_rate(b, priority), RATE
    if priority == 'l' then
      local cap = ready_at(b.low, b.low_at, b.low_rate, b.low_burst, 1)
      if cap > at then at, by = cap, LOW_CAP end
    end
    if b.hold > at then at, by = b.hold, HOLD end
    at = math.max(at, b.now)
    local open = open_day(b, priority, at)
    if open > at then return open, DAY_QUOTA end
    return at, by
  end

  local function advance(b, priority)
    b.all, b.all_at = refill(b.all, b.all_at, b.rate, b.burst, b.now)
    b.low, b.low_at = refill(b.low, b.low_at, b.low_rate, b.low_burst, b.now)
    local today = day_of(b, b.now)
    if today > b.day then b.day, b.used, b.used_low = today, 0, 0 end
    if priority == 'l' and asked(b.low_ask, b.low_until, b.now) == 0 then b.credit = 0 end
  end

  -- What the caller could use if the rate were the only limit.
  local function wanted_of(b, priority, most)
    if b.now < b.hold or open_day(b, priority, b.now) > b.now then return 0 end
    local cap = priority == 'h' and most or math.floor(b.low / TOKEN)
    return math.min(most, cap, day_left(b, priority))
  end

  function budget.take(b, priority, most)
    advance(b, priority)
    local wanted = wanted_of(b, priority, most)
    local granted = math.min(wanted, within_reach(b, priority))
    if granted > 0 then
      spend(b, priority, granted)
      remember(b, priority, wanted - granted, b.now)
      return { 1, granted, b.validity }
    end
    if wanted == 0 then remember(b, priority, 0, b.now) end
    local at, by = next_at(b, priority)
    if wanted > 0 then remember(b, priority, wanted, at) end
    return { 0, at - b.now, by }
  end
end
