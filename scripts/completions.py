"""Writes completions for bash, zsh and fish, from the option tables in the code.

    scripts/completions.py FOLDER     writes FOLDER/{gradbus.bash,_gradbus,gradbus.fish}

They complete commands and options, and everything else as files.
"""

from __future__ import annotations

import pathlib
import sys

import command_tables
from command_tables import Option, Program

MADE = "# scripts/completions.py made this file.\n"


def flags(options: list[Option]) -> list[Option]:
    """Those that begin with a dash, and --help."""
    return [option for option in [*options, *command_tables.COMMON[:1]] if option.names[0].startswith("-")]


def all_programs() -> list[tuple[str, list[Option]]]:
    """(key of a case, options): daemons by their name, commands by theirs."""
    more = [*command_tables.DAEMON_COMMON, *command_tables.COMMON[1:]]
    daemons = [(daemon.name, flags([*daemon.options, *more])) for daemon in command_tables.daemons()]  # fmt: skip
    return daemons + [(f"gradbus {command.name}", flags(command.options)) for command in command_tables.commands()]


def names(options: list[Option]) -> str:
    """All names, separated by blanks."""
    return " ".join(name for option in options for name in option.names)


def valued(options: list[Option]) -> str:
    """A pattern of the options that take a value."""
    return "|".join(name for option in options if option.takes_value for name in option.names) or "--"


BASH = """{made}# bash: /usr/share/bash-completion/completions/gradbus
_gradbus() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} key=${{COMP_WORDS[0]##*/}}
  local at options valued
  COMPREPLY=()
  if [[ $key == gradbus ]]; then
    if ((COMP_CWORD == 1)); then
      mapfile -t COMPREPLY < <(compgen -W "{commands} --help --version" -- "$word")
      return
    fi
    key="gradbus ${{COMP_WORDS[1]}}"
    for ((at = 2; at < COMP_CWORD; ++at)); do
      # The words behind -- are the user's program.
      [[ ${{COMP_WORDS[at]}} == -- ]] && {{ mapfile -t COMPREPLY < <(compgen -f -- "$word"); return; }}
    done
  fi
  case $key in
{cases}    *) return ;;
  esac
  if [[ $before == @($valued) ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _gradbus {programs}
"""


def bash(commands: list[Program]) -> str:
    """For bash-completion."""
    cases = "".join(f'    "{key}") options="{names(options)}" valued="{valued(options)}" ;;\n'
                    for key, options in all_programs())  # fmt: skip
    programs = " ".join(["gradbus", *(daemon.name for daemon in command_tables.daemons())])
    return BASH.format(made=MADE, commands=" ".join(command.name for command in commands), cases=cases,
                       programs=programs)  # fmt: skip


def quoted(text: str) -> str:
    """A word in single quotes, for zsh: a backslash is one there."""
    return "'" + text.replace("'", "'\\''") + "'"


def fish_quoted(text: str) -> str:
    """For fish, where backslashes in single quotes escape."""
    return quoted(text.replace("\\", "\\\\"))


def zsh_options(options: list[Option]) -> str:
    """Arguments of _arguments."""
    specs = []
    for option in options:
        text = option.text.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
        value = ":value:_files" if option.takes_value else ""
        specs += [quoted(f"{name}[{text}]{value}") for name in option.names]
    return " \\\n        ".join([*specs, "'*:file:_files'"])


def zsh(commands: list[Program]) -> str:
    """A file of a folder in fpath."""
    programs = " ".join(["gradbus", *(daemon.name for daemon in command_tables.daemons())])
    text = f"#compdef {programs}\n{MADE}_gradbus() {{\n  local key=$service\n  if [[ $service == gradbus ]]; then\n"
    text += "    if (( CURRENT == 2 )); then\n      local -a commands=(\n"
    text += "".join(f"        {quoted(command.name + ':' + command.summary)}\n" for command in commands)
    text += "      )\n      _describe command commands\n      return\n    fi\n"
    text += '    key="gradbus $words[2]"\n    shift words\n    (( CURRENT-- ))\n  fi\n  case $key in\n'
    for key, options in all_programs():
        text += f'    "{key}")\n      _arguments -s -S \\\n        {zsh_options(options)} ;;\n'
    return text + "  esac\n}\n_gradbus \"$@\"\n"


def fish(commands: list[Program]) -> str:
    """A file of a completions folder."""
    text = MADE
    for command in commands:
        text += f"complete -c gradbus -n __fish_use_subcommand -f -a {command.name} -d {fish_quoted(command.summary)}\n"
    for key, options in all_programs():
        program, _, command = key.partition(" ")
        where = f" -n {fish_quoted(f'__fish_seen_subcommand_from {command}')}" if command else ""
        for option in options:
            words = "".join(f" -l {name[2:]}" if name.startswith("--") else
                            f" -s {name[1:]}" if len(name) == 2 else f" -o {name[1:]}"
                            for name in option.names)  # fmt: skip
            value = " -r" if option.takes_value else ""
            text += f"complete -c {program}{where}{words}{value} -d {fish_quoted(option.text)}\n"
    return text


def main() -> int:
    """Writes the files."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    commands = command_tables.commands()
    for name, text in (("gradbus.bash", bash(commands)), ("_gradbus", zsh(commands)), ("gradbus.fish", fish(commands))):
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
