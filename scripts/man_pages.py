"""Writes the manual pages of all programs, from the option tables in the code.

    scripts/man_pages.py FOLDER       writes FOLDER/man1/gradbus*.1 and FOLDER/man8/gradbus-*.8

The date in a page is SOURCE_DATE_EPOCH, or that of the last commit.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import re
import subprocess
import sys

import command_tables
from command_tables import Option, Program

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
HOME = "The documentation is in /usr/share/doc/gradbus and in docs/ of the source."
# Programs that only other programs start: what their manual page says.
INNER = {
    "gradbus-bench-rank": "one rank of a benchmark; gradbus bench starts it",
    "gradbus-nccl": "one rank of an NCCL communicator; gradbus-agent starts it",
}
FILES = {
    "gradbus-agent": [("/etc/gradbus/agent.toml", "settings, in the table [agent]"),
                      ("/etc/gradbus/token", "the cluster token, mode 0400, owned by gradbus"),
                      ("/run/gradbus/agent.sock", "the socket that training processes attach to")],
    "gradbus-server": [("/etc/gradbus/server.toml", "settings of the coordinator, in the table [server]"),
                       ("/etc/gradbus/shard.toml", "settings of a shard, in the table [agent]"),
                       ("/etc/gradbus/token", "the cluster token, mode 0400, owned by gradbus"),
                       ("/var/lib/gradbus", "snapshots of a shard")],
}  # fmt: skip


def escaped(text: str) -> str:
    """Text for roff: no line is a request, and a dash is a dash."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", shown)


def version() -> str:
    """The version in CMakeLists.txt."""
    return re.search(r"project\(gradbus VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]


def day() -> str:
    """The date of the sources."""
    command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.check_output(command, text=True)
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%d")


def option_lines(option: Option) -> str:
    """One .TP entry."""
    value = " \\fIVALUE\\fR" if option.takes_value and option.names[0].startswith("-") else ""
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in option.names)
    text = option.text if option.text.endswith((".", "?")) else option.text + "."
    notes = [text[:1].upper() + text[1:]]
    if option.default:
        notes.append(f"Default: {option.default}.")
    if option.limits:
        notes.append(f"Range: {option.limits}.")
    if option.variable:
        notes.append(f"Variable: {option.variable}.")
    return f".TP\n{names}{value}\n{escaped(' '.join(notes))}\n"


def page(program: Program, section: int, synopsis: str, rest: str) -> str:
    """The page of one program or command."""
    title = program.name.replace(" ", "-")
    text = f'.TH {escaped(title.upper())} {section} "{day()}" "Gradbus {version()}" "Gradbus"\n'
    text += f".SH NAME\n{escaped(title)} \\- {escaped(program.summary.rstrip('.'))}\n"
    text += f".SH SYNOPSIS\n\\fB{escaped(program.name)}\\fR {synopsis}\n"
    if program.options:
        text += ".SH OPTIONS\n" + "".join(map(option_lines, program.options))
    return text + rest


def see_also(names: list[str]) -> str:
    """The last section."""
    shown = ",\n".join(f".BR {escaped(name.split('(')[0])} ({name.split('(')[1]}" for name in names)
    return f".SH SEE ALSO\n{shown.replace(',', ' ,')}\n.PP\n{escaped(HOME)}\n"


def daemon_page(program: Program) -> str:
    """gradbus-agent(8), gradbus-server(8)."""
    how = ("Each option is a flag, an environment variable and a key of the TOML file. "
           "The key is the flag with _ for -. A flag overrides the variable, and the variable "
           "overrides the file.")  # fmt: skip
    rest = f".SH SETTINGS\n{escaped(how)}\n"
    rest += ".SH SIGNALS\nSIGTERM and SIGINT end the program.\n.SH FILES\n"
    rest += "".join(f".TP\n\\fI{escaped(path)}\\fR\n{escaped(text)}\n" for path, text in FILES[program.name])
    options = [*program.options, *command_tables.DAEMON_COMMON, *command_tables.COMMON]
    return page(program._replace(options=options), 8, "[\\fIOPTION\\fR]...", rest + see_also(["gradbus(1)"]))


def command_page(command: Program) -> str:
    """gradbus-run(1) and so on."""
    words = "".join(f" \\fI{escaped(option.names[0].upper())}\\fR" for option in command.options
                    if not option.names[0].startswith("-"))  # fmt: skip
    program = " [\\-\\-] \\fIPROGRAM\\fR [\\fIARGUMENT\\fR]..." if command.name == "run" else ""
    named = Program(f"gradbus {command.name}", command.summary, [*command.options, *command_tables.COMMON[:1]])
    return page(named, 1, "[\\fIOPTION\\fR]..." + words + program, see_also(["gradbus(1)", "gradbus-agent(8)"]))


def main_page(commands: list[Program]) -> str:
    """gradbus(1)."""
    rest = ".SH COMMANDS\n"
    for command in commands:
        rest += f".TP\n.BR gradbus\\-{command.name} (1)\n{escaped(command.summary)}\n"
    rest += ".SH EXIT STATUS\n0: done. 1: failed. 2: the command line is wrong. gradbus run: that of the first rank "
    rest += "that failed; 126 or 127: the program cannot be started.\n"
    main = Program("gradbus", "a gradient bus for distributed deep learning", command_tables.COMMON)
    names = ["gradbus-agent(8)", "gradbus-server(8)"]
    return page(main, 1, "\\fICOMMAND\\fR [\\fIOPTION\\fR]...", rest + see_also(names))


def pages() -> dict[str, str]:
    """{file name: text}."""
    commands = command_tables.commands()
    found = {"gradbus.1": main_page(commands)}
    found |= {f"gradbus-{command.name}.1": command_page(command) for command in commands}
    found |= {f"{daemon.name}.8": daemon_page(daemon) for daemon in command_tables.daemons()}
    for name, summary in INNER.items():
        found[f"{name}.1"] = page(Program(name, summary, []), 1, "", see_also(["gradbus(1)"]))
    return found


def main() -> int:
    """Writes the files."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for name, text in pages().items():
        folder = pathlib.Path(sys.argv[1]) / f"man{name[-1]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
