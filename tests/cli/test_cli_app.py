"""The application as a whole."""

from typer.main import get_command

from wavewise.cli.app import build


def test_it_is_built_anew_each_time() -> None:
    """Registering on what is there already would cost every further call in one process more than the last."""
    build()
    app = build()
    registered = len(app.registered_commands) + len(app.registered_groups)
    assert registered == len(get_command(app).commands) > 10  # each name once
