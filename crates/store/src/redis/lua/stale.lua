-- Takes the entries of ended jobs from the heads of the lines that a call has looked at. However many are ended at
-- once, whoever reads where such a line stands has few of them to pass.
local function drop_stale_heads()
  for _, g in pairs(groups) do
    for _, line in pairs(g.lines) do
      if line.stale and line_len(line) > 0 then
        local name = line.nr > 0 and 'r' or line.nt > 0 and 't' or 'f'
        local l, ahead = list(names.line(int(g.seq), line.k, name)), 1
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
