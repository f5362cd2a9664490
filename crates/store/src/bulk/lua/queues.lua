-- bulk queues: every queue that is configured or has been used; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua
-- RETURNS  for each: name, configured rate (per second), rate that the downstream sustains or "", starts in this
--   window, ready jobs, groups in its order, last cut (ms) or -1, held until (ms) or -1, running jobs, how many there
--   may be or -1
-- BOUND  the queues
local function exact(rps) return string.format('%.17g', rps) end
local out, heard = {}, {}
for i, queue in ipairs(M.queues) do
  heard[queue.n] = true
  local d = queue.d
  downstream.advance(d, configured(queue))
  local sustained = downstream.rate(d)
  out[i] = { queue.n, exact(configured(queue)), sustained and exact(sustained) or '',
    meter.at(queue.mt, configured(queue)), queue.r,
    queue.o[1].len + queue.o[2].len + queue.o[3].len, d.cut_at > 0 and floor(d.cut_at) or -1,
    d.hold == 1 and floor(d.hold_at) or -1, queue.run, running.most(queue) or -1 }
end
for name in pairs(C.queues) do
  if not heard[name] then out[#out + 1] = { name, exact(configured({ n = name })), '', 0, 0, 0, -1, -1, 0,
    running.most({ n = name }) or -1 } end
end
return { out }
