"""Captures written byte by byte from the format's definition, and read back in plain Python."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field

MAGIC = {False: 0xA1B2C3D4, True: 0xA1B23C4D}


def ipv4(src: str, dst: str, protocol: int = 6, payload: bytes = b"") -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    return head + ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed + payload


def ipv6(src: str, dst: str, following: int = 17, payload: bytes = b"") -> bytes:
    head = struct.pack(">IHBB", 6 << 28, len(payload), following, 64)
    return head + ipaddress.IPv6Address(src).packed + ipaddress.IPv6Address(dst).packed + payload


def ethernet(packet: bytes, kind: int | None = None, vlans: int = 0) -> bytes:
    if kind is None:
        kind = 0x86DD if packet[:1] and packet[0] >> 4 == 6 else 0x0800
    return bytes(12) + b"\x81\x00\x00\x05" * vlans + struct.pack(">H", kind) + packet


@dataclass
class Capture:
    """A capture in the making."""

    big: bool = False
    nanoseconds: bool = False
    link: int = 1
    snapped: int = 65535
    records: list[bytes] = field(default_factory=list)

    @property
    def order(self) -> str:
        return ">" if self.big else "<"

    def add(self, frame: bytes, second: int = 1_600_000_000, wire: int | None = None) -> Capture:
        length = len(frame) if wire is None else wire
        self.records.append(struct.pack(f"{self.order}IIII", second, 999_999, len(frame), length) + frame)
        return self

    def header(self) -> bytes:
        return struct.pack(f"{self.order}IHHiIII", MAGIC[self.nanoseconds], 2, 4, 0, 0, self.snapped, self.link)

    def to_bytes(self) -> bytes:
        return self.header() + b"".join(self.records)
