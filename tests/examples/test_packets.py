"""Packet analysis against captures taken apart byte by byte."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dpkt
import pytest

import data
import packets
from tests.conftest import RunFlow


def frames_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """(second, frame) of each packet of a little-endian capture."""
    capture = path.read_bytes()
    assert capture[:4] == b"\xd4\xc3\xb2\xa1"
    at = 24
    while at < len(capture):
        second, _, length, _ = struct.unpack_from("<4I", capture, at)
        yield second, capture[at + 16 : at + 16 + length]
        at += 16 + length


def plain_volumes(path: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """(host, window start) -> packets and bytes of the DNS traffic of that host."""
    count: Counter[tuple[str, int]] = Counter()
    size: Counter[tuple[str, int]] = Counter()
    for second, frame in frames_of(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
            continue
        datagram = 14 + 4 * (frame[14] & 15)
        if 53 not in struct.unpack_from("!2H", frame, datagram):
            continue
        is_answer = frame[datagram + 8 + 2] & 0x80
        host = socket.inet_ntoa(frame[30:34] if is_answer else frame[26:30])
        count[host, second // 10 * 10] += 1
        size[host, second // 10 * 10] += len(frame)
    return {window: (count[window], size[window]) for window in count}


def volumes_of(run: RunFlow, capture: Any) -> tuple[dict[tuple[str, int], tuple[int, int]], list[str]]:
    volumes: list[Any] = []
    alerts: list[str] = []
    malformed: list[Any] = []
    run(packets.build(capture, alerts, malformed=malformed, volumes=volumes))
    assert not malformed
    return {(row["host"], row["window_start"]): (row["packets"], row["bytes"]) for row in volumes}, alerts


def test_a_made_up_capture(tmp_path: Path, run: RunFlow) -> None:
    path = tmp_path / "made-up.pcap"
    with path.open("wb") as file:
        writer = dpkt.pcap.Writer(file)
        for ts, frame in data.dns_packets(2_000):
            writer.writepkt(frame, ts)
    volumes, alerts = volumes_of(run, partial(packets.read_capture, path))
    assert volumes == plain_volumes(path)
    assert sum(count for count, _ in volumes.values()) == 2_000
    assert {alert.split()[1] for alert in alerts if "invented" in alert} == {"10.0.0.66"}
    assert {alert.split()[1] for alert in alerts if "tunnel" in alert} == {"drop.example"}
    assert {alert.split()[1] for alert in alerts if "a lot" in alert} == {"10.0.0.88"}


def test_malformed_packets_are_set_aside(run: RunFlow) -> None:
    whole = data.dns_query("10.0.0.2", "www.example.com")
    malformed: list[Any] = []
    volumes: list[Any] = []
    run(packets.build([(0.0, whole), (1.0, whole[:50]), (2.0, whole)], [], malformed=malformed, volumes=volumes))
    assert [letter.item[0] for letter in malformed] == [1.0]
    assert [row["packets"] for row in volumes] == [2]


@pytest.mark.parametrize(
    ("label", "invented"),
    [("wikipedia", False), ("bukboznjcbxmyb", True), ("qlnqmjmjk", True), ("university", False), ("xkcd", False)],
)
def test_invented_names_are_told_from_words(label: str, invented: bool) -> None:
    assert packets.is_invented(packets.Packet(0.0, "", f"{label}.com", "", 0)) is invented


@pytest.mark.parametrize(
    ("name", "count"), [("dns/sample_dns+dhcp.pcap", 2_297), ("dns/host_profiling_sample.pcap", 1_494)]
)
def test_real_captures(name: str, count: int, run: RunFlow, real_data: Callable[[str], Path]) -> None:
    path = real_data(name)
    volumes, _ = volumes_of(run, partial(packets.read_capture, path))
    assert volumes == plain_volumes(path)
    assert sum(number for number, _ in volumes.values()) == count


def test_real_hosts_that_ask_for_invented_names(run: RunFlow, real_data: Callable[[str], Path]) -> None:
    _, infected = volumes_of(run, partial(packets.read_capture, real_data("dns/host_profiling_sample.pcap")))
    _, office = volumes_of(run, partial(packets.read_capture, real_data("dns/sample_dns+dhcp.pcap")))
    assert len([alert for alert in infected if "invented" in alert]) >= 10
    assert not [alert for alert in office if "invented" in alert or "tunnel" in alert]
