-- Applies a record of limits to the rest of the running window and to every queue. A rate that its downstream lowered
-- stays low, unless adaptive control is switched off. Shared by configure_limits and adopt_limits.
local function enforce(L)
  local most, raised, before, adaptive = rate.widest(), false, {}, C.adaptive
  local function each(queue) return C.queues[queue.n] or {} end
  for i, queue in ipairs(M.queues) do
    before[i] = { configured(queue), running.full(queue), each(queue).grps, each(queue).grun }
  end
  C = in_force(cjson.decode(call('GET', K.settings)), L)
  if adaptive and not C.adaptive then
    for _, queue in ipairs(M.queues) do
      if not downstream.is_free(queue.d) then queue.d, raised = downstream.new(), true end
    end
    pair.forget()
    raised = true
  end
  for i, queue in ipairs(M.queues) do
    local was, is = before[i], each(queue)
    if configured(queue) > was[1] and downstream.is_free(queue.d) then raised = true end
    if was[2] and not running.full(queue) then raised = true end
    if is.grps ~= was[3] or is.grun ~= was[4] then pair.release(i) end
  end
  if rate.widest() > most then
    raised = true
    -- The next pick holds those that are still at a limit again.
    if C.strict then held.release('+inf') end
  end
  if raised then notify_work = true end
  call('SET', K.config, encode(C))
  call('SET', K.limits, encode(L))
end
