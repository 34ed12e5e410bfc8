#!/usr/bin/env python3
"""Prints the samples of a wcprof trace (format 2) as CSV: docs/trace-format.md as a program.

    read_wct.py TRACE > samples.csv

It needs Python's standard library alone; Python before 3.14 also the program `zstd`.
"""

import csv
import subprocess
import sys
import zlib
from dataclasses import dataclass, field

MAGIC = b"\x89wcprof\n"
MARK = b"\x89wcblk\r\n"
FILE_HEADER_BYTES, BLOCK_HEADER_BYTES = 36, 44
TABLES, SPANS, NAMES = 1, 2, 3
STATES = ["on-cpu", "guest", "runnable", "blocked", "steal-irq", "unknown", "vm-exit"]
# The tables whose sizes begin each block, in this order.
COUNTED = ["processes", "modules", "threads", "frames", "nodes", "stacks", "waits", "counters"]


def decompress(frame):
    try:
        from compression import zstd

        return zstd.decompress(frame)
    except ImportError:
        return subprocess.run(["zstd", "-dqc"], input=frame, stdout=subprocess.PIPE, check=True).stdout


class Input:
    """Bytes that are taken from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def more(self):
        return self.at < len(self.data)

    def bytes(self, n):
        taken = self.data[self.at : self.at + n]
        if len(taken) < n:
            raise ValueError("a value goes past the end of its section")
        self.at += n
        return taken

    def byte(self):
        return self.bytes(1)[0]

    def number(self):
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def delta(self, base):
        z = self.number()
        return base + ((z >> 1) ^ -(z & 1))

    def string(self):
        return self.bytes(self.number()).decode()

    def part(self):
        """What is behind its length: a section's content, an entry, a column."""
        return Input(self.bytes(self.number()))


@dataclass
class Trace:
    processes: list = field(default_factory=list)
    modules: list = field(default_factory=list)
    threads: list = field(default_factory=list)
    frames: list = field(default_factory=list)
    nodes: list = field(default_factory=list)
    stacks: list = field(default_factory=list)
    waits: list = field(default_factory=list)
    counters: list = field(default_factory=list)
    names: dict = field(default_factory=dict)
    local_names: dict = field(default_factory=dict)
    damage: list = field(default_factory=list)

    def stack(self, leaf):
        """The functions of a stack, root first."""
        found = []
        while leaf is not None:
            leaf, frame = self.nodes[leaf]
            functions = self.local_names.get(frame) or self.names.get(frame) or [self.frames[frame]]
            found.extend(functions)
        return found[::-1]


# What stands for an entry that was lost with its block.
LOST = {
    "processes": (0, "[lost]"),
    "modules": "[lost]",
    "threads": [0, 0, "[lost]"],
    "frames": "[lost]",
    "nodes": (None, 0),
    "stacks": None,
    "waits": None,
    "counters": "[lost]",
}


def number(data, at, n):
    return int.from_bytes(data[at : at + n], "little")


def blocks(data, trace):
    """The kind and the sections of each block that is whole."""
    at = FILE_HEADER_BYTES
    while at < len(data):
        head = data[at : at + BLOCK_HEADER_BYTES]
        is_header = len(head) == BLOCK_HEADER_BYTES and head.startswith(MARK)
        if not is_header or zlib.crc32(head[:40]) != number(head, 40, 4):
            trace.damage.append(at)
            found = data.find(MARK, at + 1)
            at = len(data) if found < 0 else found
            continue
        kind, codec, length = head[8], head[9], number(head, 16, 4)
        payload = data[at + BLOCK_HEADER_BYTES :][:length]
        if len(payload) < length or zlib.crc32(payload) != number(head, 20, 4):
            trace.damage.append(at)
        elif kind in (TABLES, SPANS, NAMES) and codec <= 1:
            yield Input(decompress(payload) if codec == 1 else payload)
        at += BLOCK_HEADER_BYTES + length


def table(trace, name, section, read):
    """Reads a table: each entry is behind its length, so that what `read` leaves is skipped."""
    entries = getattr(trace, name)
    if section.number() != len(entries):
        raise ValueError(f"{name} do not go on where they ended")
    for _ in range(section.number()):
        entries.append(read(section.part(), len(entries)))


def process(entry, _id):
    return entry.delta(0), entry.string()


def module(entry, _id):
    entry.number()
    return entry.string()


def thread(entry, _id):
    process, tid = entry.number(), entry.delta(0)
    entry.number()
    return [process, tid, entry.string()]


def node(entry, id):
    distance = entry.number()
    return (id - distance if distance else None), entry.number()


def stack(entry, _id):
    leaf = entry.number()
    return leaf - 1 if leaf else None


def frame(trace):
    def read(entry, _id):
        kind = entry.byte()
        if kind in (0, 1):
            return f"{trace.modules[entry.number()]}+{entry.number():#x}"
        if kind in (2, 4):
            return f"{entry.number():#x}"
        return entry.string() if kind == 3 else "[unknown]"

    return read


def symbols(section, names):
    """Names of frames: functions of a frame from the innermost inline function outward."""
    if section.byte() == 1:
        names.clear()
    strings = [section.string() for _ in range(section.number())]
    frame = 0
    for _ in range(section.number()):
        entry = section.part()
        frame += entry.number()
        functions = []
        for _ in range(entry.number()):
            flags = entry.byte()
            functions.append(strings[entry.number()])
            if flags & 1:
                entry.number()
            if flags & 2:
                entry.number()
        names[frame] = functions


def spans(section):
    """Yields (thread, start, end, weight, observations, state, wait, stack); times in ns."""
    threads, id = [], 0
    for _ in range(section.number()):
        id = section.delta(id)
        threads.append(id)
    base, n_columns, n = section.number(), section.number(), section.number()
    columns = [section.part() for _ in range(n_columns)]
    flags_of, place_of, starts, ends, weights, observations, waits, stacks = columns[:8]
    # Of each thread: start, end, what is left of the interval, weight, whether blocked, wait, stack.
    lasts = [[base, base, 0, 0, False, 0, 0] for _ in threads]
    place, end = 0, base
    for _ in range(n):
        flags = flags_of.byte()
        place = place_of.delta(place)
        last = lasts[place]
        is_blocked = flags & 7 == 3
        guess = last[2]
        if flags & 64:
            if is_blocked and last[4]:
                guess = last[3]
        else:
            last[0] = last[1] if flags & 32 else starts.delta(last[1])
            last[1] = ends.delta(end)
            guess = last[2] = last[1] - last[0]
        end = last[1]
        weight = guess
        if not flags & 128:
            z = weights.number()
            weight = z >> 1 if z & 1 else guess - (z >> 1)
        last[2:5] = max(last[2] - weight, 0), weight, is_blocked
        wait = stack = None
        if flags & 8:
            wait = last[5] = waits.delta(last[5])
        if flags & 16:
            stack = last[6] = stacks.delta(last[6])
        n_observations = observations.number()
        state = STATES[flags & 7] if flags & 7 < len(STATES) else f"state {flags & 7}"
        yield threads[place], last[0] * 1000, last[1] * 1000, weight * 1000, n_observations, state, wait, stack


def read(data, each):
    """Reads a trace; `each` gets the trace so far and a span."""
    trace = Trace()
    if not data.startswith(MAGIC):
        raise ValueError("not a wcprof trace")
    if number(data, 8, 4) != 2:
        raise ValueError(f"format version {number(data, 8, 4)}; this program reads version 2")
    if number(data, 16, 8) != 0 or zlib.crc32(data[:32]) != number(data, 32, 4):
        raise ValueError("the file is damaged, or needs features that this program does not have")
    tables = {2: ("processes", process), 3: ("modules", module), 4: ("threads", thread), 8: ("nodes", node)}
    tables |= {7: ("frames", frame(trace)), 9: ("stacks", stack), 10: ("waits", lambda *_: None)}
    for sections in blocks(data, trace):
        while sections.more():
            tag, section = sections.byte(), sections.part()
            if tag == 14:
                for name in COUNTED:
                    entries, size = getattr(trace, name), section.number()
                    entries.extend(LOST[name] for _ in range(size - len(entries)))
            elif tag in tables:
                name, entry = tables[tag]
                table(trace, name, section, entry)
            elif tag == 5:
                while section.more():
                    entry = section.part()
                    id, _seen = entry.number(), entry.number()
                    trace.threads[id] = [*trace.threads[id][:2], entry.string()]
            elif tag == 11:
                for span in spans(section):
                    each(trace, span)
            elif tag in (13, 130):
                symbols(section, trace.names if tag == 13 else trace.local_names)
            elif tag == 141:
                while section.more():
                    entry = section.part()
                    if entry.byte() == 0:
                        entry.byte()
                        trace.counters.append(entry.string())
    return trace


def main():
    found = []
    with open(sys.argv[1], "rb") as file:
        trace = read(file.read(), lambda _trace, span: found.append(span))
    for at in trace.damage:
        print(f"damaged at byte {at}", file=sys.stderr)
    out = csv.writer(sys.stdout)
    out.writerow("start_ns,end_ns,weight_ns,samples,pid,process,tid,thread,state,stack".split(","))
    for thread, start, end, weight, samples, state, _wait, stack in found:
        process, tid, name = trace.threads[thread]
        functions = trace.stack(trace.stacks[stack]) if stack is not None else []
        out.writerow([start, end, weight, samples, *trace.processes[process], tid, name, state, ";".join(functions)])


if __name__ == "__main__":
    main()
