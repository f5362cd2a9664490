-- One shard of the bulk store: how every transition begins and ends, its keys, its clock and its buffered writes.
--
-- KEYS[1] is <prefix>{<shard>}:meta; every other key is built from it and shares its hash tag (keys_of, names).
--
-- Every call begins with ARGV[1] time in ms or "" (tests only), ARGV[2] "1" if it may have run before, ARGV[3] its id,
-- ARGV[4] active groups of other shards, ARGV[5] their unfinished jobs, ARGV[6] starts granted, ARGV[7] the window that
-- they are for, ARGV[8] the latest time that any shard reported (ms). ARGV[6] to ARGV[8] are "" with a single shard.
-- The rest belongs to the transition.
--
-- Every reply of a transition that writes begins with the facts: the signals sent (1 work, 2 aggregate, 4 timer),
-- active groups, their weight in thousandths, unfinished jobs, ready jobs, the time (ms), finished jobs kept.
-- Read-only transitions return no facts.
--
-- Transitions read, decide in tables, and write at the end (flush). Numbers stay below 2^53.

-- Lua's own libraries are not available while functions are loaded.
local floor, max, min, encode, decode
-- Set by every call.
local KEYS, ARGV, call, P, K
local resets = {}

local WAITING, READY, RUNNING, DELAYED, COMPLETED, DEAD = 1, 2, 3, 4, 5, 6
local BATCH = { CREATED = 0, DISPATCHED = 1, RUNNING = 2, AGGREGATING = 3, COMPLETED = 4, FAILED = 5, CANCELLED = 6 }
local DELAY = { RATE_LIMITED = 0, API_THROTTLED = 1, TRANSIENT_ERROR = 2, LEASE_EXPIRED = 3, SCHEDULED = 4 }
-- With the error of a job that has none.
local DIED = {
  FAILED = 0, ATTEMPTS = 1, EXPIRED = 2, CANCELLED = 3,
  [0] = 'failed without a reason', 'attempts used up', 'expired before it could start', 'cancelled',
}
local TAG_LIMIT = 9007199254740992

local function keys_of(prefix)
  return {
    meta = prefix .. 'meta',
    config = prefix .. 'config',
    settings = prefix .. 'settings',
    compared = prefix .. 'settings:compared',
    settings_changes = prefix .. 'settings:changes',
    limits = prefix .. 'limits',
    group = prefix .. 'group',
    group_ids = prefix .. 'group:ids',
    group_seqs = prefix .. 'group:seqs',
    idle = prefix .. 'group:idle',
    held = prefix .. 'group:held',
    congested = prefix .. 'group:congested',
    batch = prefix .. 'batch',
    batch_ids = prefix .. 'batch:ids',
    batch_seqs = prefix .. 'batch:seqs',
    summary = prefix .. 'batch:summary',
    aggregating = prefix .. 'batch:aggregating',
    cancelling = prefix .. 'batch:cancelling',
    finished_batches = prefix .. 'batch:finished',
    job = prefix .. 'job',
    state = prefix .. 'job:state',
    runs = prefix .. 'job:runs',
    finished = prefix .. 'job:finished',
    crowded = prefix .. 'job:crowded',
    dead = prefix .. 'job:dead',
    expiring = prefix .. 'job:expiring',
    delayed = prefix .. 'non-ready-queue',
    inflight = prefix .. 'in-flight-queue',
    signals = prefix .. 'signals',
  }
end
local names = {}
function names.ids(g) return P .. 'group:' .. g .. ':jobs' end
function names.finished(g) return P .. 'group:' .. g .. ':finished' end
function names.batches(g) return P .. 'group:' .. g .. ':batches' end
function names.history(g) return P .. 'congestion:' .. g .. ':history' end
function names.runs(a) return P .. 'batch:' .. a .. ':jobs' end
function names.dropped(a) return P .. 'batch:' .. a .. ':dropped' end
function names.parked(a, k) return P .. 'batch:' .. a .. ':parked:' .. k end
function names.flow(g, k, list) return P .. 'group:' .. g .. ':flow:' .. k .. ':' .. list end
function names.order(queue, priority) return P .. 'fair-queue:' .. queue .. ':' .. priority end
function names.remembered(queue, priority) return P .. 'fair-queue:' .. queue .. ':' .. priority .. ':tags' end
function names.ready(queue) return P .. 'ready-queue:' .. queue end
function names.pairs(queue) return P .. 'fair-queue:' .. queue .. ':held' end

local function int(n) return string.format('%.0f', n) end
local function padded(n) return string.format('%016.0f', n) end

local M, C, now
local retried, request, others_active, others_unfinished, granted, granted_window, arg
local function next_arg() arg = arg + 1 return ARGV[arg] end
local function next_number() return tonumber(next_arg()) end
local function window_end() return (M.win + 1) * C.window end

-- Signals for waiting services: 1 work, 2 aggregate, 4 timer.
local notify_work, notify_aggregate, notify_timer

-- The store's time never goes back: a backward step becomes an offset.
local function observe()
  local wall = tonumber(ARGV[1])
  if not wall then
    local t = call('TIME')
    wall = t[1] * 1000 + floor(t[2] / 1000)
    -- Fencing tokens grow even if the server loses its last moments in a crash.
    M.fence = max(M.fence, wall * 1024)
  end
  M.last = max(M.last, tonumber(ARGV[8]) or 0)
  local shifted = wall + M.off
  if shifted < M.last then M.off = M.last - wall else M.last = shifted end
  now = M.last
  local window = floor(now / C.window)
  M.win = max(M.win, window)
end

-- Begins a call with none of the previous call's state.
local function begin(keys, args)
  KEYS, ARGV, call = keys, args, redis.call
  floor, max, min = math.floor, math.max, math.min
  encode, decode = cmsgpack.pack, cmsgpack.unpack
  local prefix = string.sub(KEYS[1], 1, -5)
  if prefix ~= P then P, K = prefix, keys_of(prefix) end
  local raw = call('MGET', K.meta, K.config)
  if not raw[1] or not raw[2] then error('TIDEGATE the store has not been opened, or its keys are gone') end
  M, C = decode(raw[1]), decode(raw[2])
  if M.importing and string.sub(ARGV[3], 1, 16) ~= M.importing then
    error('TIDEGATE-IMPORT an import into the store is not finished')
  end
  retried, request = ARGV[2] == '1', ARGV[3]
  others_active, others_unfinished = tonumber(ARGV[4]), tonumber(ARGV[5])
  granted, granted_window = tonumber(ARGV[6]), tonumber(ARGV[7])
  arg = 8
  notify_work, notify_aggregate, notify_timer = false, false, false
  observe()
  for i = 1, #resets do resets[i]() end
end

-- Every reply begins with: signals, active groups, their weight in thousandths, unfinished jobs, ready jobs, the
-- time, finished jobs kept.
local function facts(bits)
  local unfinished = M.c[WAITING] + M.c[READY] + M.c[RUNNING] + M.c[DELAYED]
  return { bits, M.active, floor(M.w * 1000 + 0.5), unfinished, M.ready, now, M.fin }
end
-- A call that changes nothing still advances the clock.
local function nothing()
  call('SET', K.meta, encode(M))
  return facts(0)
end

local function give_seq()
  local seq = M.seq
  M.seq = seq + 1
  return seq
end

-- Buffered writes. A sorted set's member has one score or none; a list grows at its end.
local zsets, lists
resets[#resets + 1] = function() zsets, lists = {}, {} end
local function zput(key, member, score)
  local z = zsets[key]
  if not z then z = {} zsets[key] = z end
  z[member] = score
end
local function zdrop(key, member) zput(key, member, false) end

-- A list read from its head and appended to.
local function list(key)
  local l = lists[key]
  if not l then
    l = { key = key, buf = {}, i = 1, read = 0, popped = 0, added = {}, j = 1, whole = false }
    lists[key] = l
  end
  return l
end
local function push(key, entry)
  local l = list(key)
  l.added[#l.added + 1] = entry
end
-- The first entry; `more` is how many to read when the buffer is empty.
local function head(l, more)
  local entry = l.buf[l.i]
  if entry then return entry end
  if not l.whole then
    local got = call('LRANGE', l.key, l.read, l.read + more - 1)
    l.buf, l.i, l.read = got, 1, l.read + #got
    if #got < more then l.whole = true end
    if got[1] then return got[1], got end
  end
  return l.added[l.j]
end
local function pop(l)
  if l.buf[l.i] then
    l.i, l.popped = l.i + 1, l.popped + 1
  else
    l.j = l.j + 1
  end
end

-- A call with very many arguments, split into parts that Lua can unpack.
local function in_parts(command, key, args)
  for from = 1, #args, 4000 do
    call(command, key, unpack(args, from, min(from + 3999, #args)))
  end
end
local function write_list(l)
  if l.popped > 0 then call('LTRIM', l.key, l.popped, -1) end
  if l.j <= #l.added then
    local rest = l.j == 1 and l.added or { unpack(l.added, l.j) }
    in_parts('RPUSH', l.key, rest)
  end
  lists[l.key] = nil
end
local function write_zsets()
  for key, z in pairs(zsets) do
    local put, drop = {}, {}
    for member, score in pairs(z) do
      if score then put[#put + 1] = score put[#put + 1] = member else drop[#drop + 1] = member end
    end
    in_parts('ZREM', key, drop)
    in_parts('ZADD', key, put)
  end
  zsets = {}
end
local function first_score(key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end
