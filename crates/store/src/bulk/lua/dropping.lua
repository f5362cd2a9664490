-- Deletes finished jobs: each updates the counts, and the end removes the data of all of them. Shared by purge and
-- drop_finished.

local gone, gone_ids, touched, remembered = {}, {}, {}, {}

-- `by_retention`: while its batch is undecided, its id stays known.
local function drop_job(J, by_retention)
  local a = get_batch(J.a)
  local g = get_group(a.g)
  if J.sp == FINISHED then take_finished(g) end
  local free = a.cancelled and J.state == DEAD and J.death == DIED.CANCELLED
  local stays = by_retention and a.status <= BATCH.AGGREGATING and not a.implicit and not free
  a.kept = a.kept - 1
  a.d[1] = a.d[1] + 1
  if J.state == COMPLETED then
    a.d[2] = a.d[2] + 1
  else
    a.d[3] = a.d[3] + 1
    zdrop(K.dead, dead_entry(J))
  end
  shift(g, J.state, nil)
  gone[#gone + 1] = J.seq
  dropped_jobs[J.seq], jobs[J.seq] = true, false
  local ids = gone_ids[g.seq]
  if not ids then ids = {} gone_ids[g.seq] = ids end
  ids[#ids + 1] = job_id(J)
  if stays then
    local of = remembered[a.seq]
    if not of then of = {} remembered[a.seq] = of end
    of[#of + 1] = job_id(J)
    if not a.dropped then
      a.dropped = true
      g.remembering = g.remembering or {}
      g.remembering[#g.remembering + 1] = a.seq
    end
  end
  touched[a.seq] = a
end

local function write_dropped()
  in_parts('HDEL', K.job, gone)
  in_parts('HDEL', K.state, gone)
  in_parts('HDEL', K.runs, gone)
  for a, ids in pairs(remembered) do in_parts('SADD', names.dropped(int(a)), ids) end
  for g, ids in pairs(gone_ids) do in_parts('HDEL', names.ids(int(g)), ids) end
  -- Skips the numbers before the first kept job from now on.
  for _, a in pairs(touched) do
    local key = names.runs(int(a.seq))
    for _ = 1, 20 do
      local run = call('ZRANGE', key, 0, 0)[1]
      if not run then break end
      local first, count = string.match(run, '(%d+):(%d+)')
      first, count = tonumber(first), tonumber(count)
      local seqs, kept_from = {}, nil
      for i = 0, min(999, count - 1) do seqs[i + 1] = first + i end
      local there = call('HMGET', K.job, unpack(seqs))
      for i = 1, #seqs do
        if there[i] then kept_from = i - 1 break end
      end
      local passed = kept_from or #seqs
      if passed == 0 then break end
      call('ZREM', key, run)
      if passed < count then call('ZADD', key, first + passed, int(first + passed) .. ':' .. int(count - passed)) end
      if a.rf == first then a.rf, a.rn = first + passed, count - passed end
      if kept_from then break end
    end
  end
end
