-- bulk expire_leases: takes jobs back from workers whose leases expired. Atomic, so that a late outcome of such a
-- worker finds its fence stale.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: maximum jobs
-- RETURNS  facts, then how many are delayed and how many dead, the next deadline (ms) or -1
-- BOUND  the maximum
local most = next_number()
local delayed, dead = 0, 0
local over = call('ZRANGEBYSCORE', K.inflight, '-inf', now, 'LIMIT', 0, most)
load_entries(over)
for _, text in ipairs(over) do
  local J = get_job(tonumber(text))
  local a, g = home(J)
  local kind, failures = kind_of(J.kind), J.att
  end_lease(J)
  feedback.lost(J, g)
  runs.record(J, runs.LEASE_EXPIRED, '')
  J.att, J.sp = failures + 1, NOWHERE
  if is_cancelled(J, a) then
    die(J, DIED.CANCELLED, '')
    dead = dead + 1
  elseif failures >= kind.retries then
    die(J, DIED.ATTEMPTS, 'no answer from worker ' .. J.owner .. ' before its lease ended')
    dead = dead + 1
  else
    delay(g, J, now + retry_backoff(kind, failures), DELAY.LEASE_EXPIRED)
    delayed = delayed + 1
  end
  lease_ended(g, J.queue)
end
local bits = flush()
return { bits, delayed, dead, first_score(K.inflight) or -1 }
