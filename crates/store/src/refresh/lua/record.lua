-- One record of the refresh part: its state as in the core's coalescer, read and written by the transitions in
-- refresh/. The state is one packed value:
--   i, c, s   issued, completed and superseded version
--   l, h      the pending LOW and HIGH event: { version, since, sent (0 or 1) }
--   k         the claim: { version, owner, until }
--   m         the mark: { at, until, settlement }
--   q, a      the call that changed it last, and its reply, for a retry. If another call came in between, the retry
--             counts as a fresh call: at worst an event that nobody sends, which expires by itself

-- Set by every call.
local KEYS, ARGV, call
local record = {}
do
  -- Lua's own libraries are not available while functions are loaded, so they are named in full.
  -- Versions that time gives per millisecond, and the last one.
  local PER_MILLI, LAST = 1024, 9007199254740991
  -- The key outlives the time at which the state is idle: expiry is only a safety net.
  local SLACK = 60000

  local function pending_ends(r, slot, pending)
    if pending[3] == 0 then return pending[2] + r.send end
    return pending[2] + (slot == 'h' and r.high or r.low)
  end

  -- From here on the state may be forgotten.
  local function idle_at(r, s)
    local at = math.floor(s.i / PER_MILLI) + 1
    if s.h then at = math.max(at, pending_ends(r, 'h', s.h)) end
    if s.l then at = math.max(at, pending_ends(r, 'l', s.l)) end
    if s.k then at = math.max(at, s.k[3]) end
    if s.m then at = math.max(at, s.m[1] + r.remember) end
    return at
  end

  local function drop(r, field)
    r.s[field] = nil
    r.dirty = true
  end
  record.drop = drop

  -- Drops expired parts.
  local function expire(r)
    local s = r.s
    if s.h and pending_ends(r, 'h', s.h) <= r.now then drop(r, 'h') end
    if s.l and pending_ends(r, 'l', s.l) <= r.now then drop(r, 'l') end
    if s.k and s.k[3] <= r.now then drop(r, 'k') end
  end

  -- Every call begins with: time or "", "1" if it may have run before, its id, then the durations in ms for which an
  -- unsent, a HIGH and a LOW event stay pending, and a completed version is remembered. The second value is the reply
  -- of a call that did run.
  function record.load(keys, args)
    local r = { key = keys[1], request = args[3], now = tonumber(args[1]), dirty = false }
    if not r.now then
      local t = redis.call('TIME')
      r.now = t[1] * 1000 + math.floor(t[2] / 1000)
    end
    r.send, r.high, r.low, r.remember = tonumber(args[4]), tonumber(args[5]), tonumber(args[6]), tonumber(args[7])
    local raw = redis.call('GET', r.key)
    local s = raw and cmsgpack.unpack(raw)
    if s and args[2] == '1' and s.q == r.request then return r, s.a end
    if s and idle_at(r, s) > r.now then r.s = s end
    return r
  end

  -- As load, for a transition that needs no existing state.
  function record.load_or_new(keys, args)
    local r, again = record.load(keys, args)
    if again then return r, again end
    if not r.s then r.s = { i = 0, c = 0, s = 0 } end
    expire(r)
    return r
  end

  -- As load, for a transition that changes only existing state.
  function record.load_known(keys, args)
    local r, again = record.load(keys, args)
    if r.s and not again then expire(r) end
    return r, again
  end

  -- Writes the changes, and returns the reply.
  function record.save(r, answer)
    if r.dirty then
      local s = r.s
      s.q, s.a = r.request, answer
      local left = math.max(1, idle_at(r, s) - r.now) + SLACK
      redis.call('SET', r.key, cmsgpack.pack(s), 'PX', string.format('%.0f', left))
    end
    return answer
  end

  -- The next version: above the issued one, the snapshot's, and the one that time alone gives.
  function record.next_version(r, snapshot)
    local above = math.max(r.s.i, snapshot or 0)
    if above >= LAST then return error('TIDEGATE a version cannot grow') end
    return math.max(above + 1, math.min(r.now * PER_MILLI, LAST))
  end

  function record.see_version(r, version)
    if version > r.s.i then r.s.i, r.dirty = version, true end
  end

  -- The event of this version is certainly in the log: a HIGH supersedes the LOW before it.
  function record.mark_sent(r, version)
    local s, known = r.s, 0
    for _, slot in ipairs({ 'l', 'h' }) do
      local pending = s[slot]
      if pending and pending[1] == version then
        known = 1
        if pending[3] == 0 then pending[3], r.dirty = 1, true end
      end
    end
    if s.h and s.h[1] == version then
      if s.s < version then s.s, r.dirty = version, true end
      if s.l and s.l[1] < version then drop(r, 'l') end
    end
    return known
  end
end
