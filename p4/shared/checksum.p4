// The Internet checksum of a header in which one word became smaller by a constant (RFC 1624, equation 3, with the
// ones' complement sum worked out): right with options too, and a checksum that was wrong before stays wrong.

bit<16> checksum_after_decrease(in bit<16> checksum, in bit<16> decrease) {
    bit<16> after = checksum + decrease;
    if (checksum >= 0xFFFF - decrease) {
        after = checksum + (decrease + 1);
    }
    return after;
}
