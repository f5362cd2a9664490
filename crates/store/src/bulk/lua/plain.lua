-- The fast path of a lease: fresh jobs of groups and batches without special settings. It shares the call with the
-- slow path, which continues where this one stops.

-- Plain starts: fresh jobs of groups and batches without special settings, while only one priority waits. Values they
-- share are computed once. A lease begins with them and continues on the slow path; the result is the same as on the
-- slow path alone. Fills `out` and `of` in the format of a lease reply, and returns how many it started.
local function plain_starts(index, queue, most, who, out, of)
  local priority
  for v = 1, 3 do
    if queue.o[v].len > 0 then
      if priority then return 0 end
      priority = v
    end
  end
  if not priority or queue.r > 0 or C.strict or C.score or not downstream.is_free(queue.d) then return 0 end
  local each, pair_key = C.queues[queue.n], tostring(index)
  if each and (each.grps or each.grun) then return 0 end
  local o, starts = queue.o[priority], min(most, room(queue))
  if o.vt > TAG_LIMIT / 2 then return 0 end
  local pack, bytes, text_of, has_kinds = struct.pack, string.byte, string.sub, next(C.kinds) ~= nil
  local credit, percent = queue.c[priority], priority == 1 and 0 or priority == 2 and C.normal_min or C.low_min
  local blobs, infos, put, ends, n = {}, {}, {}, {}, 0
  local head_of_state = pack('>BBI2I2I2', RUNNING, NOWHERE, 0, 0, 0)
  local zeros, last_flow = string.rep('0', 16), nil

  -- What all plain starts of a batch (and type, if types have settings) share; false if it is special.
  local function info_of(aseq, kind)
    local a = get_batch(aseq)
    if a.cancelled or a.paused then return false end
    raise_status(a, BATCH.RUNNING)
    local settings = kind_of(kind)
    local at = now + settings.timeout + C.margin
    local g = get_group(a.g)
    of[#of + 1] = g.id
    of[#of + 1] = a.id
    local tail = pack('>I7BBBI2', at, DELAY.SCHEDULED, DIED.FAILED, 0, 0)
      .. pack(LEASE, now, 0, aseq, index, priority, 1, #kind, #who, 0) .. kind .. who .. request
    return { at = at, timeout = settings.timeout, index = #of / 2, tail = tail }
  end

  while n < starts do
    local g, flow = first_flow(index, priority, min(1000, max(8, starts)))
    if not g or flow.nr > 0 or flow.nt > 0 or flow.stale or g.lr or g.lm or g.lq or pair.of(g, index) then break end
    local of_flow = lists_of[flow]
    local l = of_flow and of_flow.f
    if not l then
      l = list(names.flow(int(g.seq), flow.k, 'f'))
      lists_of[flow] = { f = l }
    end
    local text = l.buf[l.i]
    if not text then
      local got
      text, got = head(l, min(flow.nf, math.ceil((starts - n) / o.len) + 1))
      if not got then break end
      local bodies = call('HMGET', K.job, unpack(got))
      for i = 1, #got do blobs[got[i]] = bodies[i] end
    end
    local blob = blobs[text]
    if not blob or bytes(blob, 14) >= 8 then break end
    local aseq, kind = unpack_blob('>I5', blob), ''
    local key = aseq
    if has_kinds then
      kind = read_job(0, blob).kind
      key = aseq .. ':' .. kind
    end
    local info = infos[key]
    if info == nil then
      info = info_of(aseq, kind)
      infos[key] = info
    end
    if not info then break end

    -- The pick: as pick, reenter_order and insert_flow do.
    l.i, l.popped = l.i + 1, l.popped + 1
    flow.nf = flow.nf - 1
    local tag, h = flow.tag, heaps[place_of(index, priority)]
    if tag > o.vt then o.vt = tag end
    flow.tag, flow.since, flow.served = tag + g.step, now, flow.served + 1
    throughput.starts(flow)
    if flow.nf > 0 then
      o.turn = o.turn + 1
      throughput.leaves(o, flow)
      throughput.enters(o, g, flow)
      flow.pk, flow.pt = flow.tag, o.turn
      local top = h[1]
      top[1], top[2] = flow.pk, flow.pt
      heap.replace(h, top)
    else
      leave_order(flow)
      heap.pop(h)
    end
    credit = max(0, min(200, credit + percent) - 100)
    last_flow = flow

    -- The start.
    local fence, of_group = M.fence, g.c
    M.fence = fence + 1
    local own, p = g.mt, g.pairs and g.pairs[pair_key] or pair.make(g, index)
    if own.w ~= M.win or own.o then meter.charge(own, nil, 0) end
    if p.w ~= M.win or p.o then meter.charge(p, nil, 0) end
    own.n, p.n, p.run = own.n + 1, p.n + 1, p.run + 1
    of_group[WAITING], of_group[RUNNING] = of_group[WAITING] - 1, of_group[RUNNING] + 1
    local b = n * 7
    out[b + 1], out[b + 2], out[b + 3], out[b + 4] = text, fence, info.index, 1
    out[b + 5], out[b + 6], out[b + 7] = info.at, info.timeout, blob
    n = n + 1
    put[n * 2 - 1], put[n * 2] = text, head_of_state .. pack('>I7', fence) .. info.tail
    ends[n * 2 - 1], ends[n * 2] = info.at, text_of(zeros .. text, -16)
  end
  if n == 0 then return 0 end
  queue.c[1], queue.c[2], queue.c[3] = 0, 0, 0
  queue.c[priority] = credit
  queue.run, M.tstarted = queue.run + n, M.tstarted + n
  meter.charge(M.mt, C.rps, n)
  meter.charge(queue.mt, configured(queue), n)
  if granted then granted = granted - n end
  downstream.start(queue.d, n)
  M.most = max(M.most, M.mt.n)
  M.c[WAITING], M.c[RUNNING] = M.c[WAITING] - n, M.c[RUNNING] + n
  forget_tags(last_flow)
  in_parts('HSET', K.state, put)
  in_parts('ZADD', K.inflight, ends)
  return n
end
