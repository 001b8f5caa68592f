// The Internet checksum of a header in which one word changed (RFC 1624, equation 3): right with options too, and a
// checksum that was wrong before stays wrong.

bit<16> checksum_after(in bit<16> checksum, in bit<16> word_before, in bit<16> word_after) {
    bit<32> sum = (bit<32>) (~checksum) + (bit<32>) (~word_before) + (bit<32>) word_after;
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return ~sum[15:0];
}
