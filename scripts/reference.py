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

# Variables that no option table has: who reads them, what they mean, their default.
VARIABLES = {
    "GRADBUS_SOCKET": ("ranks, `gradbus`", "the agent's socket",
                       "`/run/gradbus/agent.sock`, else `$XDG_RUNTIME_DIR/gradbus/agent.sock`"),
    "GRADBUS_JOB": ("ranks", "the name of the job", "from the launcher's variables"),
    "GRADBUS_RANK": ("ranks", "number of the rank", "from the launcher's variables"),
    "GRADBUS_SIZE": ("ranks", "how many ranks the job has", "from the launcher's variables"),
    "GRADBUS_LOCAL_RANK": ("ranks", "number of the rank on its node; `gradbus run` sets it", "-"),
    "GRADBUS_LOCAL_SIZE": ("ranks", "ranks of the node; `gradbus run` sets it", "-"),
    "GRADBUS_START_TIMEOUT": ("ranks", "seconds to wait for all ranks", "60"),
    "GRADBUS_OP_TIMEOUT": ("ranks", "seconds to wait for an operation. It ends deadlocks; deaths are detected "
                           "separately", "1800"),
    "GRADBUS_AGENT_TIMEOUT": ("ranks", "seconds until a waiting rank gives up on an agent that does not read its "
                              "socket", "60"),
    "GRADBUS_ELASTIC_TIMEOUT": ("ranks", "seconds in which `gradbus.elastic` must have all ranks again after a loss",
                                "60"),
    "GRADBUS_MODE": ("ranks", "the [sync mode](modes.md), or the rules of a policy file", "`sync`"),
    "GRADBUS_COMPRESSION": ("ranks",
                            "the [codec](codecs.md) between nodes, `auto`, a list of codecs, or the rules of a policy "
                            "file", "none: dense"),
    "GRADBUS_SCHEDULE": ("PyTorch ranks", "the [schedule](../concepts/schedules.md) of the gradients' exchange",
                         "`auto`"),
    "GRADBUS_PLAN": ("PyTorch ranks",
                     "1: schedule `auto` asks the coordinator for a [plan](../concepts/schedules.md) and tries it",
                     "0"),
    "GRADBUS_AUTOTUNE": ("PyTorch ranks",
                         "1: [tries schedules](../concepts/schedules.md#autotune); also HOROVOD_AUTOTUNE",
                         "0"),
    "GRADBUS_RECORD": ("PyTorch ranks", "file for [what steps compute](../how-to/plan-a-cluster.md#ask-what-if)", "-"),
    "GRADBUS_AUTOTUNE_LOG": ("PyTorch ranks", "file for the time of each trial; also HOROVOD_AUTOTUNE_LOG", "-"),
    "GRADBUS_FENCE_EVERY": ("PyTorch ranks", "steps after which `flush()` is called without a call of the program",
                            "0: never"),
    "GRADBUS_DEVICE_MEMORY": ("PyTorch ranks", "1: gradients are in [GPU memory of the agent]"
                              "(../how-to/train-on-gpus.md)", "0"),
    "GRADBUS_CUDA_PLUGIN": ("agents, `gradbus`", "file of the CUDA plug-in", "beside the programs"),
    "GRADBUS_NCCL": ("agents", "library to use for [NCCL](../how-to/use-nccl.md)", "`libnccl.so.2`"),
    "GRADBUS_NCCL_TIMEOUT_MS": ("agents", "milliseconds that a collective of NCCL may take", "20000"),
    "GRADBUS_COORDINATOR": ("`gradbus`", "address of the coordinator", "of `/etc/gradbus`, else 127.0.0.1:7400"),
    "GRADBUS_TOKEN_FILE": ("daemons, `gradbus`", "file of the [cluster token](../concepts/security.md)",
                           "for commands `/etc/gradbus/token`"),
}  # fmt: skip


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
             for path in (REPOSITORY / folder).rglob(f"*{suffix}")]  # fmt: skip
    found = {name for path in files for name in re.findall(r'"(GRADBUS_[A-Z0-9_]+)"', path.read_text())}
    return {name for name in found if name == "GRADBUS_AGENT_TIMEOUT" or not re.match("GRADBUS_(AGENT|SERVER)_", name)}


def environment_page() -> str:
    """Variables of ranks, and those of daemons by reference."""
    of_tables = {row[1].strip("`") for _, _, rows in daemons() for row in rows}
    used = used_variables() - of_tables
    wrong = used.symmetric_difference(set(VARIABLES) - of_tables)
    if wrong:
        raise SystemExit(f"scripts/reference.py: VARIABLES and the code differ: {', '.join(sorted(wrong))}")
    rows = [[f"`{name}`", *VARIABLES[name]] for name in VARIABLES if name in used]
    return ("# Environment variables\n\nOptions of daemons have variables, too: `GRADBUS_AGENT_...` and "
            "`GRADBUS_SERVER_...`. [Options](options.md) lists them. `gradbus run` passes variables to ranks and to "
            "the daemons that it starts.\n\n"
            + table(["variable", "read by", "meaning", "default"], rows)
            + "\nRank, size and job may also come from torchrun, Horovod, Open MPI, PMI or Slurm. `gradbus env` shows "
            "which variables are used. `gradbus run` also reads `HOROVOD_TIMELINE`, the file of a "
            "[trace](../how-to/trace-a-job.md).\n")  # fmt: skip


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
