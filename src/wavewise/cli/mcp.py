"""`wavewise mcp`: a Model Context Protocol server for assistants, over stdin and stdout."""

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("mcp")(mcp)


def mcp() -> None:
    """Serve wavewise's tools to an assistant over stdin and stdout (Model Context Protocol)."""
    from wavewise.report import agent

    agent.build()  # says what is missing before the protocol owns stdout
    import anyio

    anyio.run(agent.serve)
