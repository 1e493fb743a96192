"""Counts rows per key, or per value where a row has no key, and emits the count so far for each row.

State is an ordinary dictionary: Weir snapshots the interpreter's memory, so nothing has to be declared or saved.
"""

from wit_world import exports
from wit_world.imports import log, output
from wit_world.imports.types import Batch, Blobs, Rejection

counts: dict[bytes, int] = {}


def items(column: Blobs) -> list[bytes]:
    start = 0
    answer = []
    for end in column.ends:
        answer.append(column.bytes[start:end])
        start = end
    return answer


def blobs(values: list[bytes]) -> Blobs:
    ends = []
    end = 0
    for value in values:
        end += len(value)
        ends.append(end)
    return Blobs(ends=ends, bytes=b"".join(values))


class Lifecycle(exports.Lifecycle):
    def open(self, context):
        log.write(log.Level.INFO, f"{context.operator}: counting")

    def process(self, input, rows):
        rejected = []
        timestamps, keys, values = [], [], []
        columns = zip(rows.timestamps, items(rows.keys), items(rows.values))
        for row, (timestamp, key, value) in enumerate(columns):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError as error:
                rejected.append(Rejection(row=row, reason=f"not UTF-8: {error.reason}"))
                continue
            counted = key or value
            counts[counted] = counts.get(counted, 0) + 1
            timestamps.append(timestamp)
            keys.append(counted)
            values.append(str(counts[counted]).encode())
        if timestamps:
            output.emit(0, Batch(timestamps=timestamps, keys=blobs(keys), values=blobs(values)))
        return rejected

    def advance(self, watermark):
        pass

    def finish(self):
        pass
