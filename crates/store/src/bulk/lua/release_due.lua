-- bulk release_due: transitions of jobs that are not running, driven by time: delayed jobs that are due, expired
-- jobs, ready jobs that nobody fetched, jobs of cancelled batches, and jobs whose type has another queue now. Atomic, so
-- that no worker leases a job meanwhile.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: maximum jobs of each kind
-- RETURNS  facts, then how many were released, expired and recalled, 1 if jobs of cancelled batches or to
--   move are left, the next due time (ms) or -1
-- BOUND  five times the maximum, plus stale entries at the heads of the flows that it touches
local most = next_number()
held.release_due()
local released, expired, recalled = 0, 0, 0
local moving = move.some(most)

local due = call('ZRANGEBYSCORE', K.delayed, '-inf', now, 'LIMIT', 0, most)
load_entries(due)
for _, text in ipairs(due) do
  local J = get_job(tonumber(text))
  local _, g = home(J)
  detach(J)
  set_waiting(g, J)
  move.home(J)
  push_returned(g, g.flows[J.queue .. ':' .. J.v], J)
  released = released + 1
end

-- A running job stays with its worker; the next pick would see that it has expired.
local skipped = 0
while expired < most do
  local got = call('ZRANGEBYSCORE', K.expiring, '-inf', now, 'LIMIT', skipped, most - expired)
  if #got == 0 then break end
  load_entries(got)
  for _, text in ipairs(got) do
    local J = get_job(tonumber(text))
    zdrop(K.expiring, text)
    skipped = skipped + 1
    if J and J.state ~= RUNNING then
      detach(J)
      die(J, DIED.EXPIRED, '')
      expired = expired + 1
    end
  end
end

-- Ready jobs reserve starts in the window. If no worker has fetched the first of them for two windows, they give
-- their reservations back to queues that have workers, the last admitted first.
for index, queue in ipairs(M.queues) do
  local overdue
  while queue.r > 0 and recalled < most do
    local key = names.ready(index)
    local l = list(key)
    if not overdue then
      local first
      while not first do
        local text = head(l, 8)
        first = job_at(text)
        if not first then pop(l) end
      end
      overdue = first.at + 2 * C.window
      write_list(l)
    end
    if overdue > now then break end
    local text = call('LINDEX', key, -1)
    local J = job_at(text)
    call('RPOP', key)
    if J then
      unready(J)
      recalled = recalled + 1
    end
  end
end

local budget = most
while budget > 0 do
  local first = call('ZRANGE', K.cancelling, 0, 0)[1]
  if not first then break end
  local a = get_batch(tonumber(first))
  if not a or not a.cur then
    call('ZREM', K.cancelling, first)
    if a then a.cur = nil end
  end
  local left = a and cancelling.jobs(a, budget) or budget
  if left == budget and a and a.cur then break end
  budget = left
end
drop_stale_heads()
local bits = flush()
local next_due, expiring = first_score(K.delayed), first_score(K.expiring)
if expiring and (not next_due or expiring < next_due) then next_due = expiring end
for index in ipairs(M.queues) do
  local till = pair.next(index)
  if till and (not next_due or till < next_due) then next_due = till end
end
local more = moving and 1 or call('EXISTS', K.cancelling)
return { bits, released, expired, recalled, more, next_due or -1 }
