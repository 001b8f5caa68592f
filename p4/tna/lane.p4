// One lane: a 32-bit word of the packet and its register over all pool indices. All that a lane does is here; lanes.p4
// makes as many of them as there are.
//
// A stateful ALU holds four actions and puts out one word (Tofino 1), so the five steps of a lane are distinguished by what
// they are given: `seed` makes one action of writing, of writing the smallest number, and of reading.

const bit<32> SEED_KEEP = 0; // leave the slot as it is
const bit<32> SEED_PACKET = 1; // slot := packet
const bit<32> SEED_LOWEST = 0x80000000; // slot := this smallest number, which is neutral to MAX

// In place of a worker's id: no worker's contribution, but the RESULT of the parent. The ALU of slot_marks compares bytes with
// their sign, and p4c gives it the constant without: the upper bit must be clear.
const bit<8> FROM_PARENT = 0x7F;

#define LANE_AGAIN(worker) (1, 0, 1, _, worker, 1 << worker &&& 1 << worker): write_or_read();

control Lane(inout int<32> lane, in bit<3> op, in bit<8> worker, in pool_index_t index, in finding_t found) {
    Register<int<32>, pool_index_t>(CELLS, 0) held;

    RegisterAction<int<32>, pool_index_t, int<32>>(held) written_or_read = {
        void apply(inout int<32> value, out int<32> after) {
            if (found.seed == (int<32>) SEED_PACKET) {
                value = lane;
            } else if (found.seed < 0) {
                value = found.seed;
            }
            after = value;
        }
    };
    RegisterAction<int<32>, pool_index_t, int<32>>(held) added = {
        void apply(inout int<32> value, out int<32> after) {
            value = value |+| lane;
            after = value;
        }
    };
    RegisterAction<int<32>, pool_index_t, int<32>>(held) larger = {
        void apply(inout int<32> value, out int<32> after) {
            value = max(value, lane);
            after = value;
        }
    };
    RegisterAction<int<32>, pool_index_t, int<32>>(held) either = {
        void apply(inout int<32> value, out int<32> after) {
            value = value | lane;
            after = value;
        }
    };

    action write_or_read() {
        lane = written_or_read.execute(index);
    }
    action add() {
        lane = added.execute(index);
    }
    action keep_larger() {
        lane = larger.execute(index);
    }
    action bor() {
        lane = either.execute(index);
    }

    table lane_step {
        key = {
            found.agrees: ternary;
            found.newer: ternary;
            found.with_lanes: ternary;
            op: ternary @name("op");
            worker: ternary @name("worker");
            found.before: ternary;
        }
        actions = {
            write_or_read;
            add;
            keep_larger;
            bor;
            NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // The parent's, if the slot took it; the seed says that it is written.
            (_, _, _, _, FROM_PARENT, 0): NoAction();
            (_, _, _, _, FROM_PARENT, _): write_or_read();
            // The first contribution to a tag: the seed is written.
            (1, 1, _, _, _, _): write_or_read();
            // No lanes, or added before: the seed is 0, so the slot is read.
            (1, 0, 0, _, _, _): write_or_read();
            LANE_AGAIN(0) LANE_AGAIN(1) LANE_AGAIN(2) LANE_AGAIN(3)
            LANE_AGAIN(4) LANE_AGAIN(5) LANE_AGAIN(6) LANE_AGAIN(7)
            LANE_AGAIN(8) LANE_AGAIN(9) LANE_AGAIN(10) LANE_AGAIN(11)
            LANE_AGAIN(12) LANE_AGAIN(13) LANE_AGAIN(14) LANE_AGAIN(15)
            LANE_AGAIN(16) LANE_AGAIN(17) LANE_AGAIN(18) LANE_AGAIN(19)
            LANE_AGAIN(20) LANE_AGAIN(21) LANE_AGAIN(22) LANE_AGAIN(23)
            LANE_AGAIN(24) LANE_AGAIN(25) LANE_AGAIN(26) LANE_AGAIN(27)
            LANE_AGAIN(28) LANE_AGAIN(29) LANE_AGAIN(30) LANE_AGAIN(31)
            // A further one.
            (1, 0, 1, OP_SUM, _, _): add();
            (1, 0, 1, OP_MAX, _, _): keep_larger();
            (1, 0, 1, OP_BOR, _, _): bor();
        }
    }

    apply {
        lane_step.apply();
    }
}
