"""Help that reads well in a terminal: paragraphs flow with its width, examples have a line each."""

import inspect

import typer


def examples(*lines: str) -> str:
    """The text below the options; each line can be copied as it is."""
    return "\n".join(["Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def flow(app: typer.Typer) -> None:
    """Let the help of all commands of ``app`` flow: its library keeps the line ends of docstrings."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            flow(group.typer_instance)
