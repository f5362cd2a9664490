-- Batches: opened, filled, sealed; complete when every job is finished.
--
-- Shared by every transition that touches a job, so that exactly one call sees the last job of a batch end.

-- Every batch that was read is written back, unless the transition marks the ones it changes.
local batches, dropped_batches, changed_batches, marks_changes
resets[#resets + 1] = function()
  batches, dropped_batches, changed_batches, marks_changes = {}, {}, {}, false
end

local function get_batch(seq)
  local a = batches[seq]
  if a then return a end
  local raw = call('HGET', K.batch, seq)
  if not raw then return nil end
  a = decode(raw)
  a.seq = seq
  batches[seq] = a
  return a
end
local function find_batch(g, id)
  local seq = call('HGET', K.batch_ids, int(g.seq) .. ':' .. id)
  return seq and get_batch(tonumber(seq))
end
local function create_batch(g, id, threshold, keep, implicit, callback)
  local seq = give_seq()
  local a = {
    seq = seq, g = g.seq, id = id, th = threshold, keep = keep, status = BATCH.CREATED, sealed = false, paused = false,
    pz = 0, cancelled = false, implicit = implicit, cr = now, c = { 0, 0, 0 }, d = { 0, 0, 0 }, err = {},
    xf = 0, conf = false, un = 0, kept = 0, cf = 0, parked = {}, cb = callback,
  }
  batches[seq] = a
  M.batches = M.batches + 1
  call('HSET', K.batch_ids, int(g.seq) .. ':' .. id, seq)
  call('ZADD', names.batches(g.seq), seq, seq)
  call('ZADD', K.batch_seqs, seq, seq)
  g.opens[#g.opens + 1] = seq
  return a
end
local function raise_status(a, status)
  if a.status < status then a.status, changed_batches[a.seq] = status, true end
end
local function is_open(a) return a.status < BATCH.AGGREGATING end
local function keep_error(a, text)
  if #a.err >= 10 then return end
  for _, kept in ipairs(a.err) do
    if kept == text then return end
  end
  a.err[#a.err + 1] = text
end
-- The only transition to AGGREGATING: sealed, every job finished, and not aggregating yet.
local function complete_if_done(a)
  if not a.sealed or not is_open(a) or a.c[2] + a.c[3] < a.c[1] then return false end
  a.status, a.cf = BATCH.AGGREGATING, now
  zput(K.aggregating, padded(a.seq), now)
  notify_aggregate = true
  return true
end
local function without(array, value)
  local rest = {}
  for _, other in ipairs(array) do
    if other ~= value then rest[#rest + 1] = other end
  end
  return rest
end
local function seal(a)
  if a.sealed then return false end
  a.sealed = true
  local g = get_group(a.g)
  g.opens = without(g.opens, a.seq)
  return complete_if_done(a)
end
-- The batch is decided or dropped: from here on its ids are known as long as its jobs are kept.
local function forget_dropped(g, a)
  if not a.dropped then return end
  a.dropped = nil
  g.remembering = without(g.remembering, a.seq)
  call('UNLINK', names.dropped(int(a.seq)))
end
-- Runs of job numbers: those of one call are adjacent.
local function add_run(a, first, count)
  local key = names.runs(a.seq)
  if a.rf and a.rf + a.rn == first then
    call('ZREM', key, int(a.rf) .. ':' .. int(a.rn))
    first, count = a.rf, a.rn + count
  end
  a.rf, a.rn = first, count
  call('ZADD', key, first, int(first) .. ':' .. int(count))
end
-- Up to `want` numbers of the batch from `from` on, of jobs kept or dropped.
local function numbers_from(a, from, want)
  local key, out = names.runs(a.seq), {}
  local runs = call('ZREVRANGEBYSCORE', key, from, '-inf', 'LIMIT', 0, 1)
  local later = call('ZRANGEBYSCORE', key, '(' .. int(from), '+inf', 'LIMIT', 0, want)
  for _, run in ipairs(later) do runs[#runs + 1] = run end
  for _, run in ipairs(runs) do
    local first, count = string.match(run, '(%d+):(%d+)')
    first, count = tonumber(first), tonumber(count)
    for seq = max(first, from), first + count - 1 do
      if #out >= want then return out end
      out[#out + 1] = seq
    end
  end
  return out
end
local function write_batches()
  local put = {}
  for seq, a in pairs(batches) do
    if not dropped_batches[seq] and (changed_batches[seq] or not marks_changes) then
      a.seq = nil
      put[#put + 1] = seq
      put[#put + 1] = encode(a)
      a.seq = seq
    end
  end
  in_parts('HSET', K.batch, put)
end
