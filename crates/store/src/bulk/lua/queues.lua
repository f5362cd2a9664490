-- bulk queues: every queue that is configured or has been used; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua
-- RETURNS  for each: name, configured rate and pace (thousandths per second), starts in this window, ready jobs,
--   groups in its order, last cut (ms) or -1
-- BOUND  the queues
local out, heard = {}, {}
for i, queue in ipairs(M.queues) do
  raise_pace(queue)
  heard[queue.n] = true
  out[i] = { queue.n, configured(queue), queue.p, queue.s, queue.r, queue.o[1].len + queue.o[2].len + queue.o[3].len,
    queue.cut or -1 }
end
for name in pairs(C.queues) do
  if not heard[name] then
    local rate = configured({ n = name })
    out[#out + 1] = { name, rate, rate, 0, 0, 0, -1 }
  end
end
return { out }
