"""Counts rows per key, or per value where a row has no key, and emits the count so far for each row, under its key and time.

State is an ordinary dictionary: Weir snapshots the interpreter's memory, so nothing has to be declared or saved.
"""

from struct import pack, unpack_from

from wit_world import exports
from wit_world.imports import log, output
from wit_world.imports.types import Columns, Description, InputPort, OutputPort, Rejection, State_Memory

counts: dict[bytes, int] = {}


def blobs(data: bytes, ends: tuple[int, ...], start: int) -> list[bytes]:
    """The byte strings of a column whose bytes begin at `start`."""
    items = []
    begin = 0
    for end in ends:
        items.append(data[start + begin : start + end])
        begin = end
    return items


def bits(data: bytes, start: int, rows: int) -> list[bool]:
    return [bool(data[start + row // 8] >> row % 8 & 1) for row in range(rows)]


def read(rows) -> tuple[list[bytes], list[bytes], list[bool]]:
    """Keys, values, and whose key is absent, of a batch that has keys and values: the columns lie one after the other, as weir.wit says."""
    ends = unpack_from(f"<{2 * rows.rows}I", rows.data)
    key_ends, value_ends = ends[: rows.rows], ends[rows.rows :]
    keys_at = 8 * rows.rows
    values_at = keys_at + key_ends[-1]
    bits_at = values_at + value_ends[-1]
    absent = bits(rows.data, bits_at, rows.rows) if Columns.ABSENT_KEYS in rows.has else [False] * rows.rows
    return blobs(rows.data, key_ends, keys_at), blobs(rows.data, value_ends, values_at), absent


class Lifecycle(exports.Lifecycle):
    def describe(self):
        return Description(
            doc="Counts rows per key, or per value where a row has no key",
            inputs=[InputPort(name="in", doc="The rows that are counted")],
            outputs=[OutputPort(name="main", doc="For each row the count so far, in decimal", keeps_key=True)],
            config='{"type": "object", "additionalProperties": false}',
            state=State_Memory(),
            uses_store=False,
            uses_timers=False,
            pure=False,
            scratch=None,
        )

    def open(self, context):
        log.write(log.Level.INFO, f"{context.operator}: counting")
        return [Columns.KEYS | Columns.VALUES]

    def process(self, input, rows):
        rejected, numbers, ends, values = [], [], [], []
        for row, (key, value, is_absent) in enumerate(zip(*read(rows))):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError as error:
                rejected.append(Rejection(row=row, reason=f"not UTF-8: {error.reason}"))
                continue
            counted = value if is_absent else key
            counts[counted] = counts.get(counted, 0) + 1
            numbers.append(row)
            values.append(str(counts[counted]).encode())
            ends.append(len(values[-1]) + (ends[-1] if ends else 0))
        if numbers:
            output.emit_values(0, pack(f"<{len(numbers)}I", *numbers), pack(f"<{len(ends)}I", *ends) + b"".join(values))
        return rejected

    def advance(self, watermark):
        pass

    def finish(self):
        pass
