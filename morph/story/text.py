"""The passage that figures feed to their models: fixed, so that a figure is the same on every machine.

The recorded models have read Python source; this is some, written for the project.
"""

from collections.abc import Sequence

PASSAGE = '''"""Keep the longest runs of equal values."""

from collections import deque


def longest_runs(values, limit=3):
    """Return the `limit` longest runs as (value, length), longest first."""
    runs = deque()
    previous, length = None, 0
    for value in values:
        if value == previous:
            length += 1
        else:
            if length:
                runs.append((previous, length))
            previous, length = value, 1
    if length:
        runs.append((previous, length))
    return sorted(runs, key=lambda run: run[1], reverse=True)[:limit]


class Counter:
    """Count how often each value was seen, and remember the order."""

    def __init__(self, values=()):
        self.counts = {}
        for value in values:
            self.add(value)

    def add(self, value):
        self.counts[value] = self.counts.get(value, 0) + 1
        return self.counts[value]

    def most_common(self, limit=None):
        """Return (value, count) pairs, the most frequent first."""
        pairs = sorted(self.counts.items(), key=lambda pair: pair[1], reverse=True)
        return pairs if limit is None else pairs[:limit]


def moving_average(values, width):
    """Yield the mean of the last `width` values, fewer at the start."""
    window, total = deque(), 0.0
    for value in values:
        window.append(value)
        total += value
        if len(window) > width:
            total -= window.popleft()
        yield total / len(window)
'''


def repeated(passage: Sequence[int], length: int, offset: int = 0) -> list[int]:
    """`length` of the passage's ids from `offset` on, the passage repeated where it ends."""
    return [passage[(offset + i) % len(passage)] for i in range(length)]
