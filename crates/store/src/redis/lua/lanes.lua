-- lanes: every lane that is configured or was heard of. Reads, changing nothing.
-- Answers per lane: name, configured rate and pace in thousandths, starts in this window, jobs in ready, groups
-- in its order, last cut or -1.
local out, heard = {}, {}
for i, lane in ipairs(M.lanes) do
  raise_pace(lane)
  heard[lane.n] = true
  out[i] = { lane.n, configured(lane), lane.p, lane.s, lane.r, lane.o[1].len + lane.o[2].len + lane.o[3].len,
    lane.cut or -1 }
end
for name in pairs(C.lanes) do
  if not heard[name] then
    local rate = configured({ n = name })
    out[#out + 1] = { name, rate, rate, 0, 0, 0, -1 }
  end
end
return { out }
