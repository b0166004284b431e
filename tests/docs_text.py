"""Reading code and commands out of the Markdown pages."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from daskgp.cli import main

ROOT = Path(__file__).parents[1]


def code_blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def check_commands(text: str) -> set[str]:
    """Parse every ``daskgp`` line of the shell blocks as the command would; the names seen.

    Synopses, which have square brackets, are checked for the options they name.
    """
    seen = set()
    for line in "\n".join(code_blocks(text, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["daskgp"]:
            continue
        command = main.commands[words[1]]
        seen.add(words[1])
        context = command.make_context(words[1], [], resilient_parsing=True)
        if "[--" in line or "".join(words[2:3]).isupper():
            options = {
                name
                for parameter in command.params
                for name in (*parameter.opts, *parameter.secondary_opts)
            }
            assert set(re.findall(r"--[a-z-]+", line)) <= options, line
        else:
            context.resilient_parsing = False  # which would let unknown options pass
            command.make_parser(context).parse_args(words[2:])
    return seen


def run_cells(text: str) -> dict[str, Any]:
    """Run the code cells of a tutorial in the working folder; the names they leave behind.

    Cells of shell commands run in bash, and magics of notebooks are left out.
    """
    names: dict[str, Any] = {}
    for cell in code_blocks(text, r"\{code-cell\} ipython3"):
        code = re.sub(r"\A((?s:---\n.*?\n---\n)|(:.*\n)+)\n*", "", cell)
        if code.startswith("%%bash\n"):
            done = subprocess.run(
                ["bash", "-c", code.partition("\n")[2]], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
        elif not code.startswith("%"):
            exec(compile(code, "tutorial", "exec"), names)
    return names
