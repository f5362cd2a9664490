-- What the functions share. Offsets are the first half of a stream's ids, so a record is found without an index;
-- they stay below 2^53, which a double holds exactly.

-- Looked up when it is used: there is no `redis.call` yet when a library is loaded.
local function call(...) return redis.call(...) end

-- The server's time in milliseconds, or the one that a test passes in.
local function time(given)
  if given ~= '' then return tonumber(given) end
  local now = call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function whole(number) return string.format('%.0f', number) end

local function id(offset) return whole(offset) .. '-1' end

-- Where a partition begins and ends, and when its last record was appended.
local function bounds(head)
  local found = call('HMGET', head, 'start', 'end', 'at')
  return tonumber(found[1] or '0'), tonumber(found[2] or '0'), tonumber(found[3] or '0')
end

-- When the record at an offset was appended; nil if it is not there. A record's fields are t, k, v in this order.
local function appended_at(records, offset)
  local found = call('XRANGE', records, id(offset), id(offset))
  if #found == 0 then return nil end
  return tonumber(found[1][2][2])
end

-- Drops everything before an offset.
local function drop_before(records, head, offset)
  call('XTRIM', records, 'MINID', '=', id(offset))
  call('HSET', head, 'start', whole(offset))
end

-- Whether the lease is that of this member, under this fence.
local function held(lease, member, fence)
  local found = call('HMGET', lease, 'owner', 'fence')
  return found[1] == member and found[2] == fence
end
