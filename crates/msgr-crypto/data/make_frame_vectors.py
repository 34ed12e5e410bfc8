#!/usr/bin/env python3
"""Makes frame_vectors.json: whole encrypted frames, computed by other means than the Rust code.

Written from Ceph's doc/dev/msgr2.rst and src/msg/async/frames_v2.h alone, with the AESGCM of the
`cryptography` package. Run: python3 make_frame_vectors.py > frame_vectors.json
"""
import json
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def crc32c(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def pad(data, to=16):
    return data + bytes(-len(data) % to)


def preamble(tag, segments, aligns, flags):
    entries = b"".join(struct.pack("<IH", len(s), a) for s, a in zip(segments, aligns))
    block = struct.pack("<BB", tag, len(segments)) + entries.ljust(24, b"\0") + bytes([flags, 0])
    assert len(block) == 28
    return block + struct.pack("<I", crc32c(block))


def v20(key, fixed, counter, tag, segments, aligns, flags):
    nonce = struct.pack("<I", counter) + fixed
    plain = preamble(tag, segments, aligns, flags) + b"".join(map(pad, segments)) + bytes(16)
    return AESGCM(key).encrypt(nonce, plain, None)


def v21(key, fixed, counter, tag, segments, aligns, flags):
    wire = b""
    first = pad(segments[0])
    units = [preamble(tag, segments, aligns, flags) + first[:48].ljust(48, b"\0")]
    if len(first) > 48:
        units.append(first[48:])
    if len(segments) > 1:
        units.append(b"".join(map(pad, segments[1:])) + b"\x0e" + bytes(15))
    for index, unit in enumerate(units):
        nonce = fixed + struct.pack("<Q", counter + index)
        wire += AESGCM(key).encrypt(nonce, unit, None)
    return wire


def data(n, seed):
    return bytes((i * 31 + seed * 17 + (i >> 8)) & 0xFF for i in range(n))


key = bytes(range(16))
vectors = []
for name, lens, tag in [
    ("keepalive", [8], 20),
    ("empty ack", [0], 22),
    ("inline full", [48], 19),
    ("first segment longer than inline", [49], 5),
    ("hello with two segments", [100, 7], 1),
    ("read request", [41, 247], 17),
    ("read reply of 100 bytes", [41, 182, 0, 100], 17),
    ("read reply of 4 KiB", [41, 182, 0, 4096], 17),
    ("all segments odd", [41, 33, 1, 4097], 17),
]:
    segments = [data(n, i) for i, n in enumerate(lens)]
    aligns = [8, 8, 8, 4096][: len(segments)]
    for revision in ("2.0", "2.1"):
        if revision == "2.0":
            initial = struct.pack("<I", 0xFFFFFFFE) + data(8, 9)
            wire = v20(key, data(8, 9), 0xFFFFFFFE, tag, segments, aligns, 0)
        else:
            initial = data(4, 9) + struct.pack("<Q", 0x1_0000_00FF)
            wire = v21(key, data(4, 9), 0x1_0000_00FF, tag, segments, aligns, 0)
        vectors.append(
            {
                "name": name,
                "revision": revision,
                "nonce": initial.hex(),
                "tag": tag,
                "lens": lens,
                "wire": wire.hex(),
            }
        )
print(json.dumps({"key": key.hex(), "vectors": vectors}, indent=1))
