"""Search in one pass over the matrix: each row's product with the query is used while it is at hand.

Bound by reading the matrix. Sums are taken in another order than NumPy's: the last bits of scores may differ.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def search(rows, query, k, threshold):
    """The k rows of largest product with the query, best first, equal ones by row number.

    Args:
        rows: (n, dim) float32, contiguous.
        query: (dim,) float32.
        k: at least 1; kept sorted by insertion, so it should be small.
        threshold: least product, inclusive.

    Returns:
        (row numbers int64, products float32), at most k of each.
    """
    size = min(k, rows.shape[0])
    best, scores = np.empty(size, np.int64), np.empty(size, np.float32)
    count = 0
    for i in range(rows.shape[0]):
        total = np.float32(0)
        for j in range(rows.shape[1]):
            total += rows[i, j] * query[j]
        if total >= threshold and (count < size or total > scores[count - 1]):
            # an equal score stays behind the older row
            place = min(count, size - 1)
            while place > 0 and scores[place - 1] < total:
                best[place], scores[place] = best[place - 1], scores[place - 1]
                place -= 1
            best[place], scores[place] = i, total
            count = min(count + 1, size)
    return best[:count], scores[:count]
