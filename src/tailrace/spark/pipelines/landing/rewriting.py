"""A merge by rewriting: which rows of a file stay when rows of the same keys come. Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

_HERE, _COMING = "_tailrace_here", "_tailrace_coming"


class Merge:
    """Rows that come, one for each key. A row of the table gives way to the one of its key, unless it has a higher
    version; then the one that comes is `late`. In columns of `unavailable` a value that is one of those texts becomes
    the one that was there."""

    def __init__(
        self,
        rows: pa.Table,
        keys: Sequence[str],
        version: str | None,
        unavailable: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._rows = rows
        self._gaps = {name: _is_any(rows[name], texts) for name, texts in (unavailable or {}).items()}
        # What was there, by column: positions in `rows`, and values.
        self._there: dict[str, list[tuple[Any, pa.ChunkedArray]]] = {name: [] for name in self._gaps}
        self._keys = list(keys)
        self._version = version
        self._late: set[int] = set()

    def rest(self, there: pa.Table) -> pa.Table | None:
        """What stays of these rows of the table; None if it is all of them."""
        import numpy as np
        import pyarrow as pa

        pairs = self._pairs(there)
        here, coming = (np.asarray(pairs[name], np.int64) for name in (_HERE, _COMING))
        if self._version is not None:
            is_late = np.array(self._is_late(there, here, coming), bool)
            self._late.update(coming[is_late].tolist())
            here, coming = here[~is_late], coming[~is_late]
        for name, found in self._there.items():
            is_gap = self._gaps[name][coming]
            found.append((coming[is_gap], there[name].take(here[is_gap])))
        if not len(here):
            return None
        stays = np.ones(there.num_rows, bool)
        stays[here] = False
        return there.filter(pa.array(stays))

    def in_time(self) -> pa.Table:
        """Those that come and are not late; to be asked when all of the table's rows of these keys were seen."""
        import numpy as np
        import pyarrow as pa

        kept = np.ones(self._rows.num_rows, bool)
        kept[list(self._late)] = False
        return self._filled(self._rows).filter(pa.array(kept))

    def _filled(self, rows: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        for index, name in enumerate(rows.column_names):
            if name not in self._gaps or not self._gaps[name].any():
                continue
            field = rows.schema.field(name)
            positions = np.concatenate([np.empty(0, np.int64), *(places for places, _ in self._there[name])])
            place = np.full(rows.num_rows, -1)
            place[positions] = np.arange(len(positions))
            chunks = [chunk for _, values in self._there[name] for chunk in values.cast(field.type).chunks]
            old = pa.chunked_array(chunks, field.type).take(pa.array(place, mask=place < 0))
            rows = rows.set_column(index, field, pc.if_else(pa.array(self._gaps[name]), old, rows[name]))
        return rows

    def condition(self) -> BooleanExpression:
        """True for every row that has one of the keys, and for few others: files are left out by it."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThanOrEqual, Reference

        found: BooleanExpression = AlwaysTrue()
        for name in self._keys:
            column = self._rows[name]
            if pa.types.is_integer(column.type) or pa.types.is_string(column.type):
                bounds: Any = pc.min_max(column).as_py()
                found = And(
                    found,
                    GreaterThanOrEqual(term=Reference(name), value=bounds["min"]),
                    LessThanOrEqual(term=Reference(name), value=bounds["max"]),
                )
        return found

    def _pairs(self, there: pa.Table) -> pa.Table:
        """Indices of rows that have the same key. Only keys are joined: Arrow cannot carry nested columns through."""
        import numpy as np
        import pyarrow as pa

        left = there.select(self._keys)
        right = self._rows.select(self._keys).cast(left.schema)
        left = left.append_column(_HERE, pa.array(np.arange(left.num_rows)))
        right = right.append_column(_COMING, pa.array(np.arange(right.num_rows)))
        return left.join(right, self._keys, join_type="inner")

    def _is_late(self, there: pa.Table, here: Any, coming: Any) -> pa.ChunkedArray:
        import pyarrow.compute as pc

        version = str(self._version)
        old = there[version].take(here)
        return pc.fill_null(pc.less(self._rows[version].take(coming).cast(old.type), old), False)


def _is_any(column: pa.ChunkedArray, texts: Collection[str]) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.asarray(pc.is_in(column, pa.array(list(texts), pa.string()).cast(column.type)), bool)
