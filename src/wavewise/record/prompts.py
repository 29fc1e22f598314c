"""Prompts of a known length that no two requests share, so that no prefix cache can serve them."""

import random

FIRST_ID = 100  # below lie special tokens, bytes and padding in common vocabularies
WIDE_LAST_ID = 20_000  # every vocabulary of a served model but toy ones is larger
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def token_ids(count: int, last_id: int, source: random.Random) -> list[int]:
    """`count` random token ids up to `last_id`.

    The range starts at `FIRST_ID`, or at 3 in a vocabulary too small for that.
    """
    first = FIRST_ID if last_id > 2 * FIRST_ID else min(3, last_id)
    return source.choices(range(first, last_id + 1), k=count)


def words(count: int, source: random.Random) -> str:
    """`count` random four-letter words; how many tokens they make only the server's tokenizer knows."""
    return " ".join("".join(source.choices(_LETTERS, k=4)) for _ in range(count))
