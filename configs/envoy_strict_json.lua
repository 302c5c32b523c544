-- Refuses JSON requests with a field that the API does not have. Envoy's transcoder drops such
-- fields in silence, so that a misspelt `temperature` would never be noticed.
--
-- dofile(this)(DESCRIPTORS) returns the function for envoy_on_request. DESCRIPTORS is the file
-- that the transcoder reads: paths, messages and field names come from there alone. What is no
-- strict JSON is refused as well, because the transcoder reads more than that (bare keys, single
-- quotes), which would get past this check.

local MAX_DEPTH = 64

-- ---- The descriptor set (google/protobuf/descriptor.proto, protobuf's wire format) ------------

local function varint(bytes, at)
  local value, factor = 0, 1
  while true do
    local byte = bytes:byte(at)
    at = at + 1
    if byte < 128 then return value + byte * factor, at end
    value, factor = value + (byte - 128) * factor, factor * 128
  end
end

-- field number -> list of its values: numbers, or bytes.
local function decode(bytes)
  local found, at = {}, 1
  while at <= #bytes do
    local tag, value, size
    tag, at = varint(bytes, at)
    local number, wire = math.floor(tag / 8), tag % 8
    if wire == 0 then
      value, at = varint(bytes, at)
    elseif wire == 2 then
      size, at = varint(bytes, at)
      value, at = bytes:sub(at, at + size - 1), at + size
    else
      size = wire == 1 and 8 or 4
      at = at + size
    end
    found[number] = found[number] or {}
    table.insert(found[number], value)
  end
  return found
end

local function each(list) return ipairs(list or {}) end

local TYPE_MESSAGE = 11
local HTTP_OPTION = 72295728  -- google.api.http

-- messages[".renga.v1.Chat"] = {name in JSON -> type of a message, or false}
local function add_message(messages, scope, bytes)
  local message = decode(bytes)
  local name, fields = scope .. "." .. message[1][1], {}
  for _, field_bytes in each(message[2]) do
    local field = decode(field_bytes)
    local kind = field[5][1] == TYPE_MESSAGE and field[6][1] or false
    fields[field[1][1]] = kind
    if field[10] then fields[field[10][1]] = kind end
  end
  messages[name] = fields
  for _, nested in each(message[3]) do add_message(messages, name, nested) end
end

-- inputs["/renga/v1/tokenize"] = type of the message that a POST there carries
local function add_service(inputs, bytes)
  for _, method_bytes in each(decode(bytes)[2]) do
    local method = decode(method_bytes)
    local http = method[4] and decode(method[4][1])[HTTP_OPTION]
    local post = http and decode(http[1])[4]
    if post then inputs[post[1]] = method[2][1] end
  end
end

local function load_descriptors(path)
  local file = assert(io.open(path, "rb"))
  local set = decode(file:read("*a"))
  file:close()
  local messages, inputs = {}, {}
  for _, file_bytes in each(set[1]) do
    local proto = decode(file_bytes)
    local package = proto[2] and "." .. proto[2][1] or ""
    for _, message in each(proto[4]) do add_message(messages, package, message) end
    for _, service in each(proto[6]) do add_service(inputs, service) end
  end
  return messages, inputs
end

-- ---- The check -------------------------------------------------------------------------------

-- An error ends the scan as a table {text}; anything else that is thrown is a bug.
local function refuse(text) error({text}, 0) end

local function not_json(at) refuse("not JSON at byte " .. (at - 1)) end

local function skip_space(text, at) return text:find("[^ \t\r\n]", at) or #text + 1 end

-- The string that begins at `at`, as it stands there, and where it ends.
local function scan_string(text, at)
  local from = at + 1
  while true do
    local stop = text:find('["\\%c]', from)
    local char = stop and text:sub(stop, stop)
    if char == '"' then return text:sub(at + 1, stop - 1), stop + 1 end
    if char == "\\" and text:find('^["\\/bfnrt]', stop + 1) then
      from = stop + 2
    elseif char == "\\" and text:find("^u%x%x%x%x", stop + 1) then
      from = stop + 6
    elseif char == "\127" then  -- Lua's %c has it, JSON allows it.
      from = stop + 1
    else
      not_json(stop or at)
    end
  end
end

local scan_value

local function scan_object(messages, text, at, kind, path, depth)
  local fields, seen = kind and messages[kind], {}
  at = skip_space(text, at + 1)
  if text:find("^}", at) then return at + 1 end
  while true do
    if not text:find('^"', at) then not_json(at) end
    local key
    key, at = scan_string(text, at)
    local name = path == "" and key or path .. "." .. key
    if fields and fields[key] == nil then
      refuse(name .. ": no such field in " .. kind:sub(2))
    end
    if seen[key] then refuse(name .. ": comes twice") end
    seen[key] = true
    at = skip_space(text, at)
    if not text:find("^:", at) then not_json(at) end
    at = scan_value(messages, text, at + 1, fields and fields[key], name, depth)
    at = skip_space(text, at)
    if text:find("^}", at) then return at + 1 end
    if not text:find("^,", at) then not_json(at) end
    at = skip_space(text, at + 1)
  end
end

local function scan_array(messages, text, at, kind, path, depth)
  -- Token ids by the thousand: no key can hide there, and the transcoder reads them anyway.
  local _, numbers_end = text:find("^%[[%d%s,.eE+-]*%]", at)
  if numbers_end then return numbers_end + 1 end
  local index = 0
  at = at + 1
  while true do
    at = scan_value(messages, text, at, kind, path .. "[" .. index .. "]", depth)
    at = skip_space(text, at)
    if text:find("^%]", at) then return at + 1 end
    if not text:find("^,", at) then not_json(at) end
    at, index = at + 1, index + 1
  end
end

-- `kind`: the message that an object here must be; false or nil for what has no fields of ours.
function scan_value(messages, text, at, kind, path, depth)
  if depth > MAX_DEPTH then refuse(path .. ": nested too deeply") end
  at = skip_space(text, at)
  local first = text:sub(at, at)
  if first == "{" then return scan_object(messages, text, at, kind, path, depth + 1) end
  if first == "[" then return scan_array(messages, text, at, kind, path, depth + 1) end
  if first == '"' then return select(2, scan_string(text, at)) end
  local _, stop = text:find("^-?%d[%d.eE+-]*", at)
  for _, word in ipairs({"true", "false", "null"}) do
    if not stop and text:sub(at, at + #word - 1) == word then stop = at + #word - 1 end
  end
  if not stop then not_json(at) end
  return stop + 1
end

-- What is wrong with the body, or nil.
local function complaint(messages, text, kind)
  local fine, problem = pcall(function()
    local at = skip_space(text, scan_value(messages, text, 1, kind, "", 0))
    if at <= #text then not_json(at) end
  end)
  if fine then return nil end
  if type(problem) ~= "table" then error(problem, 0) end
  return problem[1]
end

return function(descriptors)
  local messages, inputs = load_descriptors(descriptors)
  return function(handle)
    local headers = handle:headers()
    local kind = inputs[(headers:get(":path"):gsub("%?.*", ""))]
    if not kind or (headers:get("content-type") or ""):find("^application/grpc") then return end
    local body = handle:body()
    if not body or body:length() == 0 then return end
    local problem = complaint(messages, body:getBytes(0, body:length()), kind)
    -- As text: local_reply_config makes it JSON, as what Envoy itself refuses.
    if problem then handle:respond({[":status"] = "400"}, problem) end
  end
end
