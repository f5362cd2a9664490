-- Shared functions. Offsets are the first half of a stream's ids, so a record is found without an index; they stay
-- below 2^53, which a double holds exactly.

-- Looked up on use: `redis.call` does not exist yet while a library loads.
local function call(...) return redis.call(...) end

-- The server's time in milliseconds, or the one that a test passes in.
local function time(given)
  if given ~= '' then return tonumber(given) end
  local now = call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function whole(number) return string.format('%.0f', number) end

local function id(offset) return whole(offset) .. '-1' end

-- Start and end of a partition, and the time of its last record.
local function bounds(head)
  local found = call('HMGET', head, 'start', 'end', 'at')
  return tonumber(found[1] or '0'), tonumber(found[2] or '0'), tonumber(found[3] or '0')
end

-- When the record at an offset was appended; nil if it does not exist. A record's fields are t, k, v in this order.
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

-- Whether this member holds the lease, under this fence, taken in this run of the server. A lease of another run is
-- void: the server may have lost its last writes since, and given their offsets to other records.
local function held(lease, member, fence, run)
  local found = call('HMGET', lease, 'owner', 'fence', 'run')
  return found[1] == member and found[2] == fence and found[3] == run
end

-- Resets a stream's last id to that of our last record.
local function rewind(records, finish)
  if finish == 0 then
    call('DEL', records)
    return
  end
  local info, last = call('XINFO', 'STREAM', records), nil
  for place = 1, #info, 2 do
    if info[place] == 'last-generated-id' then last = info[place + 1] end
  end
  -- Redis accepts an id below that of a deleted entry only once that entry is forgotten.
  call('XSETID', records, last, 'ENTRIESADDED', call('XLEN', records), 'MAXDELETEDID', id(0))
  call('XSETID', records, id(finish - 1))
end

-- Turns foreign entries behind ours into records, in their order. An entry with the fields of a record keeps its key
-- and value. Any other becomes the value of a record without a key, as JSON: its id, and a list of its fields. They
-- are rewritten under ids of ours: foreign ids may be times, and nothing could be appended below them. Returns the
-- end of the partition, and the time of its last record.
local function adopt(records, head, now)
  local _, finish, at = bounds(head)
  local found = call('XRANGE', records, finish > 0 and '(' .. id(finish - 1) or '-', '+')
  if #found == 0 then return finish, at end
  for _, entry in ipairs(found) do call('XDEL', records, entry[1]) end
  rewind(records, finish)
  at = math.max(at, now)
  for _, entry in ipairs(found) do
    local fields, key, value = entry[2], '', nil
    if #fields == 6 and fields[1] == 't' and fields[3] == 'k' and fields[5] == 'v' then
      key, value = fields[4], fields[6]
    else
      value = cjson.encode({ entry[1], fields })
    end
    call('XADD', records, id(finish), 't', whole(at), 'k', key, 'v', value)
    finish = finish + 1
  end
  call('HSET', head, 'end', whole(finish), 'at', whole(at))
  return finish, at
end
