-- claim_aggregation: hands complete actions to a watcher. max, claim for.
local most, length = next_number(), next_number()
local out = {}
local free = call('ZRANGEBYSCORE', K.aggregating, '-inf', now, 'LIMIT', 0, most)
for i, text in ipairs(free) do
  local a = get_action(tonumber(text))
  a.claim, a.cf = give_seq(), now + length
  zput(K.aggregating, text, a.cf)
  out[i] = { get_group(a.g).id, a.id, a.claim, a.c[1], a.c[2], a.c[3], a.keep and 1 or 0, a.status, a.err }
end
return { flush(), out }
