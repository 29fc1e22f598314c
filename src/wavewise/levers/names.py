"""Kernel names short enough for a sentence."""

import re


def short_name(name: str, width: int = 60) -> str:
    """The function's own name: no return type, template arguments or parameters; cut in the middle if long.

    >>> short_name("void a::b::kernel<(T)1, 64>(Params<2>)")
    'a::b::kernel'
    """
    plain = re.sub(r"^(?:void|static|__global__)\s+", "", name.strip())
    plain = re.split(r"[<(]", plain, maxsplit=1)[0].strip() or name.strip()
    if len(plain) <= width:
        return plain
    half = (width - 3) // 2
    return f"{plain[:half]}...{plain[-half:]}"
