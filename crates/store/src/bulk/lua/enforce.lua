-- Applies a record of limits to the rest of the running window and to every queue. A rate that its downstream lowered
-- stays low, unless adaptive control is switched off. Shared by configure_limits and adopt_limits.
local function enforce(settings, L)
  local most, raised, before, full, adaptive = rate.widest(), false, {}, {}, C.adaptive
  for i, queue in ipairs(M.queues) do before[i], full[i] = configured(queue), running.full(queue) end
  C = in_force(settings, L)
  if adaptive and not C.adaptive then
    for _, queue in ipairs(M.queues) do
      if not downstream.is_free(queue.d) then queue.d, raised = downstream.new(), true end
    end
    pair.forget()
    raised = true
  end
  for i, queue in ipairs(M.queues) do
    if configured(queue) > before[i] and downstream.is_free(queue.d) then raised = true end
    if full[i] and not running.full(queue) then raised = true end
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
