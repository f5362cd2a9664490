-- limits: the rates that hold, and who changed them. Reads, changing nothing.
-- Answers what is told of them (see rates), the limit, the length of a window.
return { told(cjson.decode(call('GET', K.settings)), limits_of(call('GET', K.limits))), C.limit, C.window }
