-- bulk drop_finished: deletes finished jobs, finished batches and idle groups by age and by count. Atomic, so that
-- the counts match the data, and no batch loses jobs that its reducer still needs.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: maximum deletions, age of finished jobs (ms) or "" for the configured one, then what other
--   shards keep: finished jobs, finished batches, idle groups
-- RETURNS  facts, then how many jobs, batches and groups were deleted, 1 if more are due, finished batches and idle
--   groups left
-- BOUND  the maximum, plus 20,000 stale entries, 20,000 numbers of deleted jobs per batch, and the batches of a
--   deleted group
local budget, age = next_number(), next_number()
age = age or C.job_age
-- This shard's share of the total to keep.
local function part(most, own)
  local others = next_number()
  return others == 0 and most or floor(most * own / max(1, own + others))
end
local jobs_max = part(C.jobs_max, M.fin)
local batches_max = part(C.batches_max, call('ZCARD', K.finished_batches))
local groups_max = part(C.batches_max, call('ZCARD', K.idle))
local n_jobs, n_batches, n_groups = 0, 0, 0

-- The first finished job that a group keeps. Replayed and purged jobs have left their entries behind.
local stale = 0
local function first_finished(g)
  local l = list(names.finished(int(g.seq)))
  while stale < 20000 do
    local text, got = head(l, l.read == 0 and 1 or min(1000, budget))
    if not text then return nil end
    if got then load_entries(got) end
    local J = job_at(text)
    if J and J.state >= COMPLETED then return J, l end
    stale = stale + 1
    pop(l)
  end
end
local function drop_first(J, l)
  budget = budget - 1
  n_jobs = n_jobs + 1
  pop(l)
  drop_job(J, true)
end
-- The group's place among the others follows from its first finished job.
local function settle_place(g)
  local J = g.fin > 0 and first_finished(g)
  if J then zput(K.finished, padded(g.seq), J.at) end
  write_zsets()
end

while budget > 0 and stale < 20000 do
  local text = call('ZRANGE', K.crowded, 0, 0)[1]
  if not text then break end
  local g = get_group(tonumber(text))
  while budget > 0 and g.fin > C.jobs_max_group do
    local J, l = first_finished(g)
    if not J then break end
    drop_first(J, l)
  end
  if g.fin <= C.jobs_max_group then zdrop(K.crowded, text) end
  settle_place(g)
end
while budget > 0 and stale < 20000 do
  local two = call('ZRANGE', K.finished, 0, 1, 'WITHSCORES')
  if not two[1] or (now - tonumber(two[2]) <= age and M.fin <= jobs_max) then break end
  local g, next_at = get_group(tonumber(two[1])), tonumber(two[4])
  local due = true
  while due and budget > 0 do
    local J, l = first_finished(g)
    due = J and (now - J.at <= age and M.fin <= jobs_max) == false
      and not (next_at and (J.at > next_at or (J.at == next_at and two[1] > two[3])))
    if due then drop_first(J, l) end
  end
  settle_place(g)
end

local function drop_batch(a)
  local g = get_group(a.g)
  forget_dropped(g, a)
  call('HDEL', K.batch, a.seq)
  call('HDEL', K.summary, a.seq)
  call('HDEL', K.batch_ids, int(a.g) .. ':' .. a.id)
  call('ZREM', K.cancelling, a.seq)
  call('ZREM', names.batches(int(a.g)), a.seq)
  call('ZREM', K.batch_seqs, a.seq)
  call('DEL', names.runs(int(a.seq)))
  for _, parked in ipairs(a.parked) do call('DEL', names.parked(int(a.seq), parked.k)) end
  g.opens = without(g.opens, a.seq)
  M.batches = M.batches - 1
  dropped_batches[a.seq], touched[a.seq] = true, nil
end

local candidates = call('ZCARD', K.finished_batches)
local kept = candidates
while budget > 0 and candidates > 0 do
  local first = call('ZRANGE', K.finished_batches, 0, 0, 'WITHSCORES')
  local finished_at = tonumber(first[2])
  if now - finished_at <= C.batch_age and kept <= batches_max then break end
  budget, candidates = budget - 1, candidates - 1
  local a = get_batch(tonumber(first[1]))
  if a.un > 0 then
    -- A replayed job still refers to it.
    call('ZADD', K.finished_batches, now, first[1])
    a.fin = now
  else
    local from, passed = 0, 0
    while a.kept > 0 and budget > 0 and passed < 20000 do
      local seqs = numbers_from(a, from, min(1000, budget))
      if #seqs == 0 then break end
      load_jobs(seqs)
      for _, seq in ipairs(seqs) do
        from, passed = seq + 1, passed + 1
        if jobs[seq] and budget > 0 then
          budget = budget - 1
          n_jobs = n_jobs + 1
          drop_job(jobs[seq])
        end
      end
    end
    if a.kept == 0 then
      call('ZREM', K.finished_batches, first[1])
      kept = kept - 1
      drop_batch(a)
      n_batches = n_batches + 1
    else
      break
    end
  end
end

local function unused(a) return a.implicit and not a.sealed and a.kept == 0 end
local function droppable(g)
  if g.paused or g.bp ~= 0 or g.lt then return false end
  -- What it started in this window counts for a group of this name that comes at once.
  for index in ipairs(M.queues) do
    local p = pair.any(g, index)
    if p and ((p.w == M.win and p.n > 0) or p.o) and pair.limit(g, index) then return false end
  end
  for state = 1, 6 do
    if g.c[state] > 0 then return false end
  end
  for _, seq in ipairs(call('ZRANGE', names.batches(int(g.seq)), 0, 9)) do
    if not unused(get_batch(tonumber(seq))) then return false end
  end
  return call('ZCARD', names.batches(int(g.seq))) <= 10
end
write_zsets()
candidates = call('ZCARD', K.idle)
kept = candidates
while budget > 0 and candidates > 0 do
  local first = call('ZRANGE', K.idle, 0, 0, 'WITHSCORES')
  local idle_since = tonumber(first[2])
  local too_old = now - idle_since > C.batch_age
  if not too_old and kept <= groups_max then break end
  budget, candidates = budget - 1, candidates - 1
  local g = get_group(tonumber(first[1]))
  if not droppable(g) then
    -- A group over the count but not over the age moves behind the others, or it would hide them.
    g.idle = too_old and now - C.batch_age + 3600000 or now
    call('ZADD', K.idle, g.idle, first[1])
  else
    for _, seq in ipairs(call('ZRANGE', names.batches(int(g.seq)), 0, -1)) do drop_batch(get_batch(tonumber(seq))) end
    call('ZREM', K.idle, first[1])
    held.set(g, nil)
    pair.unhold_all(g)
    call('ZREM', K.group_seqs, g.seq)
    call('ZREM', K.congested, g.seq)
    call('HDEL', K.group_ids, g.id)
    call('HDEL', K.group, g.seq)
    call('DEL', names.ids(int(g.seq)), names.history(int(g.seq)), names.batches(int(g.seq)), names.finished(int(g.seq)))
    for index, queue in ipairs(M.queues) do
      for priority = 1, 3 do
        if queue.o[priority].rem > 0 then
          queue.o[priority].rem = queue.o[priority].rem - call('ZREM', names.remembered(index, priority), g.seq)
        end
      end
    end
    dropped_groups[g.seq], gone_ids[g.seq] = true, nil
    M.groups = M.groups - 1
    kept = kept - 1
    n_groups = n_groups + 1
  end
end

write_dropped()
local more = budget == 0 and n_jobs + n_batches + n_groups > 0
return { flush(), n_jobs, n_batches, n_groups, more and 1 or 0, call('ZCARD', K.finished_batches), call('ZCARD', K.idle) }
