-- Applies a record of limits to the rest of the running window and to every queue's pace. A pace that was cut stays
-- cut. Shared by configure_limits and adopt_limits.
local function enforce(settings, L)
  local limit, raised, whole, pace = C.limit, false, {}, {}
  for i, queue in ipairs(M.queues) do
    raise_pace(queue)
    pace[i], whole[i] = queue.p, queue.p == configured(queue)
  end
  C = in_force(settings, L)
  for i, queue in ipairs(M.queues) do
    queue.p = whole[i] and configured(queue) or min(pace[i], configured(queue))
    if queue.p > pace[i] then raised = true end
  end
  if C.limit > limit then
    raised = true
    -- The next pick holds those that are still at their ceiling again.
    if C.strict then unhold_turned(M.win + 1) end
  end
  if raised then notify_work = true end
  call('SET', K.config, encode(C))
  call('SET', K.limits, encode(L))
end
