-- limits: the rates in effect, and who changed them; read-only.
-- Returns the record of rates (see rates), the limit, the length of a window.
return { told(cjson.decode(call('GET', K.settings)), limits_of(call('GET', K.limits))), C.limit, C.window }
