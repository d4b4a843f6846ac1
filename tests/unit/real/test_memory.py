"""Large pieces cost what is written to them, and are gone with the last reference; trim gives the rest back."""

from pathlib import Path

from tailrace.real.memory import RealMemory

MIB = 1 << 20


def _own_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))


def test_a_large_piece_takes_what_is_written_to_it_and_gives_it_back():
    before = _own_bytes()
    piece = RealMemory().allocate(256 * MIB)
    assert len(piece) == 256 * MIB
    assert _own_bytes() - before < 16 * MIB
    view = memoryview(piece)
    view[: 64 * MIB] = b"x" * (64 * MIB)
    assert _own_bytes() - before > 48 * MIB
    assert piece.startswith(b"xx", 17)
    assert not piece.startswith(b"x\0y", 64 * MIB - 1)
    assert (piece[0], piece[64 * MIB], bytes(piece[1:3])) == (ord("x"), 0, b"xx")
    del view, piece
    assert _own_bytes() - before < 16 * MIB


def test_trim_gives_back_what_lies_below_a_piece_that_lives():
    before = _own_bytes()
    pieces: list[bytearray] = []
    while _own_bytes() - before < 64 * MIB:  # The first may lie in what earlier tests have left.
        pieces += [bytearray(96 << 10) for _ in range(100)]
    last = pieces[-1]
    pieces.clear()
    RealMemory().trim()
    assert _own_bytes() - before < 32 * MIB
    assert len(last) == 96 << 10
