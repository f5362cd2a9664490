-- Stores the number of partitions of each topic, unless it is already stored.
-- KEYS  layout <prefix>log:{layout} (hash: topic to partitions)
-- ARGV  topic and partitions of each
-- RETURNS the stored number of partitions of each topic
-- BOUND the topics
local layout = KEYS[1]

local known = {}
for place = 1, #ARGV, 2 do
  call('HSETNX', layout, ARGV[place], ARGV[place + 1])
  known[#known + 1] = tonumber(call('HGET', layout, ARGV[place]))
end
return known
