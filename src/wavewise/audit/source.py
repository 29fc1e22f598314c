"""From what a user names to what Triton compiles: kernel, signature, constants, configurations."""

import contextlib
import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from wavewise.audit.records import KernelConfig
from wavewise.audit.toolchain import require_triton
from wavewise.errors import InputError, UsageError

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_ALIGNED = 16


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Where a kernel can be found again, in this process or another.

    Attributes:
        name: attribute of the module, dots for nesting.
        path: file of the module, None for a module that is imported by `module`.
        module: dotted name to import.
        search_path: what has to stand on sys.path for it.
    """

    name: str
    path: str | None
    module: str
    search_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Types and alignment hints of the parameters that are no constants.

    Attributes:
        types: parameter name -> Triton's type name: "*bf16", "i32".
        aligned: names whose value (or address) is a multiple of 16: Triton specialises on that at launch.
        ones: names whose value is 1: Triton compiles them in as constants.
    """

    types: Mapping[str, str]
    aligned: frozenset[str]
    ones: frozenset[str]


def locate(text: str) -> KernelSource:
    """The source that "path/to/module.py:kernel" names; a file inside a package is imported as part of it.

    Raises:
        UsageError: not of that form.
        InputError: no such file.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"kernel {text!r}: write path/to/module.py:kernel")
    path = Path(place)
    if not path.is_file():
        raise InputError(f"{place}: no such file")
    path = path.resolve()
    package = path.parent
    parts = [path.stem]
    while (package / "__init__.py").exists():
        parts.insert(0, package.name)
        package = package.parent
    if len(parts) > 1:
        return KernelSource(name, None, ".".join(parts), (str(package),))
    return KernelSource(name, str(path), path.stem, (str(package),))


def source_of(kernel: Any) -> KernelSource | None:
    """Where a kernel object can be found again by a worker, None for one that only lives in this process."""
    function = unwrapped(kernel)
    module_name = getattr(function, "__module__", None)
    module = sys.modules.get(module_name or "")
    name = getattr(function, "__qualname__", None) or function.__name__
    path = getattr(module, "__file__", None)
    if module is None or module_name == "__main__" or path is None or "<locals>" in name:
        return None
    try:
        importable = importlib.util.find_spec(str(module_name)) is not None
    except (ImportError, ValueError, AttributeError):
        importable = False
    if importable:
        return KernelSource(name, None, str(module_name), ())
    return KernelSource(name, str(path), str(module_name), (str(Path(path).parent),))


def load(source: KernelSource) -> Any:
    """Imports the module and finds the kernel in it.

    Raises:
        InputError: the module cannot be imported.
        UsageError: it holds no such kernel.
    """
    require_triton()
    for entry in source.search_path:
        if entry not in sys.path:
            sys.path.insert(0, entry)
    where = source.path or source.module
    try:
        # What the module prints while it is imported does not belong into a report on stdout.
        with contextlib.redirect_stdout(sys.stderr):
            module = _module_at(source) if source.path else importlib.import_module(source.module)
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{where}: cannot be imported ({type(error).__name__}: {said})") from error
    found: Any = module
    for part in source.name.split("."):
        found = getattr(found, part, None)
    if found is None:
        kernels = sorted(name for name, value in vars(module).items() if _is_kernel(value))
        near = get_close_matches(source.name, kernels, n=3) or kernels[:5]
        hint = f"; there: {', '.join(near)}" if near else "; it holds no Triton kernel"
        raise UsageError(f"{where}: no kernel {source.name!r}{hint}")
    if not _is_kernel(found):
        raise UsageError(f"{where}: {source.name!r} is no Triton kernel (a function under @triton.jit)")
    return unwrapped(found)


def _module_at(source: KernelSource) -> ModuleType:
    name = f"_wavewise_audited_{source.module}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == source.path:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, str(source.path))
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def unwrapped(kernel: Any) -> Any:
    """The JIT function inside autotuners and heuristics; anything else as it is."""
    while not hasattr(kernel, "arg_names") or type(kernel).__name__ in ("Autotuner", "Heuristics"):
        inner = getattr(kernel, "fn", None)
        if inner is None or inner is kernel:
            break
        kernel = inner
    return kernel


def _is_kernel(value: Any) -> bool:
    function = unwrapped(value)
    return hasattr(function, "arg_names") and hasattr(function, "params") and hasattr(function, "cache_key")


def parse_signature(kernel: Any, signature: str | Mapping[str, str], constants: Iterable[str]) -> Signature:
    """Types of every parameter that is no constant.

    A signature is "*bf16, *bf16, i32" (in the order of the parameters that are no constants), or
    "q=*bf16, n=i32"; ":16" behind a type says the value is a multiple of 16, ":1" that it is 1. Pointers count
    as aligned to 16 bytes, as whole torch tensors are; ":8" and the like take that back.

    Raises:
        UsageError: an unknown type or name, or parameters that are left without a type.
    """
    known_constants = set(constants)
    free = [p.name for p in kernel.params if p.name not in known_constants and not p.is_constexpr]
    words = dict(signature) if isinstance(signature, Mapping) else _named(signature, free, kernel)
    types: dict[str, str] = {}
    aligned: set[str] = set()
    ones: set[str] = set()
    for name, word in words.items():
        if name not in kernel.arg_names:
            raise UsageError(_unknown_name(kernel, name))
        if name in known_constants:
            raise UsageError(f"{name!r} is given both a type and a constant")
        kind, _, hint = word.strip().partition(":")
        types[name] = _type(kind.strip(), name)
        if hint and not hint.strip().isdigit():
            raise UsageError(f"signature: {word!r}: the hint behind ':' is a number (16 or 1)")
        if hint.strip() == "1" and not kind.strip().startswith("*"):
            ones.add(name)
        elif (not hint and kind.strip().startswith("*")) or (hint and int(hint) % _ALIGNED == 0):
            aligned.add(name)
    if missing := [name for name in free if name not in types]:
        said = ", ".join(missing)
        raise UsageError(
            f"{kernel.__name__}: no type for {said}; give --signature in the order {', '.join(free)}"
        )
    return Signature(types, frozenset(aligned), frozenset(ones))


def _named(signature: str, free: Sequence[str], kernel: Any) -> dict[str, str]:
    words = [word.strip() for word in signature.split(",") if word.strip()]
    named = ["=" in word for word in words]
    if all(named):
        pairs = [word.partition("=") for word in words]
        return {name.strip(): kind.strip() for name, _, kind in pairs}
    if any(named):
        raise UsageError(f"signature {signature!r}: name all parameters or none")
    if len(words) != len(free):
        raise UsageError(
            f"{kernel.__name__}: the signature has {len(words)} types for {len(free)} parameters: {', '.join(free)}"
        )
    return dict(zip(free, words, strict=True))


def _type(kind: str, name: str) -> str:
    from triton._utils import type_canonicalisation_dict as canonical

    if re.fullmatch(r"(tensordesc<.+>|nvTmaDesc)", kind):
        return kind
    bare = kind.removeprefix("*").removeprefix("k")
    if bare not in canonical:
        near = get_close_matches(bare, list(canonical), n=3) or ["bf16", "fp32", "i32"]
        raise UsageError(
            f"signature: {name}: unknown type {kind!r}; for example {', '.join(near)}, with * for pointers"
        )
    return kind.removesuffix(bare) + canonical[bare]


def _unknown_name(kernel: Any, name: str) -> str:
    near = get_close_matches(name, kernel.arg_names, n=3) or kernel.arg_names
    return f"{kernel.__name__} has no parameter {name!r}; there: {', '.join(near)}"


def as_config(given: Any) -> KernelConfig:
    """A KernelConfig, a `triton.Config`, or a plain mapping of constants and options, as a KernelConfig.

    Raises:
        UsageError: none of these, or an option that cannot be.
    """
    if isinstance(given, KernelConfig):
        config = given
    elif isinstance(given, Mapping):
        options = {name: given[name] for name in _OPTIONS if name in given}
        constants = {name: value for name, value in given.items() if name not in _OPTIONS}
        config = KernelConfig(constexprs=constants, **options)
    elif hasattr(given, "kwargs") and hasattr(given, "num_warps"):
        options = {name: getattr(given, name) for name in _OPTIONS if getattr(given, name, None) is not None}
        config = KernelConfig(constexprs=dict(given.kwargs), **options)
    else:
        raise UsageError(f"{given!r} is no configuration: give a mapping, a triton.Config or a KernelConfig")
    warps, most = config.num_warps, 32
    if warps < 1 or warps & (warps - 1) or warps > most:
        raise UsageError(f"num_warps {warps}: a power of two from 1 to {most}")
    if config.num_stages < 1:
        raise UsageError(f"num_stages {config.num_stages}: at least 1")
    if config.num_ctas not in (1, 2, 4, 8, 16):
        raise UsageError(f"num_ctas {config.num_ctas}: 1, 2, 4, 8 or 16")
    if config.maxnreg is not None and not 1 <= config.maxnreg <= 255:
        raise UsageError(f"maxnreg {config.maxnreg}: between 1 and 255")
    return config


def constants_of(kernel: Any, config: KernelConfig) -> dict[str, Any]:
    """The configuration's constants, completed by the kernel's own defaults.

    Raises:
        UsageError: a constant that is no parameter, or a constexpr parameter without a value.
    """
    constants = dict(config.constexprs)
    for name in constants:
        if name not in kernel.arg_names:
            raise UsageError(_unknown_name(kernel, name))
    missing: list[str] = []
    for parameter in kernel.params:
        if parameter.is_constexpr and parameter.name not in constants:
            if parameter.has_default:
                constants[parameter.name] = parameter.default
            else:
                missing.append(parameter.name)
    if missing:
        example = f"--constexpr {missing[0]}=..."
        raise UsageError(f"{kernel.__name__}: no value for {', '.join(missing)}; give {example}")
    return constants


def expand(
    constexprs: Mapping[str, Sequence[Any]], options: Mapping[str, Sequence[int | None]]
) -> list[KernelConfig]:
    """Every combination of the listed values, in order."""
    names = [*constexprs, *options]
    lists = [*constexprs.values(), *options.values()]
    configs: list[KernelConfig] = []
    for combination in itertools.product(*lists):
        values = dict(zip(names, combination, strict=True))
        chosen = {name: values[name] for name in options if values[name] is not None}
        configs.append(as_config(KernelConfig(constexprs={n: values[n] for n in constexprs}, **chosen)))
    return configs


def constant(text: str) -> Any:
    """The value of a constant as written on a command line: 32, 1.5, True, None, bf16 (a type), or text."""
    word = text.strip()
    literal = {"true": True, "false": False, "none": None}
    if word.lower() in literal:
        return literal[word.lower()]
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    if re.fullmatch(r"tl\.\w+", word):
        require_triton()
        import triton.language as tl

        if isinstance(getattr(tl, word[3:], None), tl.dtype):
            return getattr(tl, word[3:])
    return word
