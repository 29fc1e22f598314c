"""The MCP server: tools with typed arguments and typed results over the official SDK.

Protocol: https://modelcontextprotocol.io/specification (tools, structured content).
"""

from typing import Any

import msgspec

from wavewise._version import __version__
from wavewise.errors import MissingExtraError, WavewiseError
from wavewise.report.agent.tools import TOOLS, Tool

INSTRUCTIONS = """\
wavewise reads profiler traces of LLM decode steps and computes where the time goes. Ask its tools for numbers; do not
derive them from a trace yourself. A figure that could not be measured is null with a reason beside it, never 0.
Sentences in `verdict` and `summary` hold as they stand, with their units and basis. Start with `analyse`; call a change
real only if `diff` says that it is beyond noise; look a lever up in `ledger` before proposing it."""


def build() -> Any:
    """The server, not yet connected to anything.

    Raises:
        MissingExtraError: the `mcp` package is not installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError:
        raise MissingExtraError(
            "the server for assistants needs the mcp package: pip install 'wavewise[mcp]'"
        ) from None

    async def list_tools(_context: Any, _parameters: Any) -> Any:
        return types.ListToolsResult(tools=[_described(tool, types) for tool in TOOLS])

    async def call_tool(_context: Any, parameters: Any) -> Any:
        import anyio

        return await anyio.to_thread.run_sync(_call, parameters.name, parameters.arguments or {}, types)

    return Server(
        "wavewise",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve() -> None:
    """Speaks with one client over stdin and stdout until it hangs up."""
    server = build()
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def _described(tool: Tool, types: Any) -> Any:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=" ".join((tool.takes.__doc__ or "").split()),
        input_schema=schema(tool.takes),
        output_schema=schema(tool.gives),
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a record, an object at its root as the protocol wants it."""
    whole = msgspec.json.schema(record)
    definitions: dict[str, Any] = whole.pop("$defs", {})
    name = whole.pop("$ref").rpartition("/")[2]
    root = definitions.pop(name)
    return {**root, "$defs": definitions} if definitions else root


def _call(name: str, arguments: dict[str, Any], types: Any) -> Any:
    """One call, answered; what the caller did wrong is told to it in one line."""
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        return _failed(f"no tool {name!r}; there are {', '.join(each.name for each in TOOLS)}", types)
    try:
        asked = msgspec.convert(arguments, tool.takes)
        answer = msgspec.to_builtins(tool.answer(asked), str_keys=True)
    except msgspec.ValidationError as error:
        return _failed(f"{name}: {error}", types)
    except WavewiseError as error:
        return _failed(f"{name}: {error}", types)
    text = types.TextContent(type="text", text=msgspec.json.encode(answer).decode())
    return types.CallToolResult(content=[text], structured_content=answer)


def _failed(message: str, types: Any) -> Any:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)
