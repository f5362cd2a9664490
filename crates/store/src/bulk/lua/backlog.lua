-- bulk backlog: what waits and runs in each queue, and since when; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: maximum flows inspected of a queue and priority
-- RETURNS  for each queue: name, waiting, delayed and running jobs, when the oldest of the jobs that go next was accepted
--   (ms) or -1
-- BOUND  the flows inspected, and 10,000 stale entries of each
local most, out = next_number(), {}
for index, queue in ipairs(M.queues) do
  local oldest
  for priority = 1, 3 do
    for _, text in ipairs(call('ZRANGE', names.order(index, priority), 0, most - 1)) do
      local g = get_group(tonumber(string.match(text, ':(%d+)')))
      local flow = g and g.flows[index .. ':' .. priority]
      local created = flow and first_created(g, flow)
      if created then oldest = min(oldest or created, created) end
    end
  end
  out[index] = { queue.n, queue.un - queue.dl - queue.run, queue.dl, queue.run, oldest and floor(oldest / 1000) * 1000 or -1 }
end
return out
