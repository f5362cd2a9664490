-- Drops the entries of ended jobs from the heads of the flows that a call has inspected. So a reader of such a flow
-- has few of them to skip, however many jobs ended at once. Shared by cancel and release_due.
local function drop_stale_heads()
  for _, g in pairs(groups) do
    for _, flow in pairs(g.flows) do
      if flow.stale and flow_len(flow) > 0 then
        local name = flow.nr > 0 and 'r' or flow.nt > 0 and 't' or 'f'
        local l, ahead = list(names.flow(int(g.seq), flow.k, name)), 1
        while true do
          local text, got = head(l, ahead)
          if got then load_entries(got) end
          if not text or job_at(text) then break end
          pop(l)
          ahead = 100
        end
      end
    end
  end
end
