-- When the first job of a flow was accepted. Skips entries of ended jobs, but only a few (see stale).
local function first_created(g, flow)
  local name = flow.nr > 0 and 'r' or flow.nt > 0 and 't' or 'f'
  local key, from = names.flow(int(g.seq), flow.k, name), 0
  while from < 10000 do
    local got = call('LRANGE', key, from, from == 0 and 0 or from + 99)
    if #got == 0 then return nil end
    load_entries(got)
    for _, text in ipairs(got) do
      local J = job_at(text)
      if J then
        local _, created = unpack_blob(BLOB, J.blob)
        return created
      end
    end
    from = from + #got
  end
end
