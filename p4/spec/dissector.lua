-- Above stands the protocol as p4/spec/generate.py wrote it; below, what p4/spec/dissector.lua does with it.
-- netsum/packets/netsum.lua is the two together, one file to put into Wireshark's folder for plugins.

local netsum = Proto("netsum", "netsum in-network aggregation")
netsum.prefs.port = Pref.uint("UDP port", SPEC.udp_port, "The switch's UDP port")
netsum.prefs.lanes = Pref.bool("Show lanes", true, "Show every lane by itself")

-- Every field of the specification, then what follows from them.

local function names(group)
    local said = {}
    for value, item in pairs(group) do
        said[value] = item.name
    end
    return said
end

local SHOWN = {
    kind = { base.DEC, names(SPEC.kinds) },
    op = { base.DEC, names(SPEC.ops) },
    flags = { base.HEX },
    token = { base.HEX },
    fingerprint = { base.HEX },
    seen = { base.HEX },
}

local fields = {}
local layout = { header = {}, status = {} }

local function add_layout(group)
    local bit = 0
    for _, spec in ipairs(SPEC[group]) do
        local bytes = math.max(1, spec.bits / 8)
        local mask = nil
        if spec.bits < 8 then
            mask = (2 ^ spec.bits - 1) * 2 ^ (8 - bit % 8 - spec.bits)
        end
        local shown = SHOWN[spec.name] or { base.DEC }
        local make = ({ ProtoField.uint8, ProtoField.uint16, nil, ProtoField.uint32 })[bytes]
        local field = make("netsum." .. spec.name, spec.name, shown[1], shown[2], mask, spec.doc)
        fields[spec.name] = field
        table.insert(layout[group], {
            name = spec.name, field = field, bit = bit, bits = spec.bits, offset = math.floor(bit / 8), bytes = bytes,
        })
        bit = bit + spec.bits
    end
    layout[group].bytes = bit / 8
end

add_layout("header")
add_layout("status")

local FLAGS_SHIFT
for _, place in ipairs(layout.header) do
    if place.name == "flags" then
        FLAGS_SHIFT = 8 - place.bit % 8 - place.bits
    end
end
for value, item in pairs(SPEC.flags) do
    local name = string.lower(item.name)
    fields["flags." .. name] = ProtoField.bool("netsum.flags." .. name, item.name, 8, nil, value * 2 ^ FLAGS_SHIFT, item.doc)
end
fields["flags.quorum"] = ProtoField.bool("netsum.flags.quorum", "QUORUM", 8, nil, SPEC.quorum.flag * 2 ^ FLAGS_SHIFT, SPEC.quorum.doc)
fields.level = ProtoField.uint8("netsum.level", "level", base.DEC, nil, nil, "how many switches above the worker's own one this is from")
fields.slot = ProtoField.uint16("netsum.slot", "slot", base.DEC, nil, nil, "relative to the job's range")
fields.pool_version = ProtoField.uint8("netsum.pool_version", "pool version", base.DEC)
fields.exponent_value = ProtoField.int32("netsum.exponent.value", "exponent without its bias", base.DEC)
fields.part = ProtoField.string("netsum.part", "part", base.ASCII, "what the packet is part of, as its exponent tells")
fields.seen_worker = ProtoField.uint8("netsum.seen.worker", "contribution of worker", base.DEC)
fields.missing_worker = ProtoField.uint8("netsum.missing.worker", "missing: contribution of worker", base.DEC)
fields.lanes = ProtoField.none("netsum.lanes", "lanes")
fields.lane_count = ProtoField.uint16("netsum.lanes.count", "number of lanes", base.DEC)
fields.lane = ProtoField.int32("netsum.lane", "lane", base.DEC, nil, nil, "as int32, as it is added")
fields.lane_unsigned = ProtoField.uint32("netsum.lane.unsigned", "lane, unsigned", base.DEC_HEX)
fields.request_in = ProtoField.framenum("netsum.request_in", "answer to frame", base.NONE, frametype.REQUEST)
fields.answer_in = ProtoField.framenum("netsum.answer_in", "answered in frame", base.NONE, frametype.RESPONSE)
fields.answer_time = ProtoField.relative_time("netsum.answer_time", "time since the first request")
fields.retransmission_of = ProtoField.framenum("netsum.retransmission_of", "retransmission of frame", base.NONE)

local expert = {
    version = ProtoExpert.new("netsum.bad.version", "unknown version", expert.group.MALFORMED, expert.severity.ERROR),
    kind = ProtoExpert.new("netsum.bad.kind", "unknown kind", expert.group.MALFORMED, expert.severity.ERROR),
    op = ProtoExpert.new("netsum.bad.op", "unknown operation", expert.group.MALFORMED, expert.severity.ERROR),
    flags = ProtoExpert.new("netsum.bad.flags", "wrong flags", expert.group.MALFORMED, expert.severity.ERROR),
    length = ProtoExpert.new("netsum.bad.length", "wrong length", expert.group.MALFORMED, expert.severity.ERROR),
    direction = ProtoExpert.new("netsum.bad.direction", "a RESULT or STATUS that does not come from the switch", expert.group.MALFORMED, expert.severity.ERROR),
    job_id = ProtoExpert.new("netsum.bad.job_id", "a job that cannot be", expert.group.PROTOCOL, expert.severity.WARN),
    worker_id = ProtoExpert.new("netsum.bad.worker_id", "a worker that cannot be", expert.group.PROTOCOL, expert.severity.WARN),
    mismatch = ProtoExpert.new("netsum.mismatch", "the workers disagree about the collective", expert.group.RESPONSE_CODE, expert.severity.WARN),
    missing = ProtoExpert.new("netsum.missing", "contributions are missing", expert.group.RESPONSE_CODE, expert.severity.NOTE),
    non_finite = ProtoExpert.new("netsum.non_finite", "NaN or Inf in an input", expert.group.RESPONSE_CODE, expert.severity.NOTE),
    retransmission = ProtoExpert.new("netsum.retransmission", "retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
}

local all_fields, all_experts = {}, {}
for _, field in pairs(fields) do
    table.insert(all_fields, field)
end
for _, one in pairs(expert) do
    table.insert(all_experts, one)
end
netsum.fields = all_fields
netsum.experts = all_experts

-- Values, by name.

local KIND, FLAG = {}, {}
for value, item in pairs(SPEC.kinds) do
    KIND[item.name] = value
end
for value, item in pairs(SPEC.flags) do
    FLAG[item.name] = value
end
local ALL_FLAGS = 0
for value, _ in pairs(SPEC.flags) do
    ALL_FLAGS = ALL_FLAGS + value
end

local function has(flags, flag)
    return math.floor(flags / flag) % 2 == 1
end

local function read(tvb, group, start)
    local values = {}
    for _, place in ipairs(layout[group]) do
        values[place.name] = tvb(start, layout[group].bytes):bitfield(place.bit, place.bits)
    end
    return values
end

local function is_request(kind)
    return kind == KIND.CONTRIBUTE or kind == KIND.PROBE
end

-- How many lanes a datagram of this length has; nil if none of the compiled programs makes such a one.
local function lanes_in(bytes)
    for _, count in ipairs(SPEC.lane_counts) do
        if bytes == layout.header.bytes + count * SPEC.lane_bytes then
            return count
        end
    end
    return nil
end

-- Whether a packet is for the slot of a roll call. In a STATUS the bit is one of the level's.
local function is_of_roll_call(values)
    return values.kind ~= KIND.STATUS and has(values.flags, SPEC.quorum.flag)
end

-- Bytes between the header and the lanes: in a STATUS, and in the RESULT of a roll call.
local function status_bytes(values)
    local holds = values.kind == KIND.STATUS or values.kind == KIND.RESULT and is_of_roll_call(values)
    return holds and layout.status.bytes or 0
end

-- What a datagram of this kind and these flags should have after its header, as text, and whether it has.
local function check_length(values, bytes)
    local more = status_bytes(values)
    local said = "a header" .. (more > 0 and " and what follows it in a " .. SPEC.kinds[values.kind].name or "")
    if has(values.flags, FLAG.LANES) then
        return lanes_in(bytes - more) ~= nil, said .. " and " .. table.concat(SPEC.lane_counts, ", ") .. " lanes"
    end
    return bytes == layout.header.bytes + more, said
end

-- How many levels above the worker's own switch a STATUS comes from, in a tree of switches.
local function level_of(values)
    return values.kind == KIND.STATUS and math.floor(values.flags / 2 ^ SPEC.level_shift) or 0
end

local function flags_are_wrong(values)
    local quorum = is_of_roll_call(values) and SPEC.quorum.flag or 0
    if values.flags - level_of(values) * 2 ^ SPEC.level_shift - quorum > ALL_FLAGS then
        return "flags that the protocol does not know"
    end
    if has(values.flags, FLAG.MISMATCH) and values.kind ~= KIND.STATUS then
        return "MISMATCH outside a STATUS"
    end
    if has(values.flags, FLAG.LANES) and (values.kind == KIND.STATUS or values.kind == KIND.PROBE) then
        return "LANES in a " .. SPEC.kinds[values.kind].name
    end
    return nil
end

-- Which answer belongs to which request: the first contribution of a worker for a chunk, or a probe, and the first answer. Filled
-- when packets are seen for the first time, in order; afterwards only read.

local first_request, first_time, answer_in, request_in, retransmission_of, sent_at

function netsum.init()
    first_request, first_time, answer_in, request_in, retransmission_of, sent_at = {}, {}, {}, {}, {}, {}
end

local function follow(values, pinfo)
    -- In a tree of switches, worker ids are those of a switch's children: the address tells who asks.
    local asks = tostring(is_request(values.kind) and pinfo.src or pinfo.dst)
    local chunk = string.format("%s/%d/%d/%d/%d/", asks, values.job_id, values.token, values.worker_id, values.chunk)
    local number = pinfo.number
    -- A PROBE has a number in `exponent`, and its STATUS the same.
    local probe = chunk .. KIND.PROBE .. "/" .. values.exponent
    if is_request(values.kind) then
        local key = values.kind == KIND.PROBE and probe or chunk .. values.kind
        if first_request[key] then
            retransmission_of[number] = first_request[key]
        else
            first_request[key], first_time[number] = number, pinfo.abs_ts
        end
        return
    end
    local request = values.kind == KIND.STATUS and first_request[probe] or first_request[chunk .. KIND.CONTRIBUTE]
    if request then
        request_in[number], sent_at[number] = request, first_time[request]
        answer_in[request] = answer_in[request] or number
    end
end

-- One tree a packet.

local function add_flags(tree, tvb, place, values)
    local said = {}
    for flag, item in pairs(SPEC.flags) do
        if has(values.flags, flag) then
            table.insert(said, item.name)
        end
    end
    if is_of_roll_call(values) then
        table.insert(said, "QUORUM")
    end
    table.sort(said)
    local item = tree:add(place.field, tvb(place.offset, place.bytes))
    item:append_text(#said > 0 and " (" .. table.concat(said, ", ") .. ")" or " (none)")
    for _, spec in pairs(SPEC.flags) do
        item:add(fields["flags." .. string.lower(spec.name)], tvb(place.offset, place.bytes))
    end
    if values.kind ~= KIND.STATUS then
        item:add(fields["flags.quorum"], tvb(place.offset, place.bytes))
    end
    if values.kind == KIND.STATUS then
        item:add(fields.level, tvb(place.offset, place.bytes), level_of(values)):set_generated()
    end
    return item
end

-- host_agent/wire/parts.py has the same.
local PARTS = {
    { 1, 8191, "number of a PROBE" },
    { 15311, 17408, "block exponent" },
    { 17409, 50048, "scale of packed lanes" },
    { 65280, 65280, "bitmap of blocks" },
    { 65281, 65281, "bitmap of rows" },
}

local function part_of(values)
    if values.kind ~= KIND.CONTRIBUTE and values.kind ~= KIND.RESULT then
        return nil
    end
    for _, each in ipairs(PARTS) do
        if each[1] <= values.exponent and values.exponent <= each[2] then
            return each[3]
        end
    end
    return nil
end

local function exponent_text(values)
    local value, part = values.exponent, part_of(values)
    if value == SPEC.exponent.all_zero then
        return "all zero"
    elseif value == SPEC.exponent.non_finite then
        return "non-finite present"
    end
    return part == "block exponent" and "2^" .. value - SPEC.exponent.bias or part or "unknown meaning"
end

local function add_derived(item, place, tvb, values)
    local range = tvb(place.offset, place.bytes)
    if place.name == "pool_index" then
        item:add(fields.slot, range, math.floor(values.pool_index / SPEC.pool_versions)):set_generated()
        item:add(fields.pool_version, range, values.pool_index % SPEC.pool_versions):set_generated()
    elseif place.name == "exponent" and (values.kind == KIND.PROBE or values.kind == KIND.STATUS) then
        item:append_text(" (in a PROBE and its STATUS: the number of the PROBE)")
    elseif place.name == "exponent" then
        item:append_text(" (" .. exponent_text(values) .. ")")
        if values.exponent == SPEC.exponent.non_finite then
            item:add_proto_expert_info(expert.non_finite)
        end
        local part = part_of(values)
        if part then
            item:add(fields.part, range, part):set_generated()
        end
        if part == "block exponent" then
            item:add(fields.exponent_value, range, values.exponent - SPEC.exponent.bias):set_generated()
        end
    elseif place.name == "version" and values.version ~= SPEC.version then
        item:add_proto_expert_info(expert.version, "unknown version: the protocol's is " .. SPEC.version)
    elseif place.name == "kind" and not SPEC.kinds[values.kind] then
        item:add_proto_expert_info(expert.kind)
    elseif place.name == "op" and not SPEC.ops[values.op] then
        item:add_proto_expert_info(expert.op)
    elseif place.name == "job_id" and (values.job_id < 1 or values.job_id > SPEC.max_job_id) then
        item:add_proto_expert_info(expert.job_id, "a job is 1 to " .. SPEC.max_job_id)
    elseif place.name == "worker_id" and values.worker_id >= SPEC.max_children then
        item:add_proto_expert_info(expert.worker_id, "a worker is 0 to " .. SPEC.max_children - 1)
    end
end

local function add_header(tree, tvb, values)
    for _, place in ipairs(layout.header) do
        local item
        if place.name == "flags" then
            item = add_flags(tree, tvb, place, values)
            local wrong = flags_are_wrong(values)
            if wrong then
                item:add_proto_expert_info(expert.flags, "wrong flags: " .. wrong)
            end
            if has(values.flags, FLAG.MISMATCH) and values.kind == KIND.STATUS then
                item:add_proto_expert_info(expert.mismatch)
            end
        else
            item = tree:add(place.field, tvb(place.offset, place.bytes))
        end
        add_derived(item, place, tvb, values)
    end
end

-- Returns the ids of the workers that a slot still waits for, nil if it is not known of how many; and those it holds.
local function add_status(tree, tvb, values)
    local status = read(tvb, "status", layout.header.bytes)
    local missing = values.kind == KIND.STATUS and values.num_workers > 0 and {} or nil
    local held = {}
    for _, place in ipairs(layout.status) do
        local range = tvb(layout.header.bytes + place.offset, place.bytes)
        local item = tree:add(place.field, range)
        if place.name == "seen" then
            for worker_id = 0, SPEC.max_children - 1 do
                if math.floor(status.seen / 2 ^ worker_id) % 2 == 1 then
                    item:add(fields.seen_worker, range, worker_id):set_generated()
                table.insert(held, worker_id)
                elseif missing and worker_id < values.num_workers then
                    item:add(fields.missing_worker, range, worker_id):set_generated()
                    table.insert(missing, worker_id)
                end
            end
            if missing and #missing > 0 then
                item:add_proto_expert_info(expert.missing, "missing: worker " .. table.concat(missing, ", "))
            end
        end
    end
    return status, missing, held
end

local function add_lanes(tree, tvb, values)
    local start = layout.header.bytes + status_bytes(values)
    local count = math.floor((tvb:len() - start) / SPEC.lane_bytes)
    if count < 1 then
        return 0
    end
    local all = tree:add(fields.lanes, tvb(start, count * SPEC.lane_bytes))
    all:set_text("lanes: " .. count .. " int32")
    all:add(fields.lane_count, tvb(start, count * SPEC.lane_bytes), count):set_generated()
    -- Hundreds of items a packet: only for who looks at them.
    local looked_at = all:referenced(fields.lane) or all:referenced(fields.lane_unsigned)
    if netsum.prefs.lanes and looked_at then
        for lane = 0, count - 1 do
            local range = tvb(start + lane * SPEC.lane_bytes, SPEC.lane_bytes)
            local item = all:add(fields.lane, range)
            item:set_text(string.format("lane %d: %d (0x%08x)", lane, range:int(), range:uint()))
            item:add(fields.lane_unsigned, range):set_hidden() -- to be filtered by; it is in the text
        end
    end
    return count
end

local function add_exchange(tree, pinfo)
    local number = pinfo.number
    if retransmission_of[number] then
        local item = tree:add(fields.retransmission_of, retransmission_of[number])
        item:set_generated()
        item:add_proto_expert_info(expert.retransmission)
    end
    if answer_in[number] then
        tree:add(fields.answer_in, answer_in[number]):set_generated()
    end
    if request_in[number] then
        tree:add(fields.request_in, request_in[number]):set_generated()
        local seconds = pinfo.abs_ts - sent_at[number]
        local whole = math.floor(seconds)
        tree:add(fields.answer_time, NSTime.new(whole, math.floor((seconds - whole) * 1e9 + 0.5))):set_generated()
    end
end

local function name_of(group, value, what)
    return group[value] and group[value].name or what .. " " .. value
end

function netsum.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "netsum"
    local bytes = tvb:len()
    local tree = root:add(netsum, tvb())
    if bytes < layout.header.bytes then
        pinfo.cols.info = "malformed: " .. bytes .. " bytes"
        tree:add_proto_expert_info(expert.length, "wrong length: a header has " .. layout.header.bytes .. " bytes")
        return bytes
    end
    local values = read(tvb, "header", 0)
    local fits, expected = check_length(values, bytes)
    local answer = values.kind == KIND.RESULT or values.kind == KIND.STATUS
    local backwards = answer and pinfo.dst_port == netsum.prefs.port and pinfo.src_port ~= netsum.prefs.port
    local well_formed = fits and values.version == SPEC.version and SPEC.kinds[values.kind] and SPEC.ops[values.op]
        and not flags_are_wrong(values) and not backwards
    if well_formed and not pinfo.visited then
        follow(values, pinfo)
    end
    add_header(tree, tvb, values)

    local info = string.format(
        "%s %s job %d worker %d chunk %d slot %d.%d",
        name_of(SPEC.kinds, values.kind, "kind"), name_of(SPEC.ops, values.op, "op"), values.job_id, values.worker_id,
        values.chunk, math.floor(values.pool_index / SPEC.pool_versions), values.pool_index % SPEC.pool_versions
    )
    if not fits then
        tree:add_proto_expert_info(expert.length, "wrong length: expected " .. expected .. ", got " .. bytes .. " bytes")
    end
    if not well_formed then
        info = info .. " malformed"
    end
    if is_of_roll_call(values) then
        info = info .. " roll call"
    end
    if status_bytes(values) > 0 and bytes >= layout.header.bytes + layout.status.bytes then
        local status, missing, held = add_status(tree, tvb, values)
        if values.kind == KIND.RESULT then
            info = info .. " of worker " .. table.concat(held, ", ")
        else
            info = info .. " holds chunk " .. status.slot_chunk
        end
        if level_of(values) > 0 then
            info = info .. " at level " .. level_of(values)
        end
        if missing and #missing > 0 then
            info = info .. ", misses worker " .. table.concat(missing, ", ")
        end
    end
    if values.kind ~= KIND.STATUS and has(values.flags, FLAG.LANES) then
        info = info .. " " .. add_lanes(tree, tvb, values) .. " lanes"
    end
    local part = part_of(values)
    if part then
        info = info .. ", " .. part
    end
    if has(values.flags, FLAG.MISMATCH) then
        info = info .. " MISMATCH"
    end
    if backwards then
        tree:add_proto_expert_info(expert.direction)
    end
    add_exchange(tree, pinfo)
    if retransmission_of[pinfo.number] then
        info = info .. " [retransmission]"
    end
    pinfo.cols.info = info
    return bytes
end

-- On other ports (a loopback testbed has one for each switch port) what looks exactly like the protocol is taken for it.
local function guess(tvb, pinfo, root)
    local bytes = tvb:len()
    if bytes < layout.header.bytes then
        return false
    end
    local values = read(tvb, "header", 0)
    if values.version ~= SPEC.version or not SPEC.kinds[values.kind] or not SPEC.ops[values.op]
        or values.job_id < 1 or values.job_id > SPEC.max_job_id or values.worker_id >= SPEC.max_children
        or values.num_workers > SPEC.max_children or flags_are_wrong(values) or not check_length(values, bytes) then
        return false
    end
    netsum.dissector(tvb, pinfo, root)
    return true
end

netsum:register_heuristic("udp", guess)

local udp_table = DissectorTable.get("udp.port")
local bound = SPEC.udp_port
udp_table:add(bound, netsum)

function netsum.prefs_changed()
    if bound ~= netsum.prefs.port then
        udp_table:remove(bound, netsum)
        bound = netsum.prefs.port
        udp_table:add(bound, netsum)
    end
end
