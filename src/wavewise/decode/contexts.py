"""When two context lengths are one."""

SAME_CONTEXT = 0.05
"""Context lengths within 5 % are one: decoding itself adds a token per step to each request."""


def same_context(one: float, other: float) -> bool:
    """Whether two context lengths, in tokens, count as one; neither is the reference.

    >>> same_context(4096, 4200), same_context(4096, 12288)
    (True, False)
    """
    return max(one, other) <= min(one, other) * (1 + SAME_CONTEXT)
