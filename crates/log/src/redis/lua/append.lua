-- Appends records to one partition, all of them or none, with consecutive offsets. Atomic, because it takes an offset
-- and uses it. Idempotent: a retry after a lost reply names the same request again.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash), recent …:recent (list)
-- ARGV  again ('1': an earlier attempt may have run), now (ms or ''), request (text), then key and value of each record
-- RETURNS the offset of the first record
-- BOUND the records of the call and foreign entries; it remembers 256 requests
local records, head, recent = KEYS[1], KEYS[2], KEYS[3]
local again, now, request = ARGV[1], time(ARGV[2]), ARGV[3]
local REMEMBERED = 256

if again == '1' then
  for _, known in ipairs(call('LRANGE', recent, 0, -1)) do
    local name, first = string.match(known, '^(.*):(%d+)$')
    if name == request then return tonumber(first) end
  end
end
local first, at = adopt(records, head, now)
-- Time never decreases within a partition: the search for expired records relies on it.
at = math.max(at, now)
local next = first
for place = 4, #ARGV, 2 do
  local entry = { 'XADD', records, id(next), 't', whole(at), 'k', ARGV[place], 'v', ARGV[place + 1] }
  -- A deleted foreign entry leaves its id behind.
  if next == first and redis.pcall(unpack(entry)).err then
    rewind(records, first)
    call(unpack(entry))
  elseif next > first then
    call(unpack(entry))
  end
  next = next + 1
end
call('HSET', head, 'end', whole(next), 'at', whole(at))
call('LPUSH', recent, request .. ':' .. whole(first))
call('LTRIM', recent, 0, REMEMBERED - 1)
return first
