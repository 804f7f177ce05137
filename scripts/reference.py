"""Writes the reference pages of the documentation from the tables, comments and docstrings in the code.

    scripts/reference.py            writes docs/reference/*.md, but for bench.md, events.md and json.md

scripts/site.sh calls it. The pages are not in git. A table that is not found, or a variable that nobody describes, is
an error.
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys

from cpp_tables import Sources, Tokens, braces, calls, fields, is_sign, rows_with, split, string
from front_ends import front_ends_page
from python_names import python_page
from reference_metrics import metrics_page

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
OUT = REPOSITORY / "docs/reference"
MADE = "<!-- scripts/reference.py made this page. -->\n\n"

VARIABLE_TABLE = REPOSITORY / "common/environment/variables.cc"
WRONG_ON_PURPOSE = {"GRADBUS_WORLD_SIZE"}  # in tests of mistakes


@functools.cache
def sources(*folders: str) -> Sources:
    """All C++ files of these folders, with subfolders."""
    return Sources([path for folder in folders for path in (REPOSITORY / folder).rglob("*.cc")])


def cell(text: str) -> str:
    """Text of a table's cell; pages that it names become links."""
    linked = re.sub(r"docs/([\w/-]+)\.md", r"[\1](../\1.md)", text)
    return linked.replace("|", "\\|").replace("<", "&lt;")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown; an empty table is a mistake of ours."""
    if not rows:
        raise SystemExit(f"scripts/reference.py: no rows for the table of {head}")
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def sentence(text: str) -> str:
    """With a full stop."""
    return text if text.endswith((".", "?")) else text + "."


# ---- options


def default_of(member: str, tokens: Tokens) -> str:
    """What a struct's member is initialised with."""
    for at in range(len(tokens) - 2):
        if tokens[at].text == member and is_sign(tokens, at + 1, "=") and is_sign(tokens, at + 3, ";"):
            return string([tokens[at + 2]])
    return ""


def daemon_rows(section: str, tokens: Tokens) -> list[list[str]]:
    """A row per option of a daemon."""
    rows = []
    for arguments in calls(tokens, "add"):
        if len(arguments) not in (3, 5) or not is_sign(arguments[1], 0, "&"):
            continue
        name, target, text = string(arguments[0]), arguments[1], string(arguments[-1])
        limits = f"{number(arguments[2], {})} to {number(arguments[3], {})}" if len(arguments) == 5 else ""
        variable = f"GRADBUS_{section}_{name}".upper().replace("-", "_")
        default = default_of(target[-1].text, tokens)
        rows.append([f"`--{name}`", f"`{variable}`", f"`{default}`" if default else "", limits, cell(sentence(text))])
    return rows


@functools.cache
def daemons() -> list[tuple[str, str, list[list[str]]]]:
    """(section, summary, rows) of each program with an option table."""
    found = []
    for tokens in sources("server", "worker_agent").files.values():
        for at, token in enumerate(tokens):
            if token.text == "OptionTable" and is_sign(tokens, at + 2, "(") and tokens[at + 3].kind == "text":
                section, summary = tokens[at + 3].text, tokens[at + 5].text
                found.append((section, summary, daemon_rows(section, tokens)))
    return sorted(found)


def command_rows(body: Tokens, known: Sources, near: pathlib.Path) -> list[list[str]]:
    """A row per option of a command, also of functions that take its `app`."""
    rows = []
    for at in range(len(body)):
        if body[at].kind != "word" or not is_sign(body, at + 1, "("):
            continue
        if body[at].text in ("add_option", "add_flag"):
            arguments = next(calls(body[at:], body[at].text))
            text = string(arguments[2]) if len(arguments) > 2 else ""
            rows.append([f"`{string(arguments[0])}`", cell(sentence(text) if text else "")])
        elif is_sign(body, at + 3, ",") and body[at + 2].text == "app":
            called = known.function(body[at].text, near)
            rows += command_rows(called.body, known, called.file) if called else []
    return rows


def options_page() -> str:
    """Options of the daemons and of the gradbus command."""
    text = ("# Options\n\nEvery option of a daemon is a flag, an environment variable and a key of its TOML file "
            "(`--config FILE`). The key is the flag with `_` for `-`, in the table `[agent]` or `[server]`. A flag "
            "overrides the variable, and the variable overrides the file. `--print-config` prints each value and its "
            "source.\n")  # fmt: skip
    for section, summary, rows in daemons():
        text += f"\n## gradbus-{section}\n\n{summary}\n\n"
        text += table(["flag", "variable", "default", "range", "meaning"], rows)
    known = sources("cli")
    for tokens in known.files.values():
        for parts in braces(tokens):
            if len(parts) == 3 and parts[2][0].text.startswith("declare_"):
                name, summary = string(parts[0]), string(parts[1])
                declared = known.function(parts[2][0].text, pathlib.Path())
                rows = command_rows(declared.body, known, declared.file) if declared else []
                text += f"\n## gradbus {name}\n\n{sentence(summary[0].upper() + summary[1:])}\n"
                text += "\n" + table(["option", "meaning"], rows) if rows else ""
    return text


# ---- environment


def used_variables() -> set[str]:
    """Names that stand as strings in programs and in the Python package."""
    folders = ("cli", "client_lib", "common", "compression", "server", "transport", "worker_agent")
    files = [path for folder in folders for suffix in (".cc", ".h", ".py")
             for path in (REPOSITORY / folder).rglob(f"*{suffix}") if path != VARIABLE_TABLE]  # fmt: skip
    found = {name for path in files for name in re.findall(r'"(GRADBUS_[A-Z0-9_]+)"', path.read_text())}
    return {name for name in found if name == "GRADBUS_AGENT_TIMEOUT" or not re.match("GRADBUS_(AGENT|SERVER)_", name)}


def tool_variables() -> set[str]:
    """Names that scripts, tests and examples use as variables."""
    name = "(GRADBUS_[A-Z0-9_]+)"
    reads = re.compile(rf"""["']{name}["']|\$\{{?{name}|(?<![\w.]){name}=["$\d/]""")
    found = set()
    for folder in ("deploy", "examples", "scripts", "tests/fuzz", "tests/sim", "tests/system", "tests/vm"):
        for suffix in (".py", ".sh", ".cc"):
            for path in (REPOSITORY / folder).rglob(f"*{suffix}"):
                if path.name != "test_unknown_variables.py":
                    found |= {name for names in reads.findall(path.read_text()) for name in names if name}
    return found - WRONG_ON_PURPOSE


def variable_tables() -> tuple[list[list[str]], list[list[str]]]:
    """Rows of the table for users, and of the table for scripts and tests."""
    rows = [[string(part) for part in parts] for parts in braces(sources("common").files[VARIABLE_TABLE])
            if string(parts[0]).startswith("GRADBUS_")]  # fmt: skip
    return [row for row in rows if len(row) == 4], [row for row in rows if len(row) == 2]


def check_options() -> set[str]:
    """The variables of daemons' options. The lists in common/environment/variables.cc must have the same names."""
    listed = VARIABLE_TABLE.read_text()
    found = set()
    for section, _, rows in daemons():
        names = re.search(rf"k{section.title()}Options\[\] = \{{(.*?)\}};", listed, re.DOTALL)
        known = set(re.findall(r'"([\w-]+)"', names[1])) if names else set()
        wrong = known.symmetric_difference(row[0].strip("`-") for row in rows)
        if wrong:
            raise SystemExit(f"scripts/reference.py: {VARIABLE_TABLE} and the options of gradbus-{section} differ: "
                             f"{', '.join(sorted(wrong))}")  # fmt: skip
        found |= {row[1].strip("`") for row in rows}
    return found


def environment_page() -> str:
    """Variables of ranks, those of scripts and tests, and those of daemons by reference."""
    of_options = check_options()
    for_users, for_tools = variable_tables()
    known = {row[0] for row in for_users}
    wrong = (used_variables() - of_options).symmetric_difference(known)
    wrong |= tool_variables() - known - of_options - {row[0] for row in for_tools}
    if wrong:
        raise SystemExit(f"scripts/reference.py: {VARIABLE_TABLE} and the code differ: {', '.join(sorted(wrong))}")
    return ("# Environment variables\n\nOptions of daemons have variables, too: `GRADBUS_AGENT_...` and "
            "`GRADBUS_SERVER_...`. [Options](options.md) lists them. `gradbus run` passes variables to ranks and to "
            "the daemons that it starts.\n\n"
            + table(["variable", "read by", "meaning", "default"], [[f"`{row[0]}`", *row[1:]] for row in for_users])
            + "\nRank, size and job may also come from torchrun, Horovod, Open MPI, PMI or Slurm. `gradbus env` shows "
            "which variables are used. `gradbus run` also reads `HOROVOD_TIMELINE`, the file of a "
            "[trace](../how-to/trace-a-job.md).\n\n"
            "## Unknown variables\n\nA variable `GRADBUS_...` that is on neither page has no effect. Rank 0, a daemon "
            "or a command warns of it once, with the nearest name: [GB-F105](errors.md#gb-f105-unknown_variable). A "
            "known variable that a program does not read is not reported. Nor are the variables that Kubernetes makes "
            "for services, such as `GRADBUS_COORDINATOR_SERVICE_HOST`.\n\n"
            "## Scripts and tests\n\nScripts and tests of the source tree use these. No installed program does.\n\n"
            + table(["variable", "meaning"], [[f"`{row[0]}`", row[1]] for row in for_tools]))  # fmt: skip


# ---- errors


def error_rows() -> dict[str, list[str]]:
    """{id: [name, code, meaning, next]} of the error table."""
    found = {}
    for tokens in sources("common").files.values():
        for parts in braces(tokens):
            if len(parts) == 5 and re.fullmatch(r"[A-Z]\d{3}", string(parts[0])) and parts[2][0].text == "Code":
                found[string(parts[0])] = [string(part) for part in parts[1:]]
    return found


def error_pages() -> dict[str, list[str]]:
    """{id: [cause, fault, steps, example]} of `gradbus explain`."""
    found = {}
    for tokens in sources("cli").files.values():
        for parts in braces(tokens):
            if len(parts) == 5 and re.fullmatch(r"[A-Z]\d{3}", string(parts[0])):
                found[string(parts[0])] = [string(part) for part in parts[1:]]
    return found


def errors_page() -> str:
    """Every error with its page."""
    pages = error_pages()
    text = ("# Errors\n\nEvery message has a number. `gradbus explain NUMBER` prints the same text. A message is one "
            "line: what happened, to whom, and the next step.\n")  # fmt: skip
    for number, (name, code, meaning, next_step) in sorted(error_rows().items()):
        text += f"\n## GB-{number} {name}\n\n{cell(meaning)}\n\n"
        if number in pages:
            cause, fault, steps, example = map(cell, pages[number])
            text += f"- **Cause.** {cause}\n- **Who can fix it.** {fault}\n"
            text += f"- **Do.** {steps}\n- **Example.** {example}\n"
        text += f"- **Next step in the message:** {cell(next_step)}\n- **Code:** `{code.removeprefix('Code::k')}`\n"
    if "## GB-" not in text:
        raise SystemExit("scripts/reference.py: no errors found")
    return text


# ---- codecs and modes


def number(tokens: Tokens, constants: dict[str, str]) -> str:
    """A number, or what a constant of that name is."""
    text = string(tokens) or "0"
    text = constants.get(text.removeprefix("static_cast<double>(").removesuffix(")"), text)
    shifted = re.fullmatch(r"(?:\w+\{1\}|1[ul]*)<<(\d+)", text)
    return str(1 << int(shifted[1])) if shifted else text.replace("'", "")


@functools.cache
def constants_in(*folders: str) -> dict[str, str]:
    """{name: value} of `kName = value;`."""
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.h")]
    constant = re.compile(r"\b(k[A-Z]\w+) = ([^;{}]*(?:\{\d\})?[^;]*);")
    found = [pair for path in files for pair in constant.findall(path.read_text())]
    return {name: re.sub(r"\s+", "", value) for name, value in found}


def option_rows(options: list[dict[str, Tokens]]) -> list[list[str]]:
    """A row per option of a text such as topk:ratio=0.01."""
    constants = constants_in("common", "compression", "proto")
    rows = []
    for option in options:
        default = string(option["default_text"])
        if "choices" in option:
            values = ", ".join(f"`{string(choice)}`" for choice in split(option["choices"][1:-1]))
        else:
            low, high = (number(option.get(end, []), constants) for end in ("min", "max"))
            values = f"{low} to {high}"
            default = "" if float(default) < float(low) else default
        rows.append([f"`{string(option['name'])}`", f"`{default}`" if default else "not set", values,
                     cell(sentence(string(option["sentence"])))])  # fmt: skip
    return rows


OPTION_HEAD = ["option", "default", "values", "meaning"]


def codecs_page() -> str:
    """Codecs and their options."""
    known = sources("compression")
    text = ("# Codecs\n\nA compression is written `codec:option=value,option=value`, for example "
            "`topk:ratio=0.01,ef=residual`. `gradbus bench codec --list` prints the same list. "
            "[Compress gradients](../how-to/compress-gradients.md) says how to use them.\n")  # fmt: skip
    common = known.function("common_codec_options", pathlib.Path())
    rows = rows_with("default_text", common.body, known, common.file) if common else []
    text += "\n## Options of every codec\n\n" + table(OPTION_HEAD, option_rows(rows))
    for path, tokens in known.files.items():
        for row in map(fields, braces(tokens)):
            if {"id", "name", "sentence"} <= row.keys():
                options = rows_with("default_text", row.get("options", []), known, path)
                said = string(row["sentence"])
                text += f"\n## {string(row['name'])}\n\nSends {sentence(said)}\n"
                text += "\n" + table(OPTION_HEAD, option_rows(options)) if options else ""
    return text


def modes_page() -> str:
    """Modes and their options."""
    text = ("# Modes\n\nA mode is written `name:option=value,option=value`. It is accepted by `gradbus run --mode`, by "
            "the rules of a [policy file](../how-to/write-a-policy.md), by `DistributedOptimizer(mode=...)`, and by "
            "`mode` in `gradbus_tensor_spec`. [Sync modes](../concepts/modes.md) says what each mode does.\n\n"
            "Gradbus itself writes `placement=N`, when the shards of a job have changed.\n")  # fmt: skip
    known = sources("common")
    found = 0
    for path, tokens in known.files.items():
        for parts in braces(tokens):
            if len(parts) == 3 and parts[0][0].text == "Kind" and parts[1][0].kind == "text":
                options = rows_with("default_text", parts[2], known, path)
                shown = table(OPTION_HEAD, option_rows(options)) if options else "It has no options.\n"
                text += f"\n## {string(parts[1])}\n\n{shown}"
                found += 1
    if found == 0:
        raise SystemExit("scripts/reference.py: no modes found")
    return text


# ---- C


def c_comment(text: str) -> str:
    """The words of /* ... */ as paragraphs and drawings."""
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in text.strip().removeprefix("/*").removesuffix("*/").splitlines()]
    return "\n".join(f"    {line}" if line.startswith("  ") else line.rstrip() for line in lines).strip()


def c_page() -> str:
    """gradbus.h: sections, then each comment with the declarations below it."""
    header = (REPOSITORY / "client_lib/include/gradbus/gradbus.h").read_text()
    text = "# C\n\n`gradbus/gradbus.h` is the C interface; `gradbus.hpp` wraps it for C++. Link with `-lgradbus`.\n\n"
    body = header.replace("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n", "")
    pieces = re.split(r"(?m)^(/\*.*?\*/)\n", body, flags=re.DOTALL)
    for at, piece in enumerate(pieces):
        title = re.match(r"/\* ---- (.*?) ----", piece)
        code = re.sub(r"(?m)^(#(ifndef|include|endif|ifdef|define GRADBUS_(\w+_H_|API))|}.*extern).*\n?", "", piece)
        code = code.replace("GRADBUS_API ", "")
        if at % 2 == 0:
            text += f"```c\n{code.strip()}\n```\n\n" if code.strip() not in ("", "}") else ""
        elif title:
            text += f"## {title[1][0].upper() + title[1][1:]}\n\n" + c_comment("/*" + piece[title.end() :]) + "\n\n"
        else:
            text += c_comment(piece) + "\n\n"
    return text


# ---- exit codes


def exit_codes_page() -> str:
    """The table of the gradbus command's exit codes."""
    found = Sources([REPOSITORY / "cli/exit_codes.h"])
    rows = []
    for tokens in found.files.values():
        for code, commands, meaning in (parts for parts in braces(tokens) if len(parts) == 3):
            names = [name if name == "all" else f"`{name}`" for name in string(commands).split(", ")]
            rows.append([f"`{string(code)}`", ", ".join(names), cell(string(meaning))])
    return ("# Exit codes\n\nWhat the exit code of a `gradbus` command means. "
            "`gradbus explain --exit-codes` prints the same table.\n\n" + table(["code", "commands", "meaning"], rows))


def main() -> int:
    """Writes all pages."""
    OUT.mkdir(parents=True, exist_ok=True)
    pages = {"options": options_page, "environment": environment_page, "errors": errors_page, "codecs": codecs_page,
             "modes": modes_page, "python": lambda: python_page(REPOSITORY / "client_lib/python/gradbus"),
             "c": c_page, "metrics": metrics_page, "front-ends": front_ends_page,
             "exit-codes": exit_codes_page}  # fmt: skip
    for name, page in pages.items():
        (OUT / f"{name}.md").write_text(MADE + page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
