-- Puts a record of limits in force: for what is left of the running window, and for every lane's pace. A pace
-- that was cut stays cut.
local function enforce(settings, L)
  local limit, raised, whole, pace = C.limit, false, {}, {}
  for i, lane in ipairs(M.lanes) do
    raise_pace(lane)
    pace[i], whole[i] = lane.p, lane.p == configured(lane)
  end
  C = in_force(settings, L)
  for i, lane in ipairs(M.lanes) do
    lane.p = whole[i] and configured(lane) or min(pace[i], configured(lane))
    if lane.p > pace[i] then raised = true end
  end
  if C.limit > limit then
    raised = true
    -- Those that are still at their ceiling meet it again at the next pick.
    if C.strict then unhold_turned(M.win + 1) end
  end
  if raised then ring_work = true end
  call('SET', K.config, encode(C))
  call('SET', K.limits, encode(L))
end
