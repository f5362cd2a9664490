-- Drops the expired records of one partition, and sooner those that every group is done with. Allowed when the server
-- is out of memory, because it frees some.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash), offsets …:offsets (hash),
--       groups …:groups (set)
-- ARGV  now (ms or ''), retention (ms), retention of done records (ms), max (records to drop)
-- RETURNS how many records it dropped
-- BOUND the groups, max records dropped, and log(max) records read: times never decrease, so a binary search works
local records, head, offsets, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, retention, completed_retention, max = time(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local start, finish = bounds(head)

-- The first offset up to `high` that is not older than the span.
local function older(high, span)
  local low = start
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = appended_at(records, middle)
    if at == nil or at < now - span then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local bound = math.min(finish, start + max)
local keep = older(bound, retention)
local done
for _, group in ipairs(call('SMEMBERS', groups)) do
  local committed = tonumber(call('HGET', offsets, group) or '0')
  done = math.min(done or committed, committed)
end
if done and completed_retention < retention then keep = math.max(keep, older(math.min(bound, done), completed_retention)) end
if start < keep then drop_before(records, head, keep) end
return keep - start
