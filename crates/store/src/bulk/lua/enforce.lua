-- Applies a record of limits to the rest of the running window and to every queue. A rate that its downstream lowered
-- stays low. Shared by configure_limits and adopt_limits.
local function enforce(settings, L)
  local most, raised, before = rate.widest(), false, {}
  for i, queue in ipairs(M.queues) do before[i] = configured(queue) end
  C = in_force(settings, L)
  for i, queue in ipairs(M.queues) do
    if configured(queue) > before[i] and downstream.is_free(queue.d) then raised = true end
  end
  if rate.widest() > most then
    raised = true
    -- The next pick holds those that are still at their ceiling again.
    if C.strict then unhold_turned(M.win + 1) end
  end
  if raised then notify_work = true end
  call('SET', K.config, encode(C))
  call('SET', K.limits, encode(L))
end
