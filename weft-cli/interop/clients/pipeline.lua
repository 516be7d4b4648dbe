-- Sixteen requests at a time on each connection, of three kinds.
local all

init = function()
  -- Only now is the Host field known.
  local kinds = {
    wrk.format("GET", "/hello.txt"),
    wrk.format("GET", "/sub/"),
    wrk.format("GET", "/hello.txt", { ["Host"] = wrk.headers["Host"], ["Range"] = "bytes=2-5" }),
  }
  local batch = {}
  for i = 1, 16 do batch[i] = kinds[i % #kinds + 1] end
  all = table.concat(batch)
end

request = function() return all end
