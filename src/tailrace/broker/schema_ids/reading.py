"""The schema ids of a batch: which records name which, and which name none. In steps, like every walk over records."""

from functools import partial

from tailrace.log.validation import RECORDS_PER_STEP, Steps
from tailrace.model.config import TopicConfig
from tailrace.schemas.framing import FramingError, read_frame
from tailrace.wire.records import crc_is_valid, iterate_unpacked, read_header, unpack_records


class Named:
    """By part (key, value) and schema (an id, or a guid) the records that name it; what is wrong with the others."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int | str], list[int]] = {}
        self.bad: list[tuple[int, str]] = []


def read_named(view: memoryview, config: TopicConfig, max_decompressed_bytes: int) -> Steps[Named]:
    """Of a batch that is damaged nothing is told: the checks of the log refuse it."""
    named = Named()
    header = read_header(view)
    if not crc_is_valid(view, 0, header):
        return named
    data = yield partial(unpack_records, view, header, max_decompressed_bytes)
    for index, record in enumerate(iterate_unpacked(header, data)):
        headers = [(str(name), value) for name, value in record.headers]
        if config.confluent_key_schema_validation and record.key is not None:
            _note(named, index, "key", record.key, headers)
        if config.confluent_value_schema_validation and record.value is not None:
            _note(named, index, "value", record.value, headers)
        if index % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
            yield None
    return named


def _note(named: Named, index: int, part: str, content: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    try:
        schema = read_frame(content, part, headers).schema
    except FramingError as error:
        named.bad.append((index, f"The {part} of the record names no schema: {error}"))
    else:
        named.records.setdefault((part, schema), []).append(index)
