// The switch's own IPv4 addresses: does the packet ask for one (ARP), or is it addressed to one?

const bit<32> SWITCH_ADDRESS_SIZE = 64;

control SwitchAddress(inout metadata_t meta) {
    action own_address(mac_t mac) {
        meta.is_own = true;
        meta.own_mac = mac;
    }

    action other_address() {
        meta.is_own = false;
    }

    table switch_address {
        key = {
            meta.asked_address: exact @name("address");
        }
        actions = {
            own_address;
            @defaultonly other_address;
        }
        const default_action = other_address();
        size = SWITCH_ADDRESS_SIZE;
    }

    apply {
        switch_address.apply();
    }
}
