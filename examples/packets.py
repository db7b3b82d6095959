"""Packet analysis: three detectors watch the DNS traffic of a network side by side.

    penstock run examples/packets.py --on local
    PACKETS_FILE=capture.pcap penstock run examples/packets.py --on local

Without a capture it reads made-up packets. The detectors look for
- invented names: malware asks for domains that an algorithm generates (DGA), until one answers;
- tunnels: data leaves the network inside long, ever different names of one domain;
- volume: a host asks far more than others do.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dpkt  # type: ignore[import-untyped]

import data
import penstock as pn

FILE = os.environ.get("PACKETS_FILE")
MADE_UP = partial(data.dns_packets, 6_000)
TEN_SECONDS = pn.tumbling(time=10, on="ts")


class Packet(NamedTuple):
    ts: float
    host: str  # who asks
    domain: str  # the last two labels of the name that is asked for
    hidden: str  # the labels before them
    size: int  # bytes


def read_capture(path: str | Path) -> Iterator[tuple[float, bytes]]:
    with Path(path).open("rb") as file:
        yield from dpkt.pcap.Reader(file)


def parse(captured: tuple[float, bytes]) -> Iterator[Packet]:
    """The DNS packet in a captured frame, if there is one."""
    ts, frame = captured
    packet = dpkt.ethernet.Ethernet(frame).data
    datagram = getattr(packet, "data", None)
    if isinstance(datagram, dpkt.udp.UDP) and 53 in (datagram.sport, datagram.dport):
        message = dpkt.dns.DNS(datagram.data)
        host = packet.dst if message.qr else packet.src  # an answer goes back to who asked
        labels = message.qd[0].name.lower().split(".") if message.qd else []
        yield Packet(ts, dpkt.utils.inet_to_str(host), ".".join(labels[-2:]), ".".join(labels[:-2]), len(frame))


def entropy(text: str) -> float:
    """Bits per character: 0 for one letter again and again, 4.7 at most for letters at random."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def invention_score(label: str) -> float:
    """From 0 (a word) to 1 (noise): many different letters, few vowels. Short labels tell nothing."""
    if len(label) < 8:
        return 0.0
    vowels = sum(letter in "aeiouy" for letter in label) / len(label)
    return min(1.0, entropy(label) / 3.5) * max(0.0, 1 - vowels)


def is_invented(packet: Packet) -> bool:
    return invention_score(packet.domain.split(".")[0]) > 0.65


def tunnel_score(row: dict[str, Any]) -> float:
    """How many bytes the long names of a domain could have carried away."""
    return float(row["names"] * row["length"] * row["entropy"] / 8)


def alert(text: str, row: dict[str, Any]) -> str:
    when = datetime.fromtimestamp(row["window_start"], tz=UTC)
    return f"{when:%H:%M:%S}  {text.format(**row)}"


def build(
    capture: Any = MADE_UP, alerts: Any = print, *, most: int = 200, malformed: Any = print, volumes: Any = None
) -> pn.Flow:
    """`most` is what a host may ask in ten seconds. `volumes` (if given) receives the volume of each host."""
    flow = pn.Flow("packets")
    bad = flow.dead_letters(name="Malformed")
    packets = flow.source(capture, name="Packets").flat_map(parse, on_error=bad, name="Parsed")
    bad.sink(malformed, name="MalformedPackets")

    invented = packets.filter(is_invented, name="Invented")
    askers = invented.key_by("host").window(TEN_SECONDS)
    dga = askers.aggregate(names=pn.count_distinct("domain"), one=pn.first("domain"), name="DGA")
    many = dga.filter(lambda row: row["names"] >= 5, name="ManyInvented")
    dga_alerts = many.map(partial(alert, "{host} asks for {names} invented domains such as {one}"), name="DGAAlerts")

    long_names = packets.filter(lambda packet: len(packet.hidden) > 30, name="LongNames")
    domains = long_names.key_by("domain").window(TEN_SECONDS)
    tunnels = domains.aggregate(
        names=pn.count_distinct("hidden"),
        length=pn.mean(lambda packet: len(packet.hidden)),
        entropy=pn.mean(lambda packet: entropy(packet.hidden)),
        name="Tunnels",
    )
    likely = tunnels.filter(lambda row: tunnel_score(row) > 500, name="LikelyTunnels")
    tunnel_alerts = likely.map(partial(alert, "{domain} may be a tunnel: {names} long names"), name="TunnelAlerts")

    volume = packets.key_by("host").window(TEN_SECONDS)
    hosts = volume.aggregate(packets=pn.count(), bytes=pn.sum("size"), name="Volume")
    large = hosts.filter(lambda row: row["packets"] > most, name="LargeVolume")
    volume_alerts = large.map(partial(alert, "{host} asks a lot: {packets} times, {bytes} bytes"), name="VolumeAlerts")

    dga_alerts.union(tunnel_alerts, volume_alerts, name="Alerts").sink(alerts, name="Results")
    if volumes is not None:
        hosts.sink(volumes, name="Volumes")
    return flow


flow = build(partial(read_capture, FILE) if FILE else MADE_UP)

if __name__ == "__main__":
    pn.run(flow, on="local")
