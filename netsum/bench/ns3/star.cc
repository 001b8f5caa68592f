// The star of bench/simulator.py in ns-3: hosts send packets over point-to-point links to a switch, which answers as an
// aggregation switch does: when it has one packet of a chunk from every host, it sends one to each of them. A host has `slots`
// chunks under way and sends the next when a result has come. Nothing is added up, and packets carry no values.
//
// --stack=udp: hosts and switch use ns-3's UDP sockets over its IPv4, as models in ns-3 do; --stack=link: packets go from one
// link's device to the next, without any protocol.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <chrono>
#include <iostream>
#include <vector>

using namespace ns3;

namespace
{

uint32_t g_hosts = 8;
uint32_t g_slots = 64;
uint32_t g_chunks = 1000;
uint32_t g_bytes = 1086;
uint64_t g_packets = 0;
bool g_udp = true;
std::vector<Ptr<Socket>> g_host_sockets;
std::vector<Ptr<Socket>> g_switch_sockets;
std::vector<Ptr<NetDevice>> g_host_devices;
std::vector<Ptr<NetDevice>> g_switch_devices;
std::vector<uint32_t> g_next;    // of each host: the next chunk
std::vector<uint32_t> g_arrived; // of each chunk: packets at the switch
constexpr uint16_t PROTOCOL = 0x0800;

void
SendChunk(uint32_t host)
{
    if (g_next[host] == g_chunks)
    {
        return;
    }
    uint32_t chunk = g_next[host]++;
    // Two bytes of PPP stand in for the 14 of Ethernet; the payload is chosen so that the wire carries as many bytes.
    std::vector<uint8_t> bytes(g_bytes - 2 - (g_udp ? 28 : 0));
    for (int at = 0; at < 4; ++at)
    {
        bytes[at] = chunk >> (8 * at);
    }
    auto packet = Create<Packet>(bytes.data(), bytes.size());
    if (g_udp)
    {
        g_host_sockets[host]->Send(packet);
    }
    else
    {
        g_host_devices[host]->Send(packet, g_host_devices[host]->GetBroadcast(), PROTOCOL);
    }
}

void
Answer(Ptr<const Packet> packet)
{
    ++g_packets;
    uint8_t bytes[4];
    packet->CopyData(bytes, 4);
    uint32_t chunk = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24;
    if (++g_arrived[chunk] != g_hosts)
    {
        return;
    }
    for (uint32_t host = 0; host < g_hosts; ++host)
    {
        if (g_udp)
        {
            g_switch_sockets[host]->Send(packet->Copy());
        }
        else
        {
            g_switch_devices[host]->Send(packet->Copy(), g_switch_devices[host]->GetBroadcast(), PROTOCOL);
        }
    }
}

bool
AtSwitch(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&)
{
    Answer(packet);
    return true;
}

bool
AtHost(uint32_t host, Ptr<NetDevice>, Ptr<const Packet>, uint16_t, const Address&)
{
    ++g_packets;
    SendChunk(host);
    return true;
}

void
OnSwitchSocket(Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
    {
        Answer(packet);
    }
}

void
OnHostSocket(uint32_t host, Ptr<Socket> socket)
{
    while (socket->Recv())
    {
        ++g_packets;
        SendChunk(host);
    }
}

Ptr<Socket>
Connected(Ptr<Node> node, Ipv4Address own, Ipv4Address other)
{
    constexpr uint16_t PORT = 28275;
    Ptr<Socket> socket = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
    socket->SetAttribute("RcvBufSize", UintegerValue(1 << 28));
    socket->Bind(InetSocketAddress(own, PORT));
    socket->Connect(InetSocketAddress(other, PORT));
    return socket;
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string rate = "10Gbps";
    std::string delay = "1us";
    CommandLine command(__FILE__);
    command.AddValue("hosts", "Hosts on the switch", g_hosts);
    command.AddValue("slots", "Chunks under way", g_slots);
    command.AddValue("chunks", "Chunks of each host", g_chunks);
    command.AddValue("bytes", "Bytes of a packet", g_bytes);
    command.AddValue("rate", "Of each link", rate);
    command.AddValue("delay", "Of each link", delay);
    std::string stack = "udp";
    command.AddValue("stack", "udp or link", stack);
    command.Parse(argc, argv);
    g_udp = stack == "udp";

    NodeContainer hosts;
    hosts.Create(g_hosts);
    Ptr<Node> hub = CreateObject<Node>();
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", StringValue(delay));
    InternetStackHelper internet;
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    if (g_udp)
    {
        internet.Install(hosts);
        internet.Install(hub);
    }
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    for (uint32_t host = 0; host < g_hosts; ++host)
    {
        NetDeviceContainer ends = link.Install(hosts.Get(host), hub);
        g_host_devices.push_back(ends.Get(0));
        g_switch_devices.push_back(ends.Get(1));
        if (g_udp)
        {
            Ipv4InterfaceContainer pair = addresses.Assign(ends);
            addresses.NewNetwork();
            g_host_sockets.push_back(Connected(hosts.Get(host), pair.GetAddress(0), pair.GetAddress(1)));
            g_switch_sockets.push_back(Connected(hub, pair.GetAddress(1), pair.GetAddress(0)));
            g_host_sockets.back()->SetRecvCallback(
                [host](Ptr<Socket> socket) { OnHostSocket(host, socket); });
            g_switch_sockets.back()->SetRecvCallback(MakeCallback(&OnSwitchSocket));
            continue;
        }
        ends.Get(0)->SetReceiveCallback(
            [host](Ptr<NetDevice> device, Ptr<const Packet> packet, uint16_t protocol, const Address& from) {
                return AtHost(host, device, packet, protocol, from);
            });
        ends.Get(1)->SetReceiveCallback(MakeCallback(&AtSwitch));
    }
    g_next.assign(g_hosts, 0);
    g_arrived.assign(g_chunks, 0);
    for (uint32_t host = 0; host < g_hosts; ++host)
    {
        for (uint32_t slot = 0; slot < g_slots; ++slot)
        {
            Simulator::ScheduleNow(&SendChunk, host);
        }
    }
    auto begin = std::chrono::steady_clock::now();
    Simulator::Run();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::clock_t used = std::clock();
    std::cout << g_packets << " " << seconds << " " << double(used) / CLOCKS_PER_SEC << " "
              << Simulator::Now().GetPicoSeconds() << std::endl;
    Simulator::Destroy();
    return g_packets == 2ull * g_hosts * g_chunks ? 0 : 1;
}
