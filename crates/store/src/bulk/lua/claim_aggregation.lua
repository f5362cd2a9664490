-- bulk claim_aggregation: hands complete batches to an aggregator for a while. Atomic, so that one aggregator has a
-- batch at a time.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: maximum batches, length of the claim (ms)
-- RETURNS  facts, then for each: group, batch, claim, total, completed, dead, 1 if it keeps results, status, errors,
--   callback or ""
-- BOUND  the maximum; a retry inspects up to 10,000 batches for those of its first attempt
local most, length = next_number(), next_number()
local out = {}
local function claimed(a)
  return { get_group(a.g).id, a.id, a.claim, a.c[1], a.c[2], a.c[3], a.keep and 1 or 0, a.status, a.err,
    a.cb or '' }
end
if retried then
  -- A retry of the same call returns what the first attempt claimed.
  for _, text in ipairs(call('ZRANGE', K.aggregating, 0, 9999)) do
    local a = get_batch(tonumber(text))
    if a.rq == request then out[#out + 1] = claimed(a) end
  end
  if #out > 0 then return { nothing(), out } end
end
local free = call('ZRANGEBYSCORE', K.aggregating, '-inf', now, 'LIMIT', 0, most)
for i, text in ipairs(free) do
  local a = get_batch(tonumber(text))
  a.claim, a.cf, a.rq = give_seq(), now + length, request
  zput(K.aggregating, text, a.cf)
  out[i] = claimed(a)
end
return { flush(), out }
