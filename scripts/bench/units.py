"""Numbers as people read them."""

from __future__ import annotations

SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
TIMES = ((1e6, "s"), (1e3, "ms"))  # in microseconds


def size_text(size: int) -> str:
    """4 B, 64 KiB, 25 MiB."""
    for unit, name in SIZES:
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def cell_text(cell: str) -> str:
    """A size, or the name of a form or program."""
    return size_text(int(cell)) if cell.isdigit() else cell


def time_text(us: float | None) -> str:
    """0.21 us, 9.56 ms: three digits."""
    if us is None:
        return "-"
    for unit, name in TIMES:
        if us >= unit:
            return f"{us / unit:.3g} {name}" if us / unit < 1000 else f"{us / unit:.0f} {name}"
    return f"{us:.3g} us"


def ratio_text(ratio: float | None) -> str:
    """5.31x."""
    return "-" if ratio is None else f"{ratio:.3g}x" if ratio < 100 else f"{ratio:.0f}x"


def share_text(share: float | None) -> str:
    """87.3 %: a tenth of a percent, because a line rate is judged by it."""
    return "-" if share is None else f"{share * 100:.1f} %"
