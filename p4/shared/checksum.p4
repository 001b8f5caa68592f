// The Internet checksum of a header in which one word became smaller by a constant (RFC 1624, equation 3, with the
// ones' complement sum worked out): right with options too, and a checksum that was wrong before stays wrong.

control ChecksumAfterDecrease(inout bit<16> checksum)(bit<16> decrease) {
    bit<16> sum = 0;

    // In an action, so that it is computed before the comparison: a pipeline compares only computed values with constants.
    @hidden action add() {
        sum = checksum |+| decrease;
    }

    apply {
        add();
        if (sum == 0xFFFF) { // there is a carry to bring round
            checksum = checksum + (decrease + 1);
        } else {
            checksum = sum;
        }
    }
}
