"""Writes a list of the libraries that the programs use (SBOM, SPDX 2.3 as JSON), from the data of Debian's packages.

    scripts/sbom.py OUTPUT FILE...    FILE: programs and libraries, whose shared libraries are followed

Each library becomes a package with its version, its source package, and the licences that its copyright file names.
SOURCE_DATE_EPOCH is the time in the document, so two runs write the same bytes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def run(*words: str) -> str:
    """Standard output of a command."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def libraries(files: list[str]) -> set[pathlib.Path]:
    """What ldd finds; a library that is missing is an error."""
    found: set[pathlib.Path] = set()
    for file in files:
        said = run("ldd", file)
        if "not found" in said:
            raise SystemExit(f"scripts/sbom.py: {file} needs a library that is not here:\n{said}")
        found |= {pathlib.Path(path).resolve() for path in re.findall(r"=> (/\S+)", said)}
    return found


def owner(path: pathlib.Path) -> str:
    """The Debian package of a file; empty: none. Debian lists some files without /usr."""
    for name in (str(path), str(path).removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0]
    return ""


def licences(package: str) -> str:
    """An SPDX expression is not what Debian keeps, so the names are given as a comment."""
    file = pathlib.Path(f"/usr/share/doc/{package.split(':')[0]}/copyright")
    text = file.read_text(errors="replace") if file.exists() else ""
    return ", ".join(sorted(set(re.findall(r"(?m)^License: *(\S.*)$", text)))) or "see its copyright file"


def described(package: str) -> dict[str, object]:
    """One package of the document."""
    form = "${Package}\t${Version}\t${source:Package}\t${source:Version}\t${Architecture}\t${Maintainer}"
    name, version, source, source_version, architecture, maintainer = run("dpkg-query", "-W", "-f", form,
                                                                          package).split("\t")  # fmt: skip
    return {
        "SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', name)}",
        "name": name,
        "versionInfo": version,
        "supplier": f"Organization: {maintainer}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"built from Debian's source package {source} {source_version}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"Debian's copyright file names: {licences(package)}",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{version}?arch={architecture}"}],
    }  # fmt: skip


def document(files: list[str]) -> dict[str, object]:
    """The whole text."""
    version = re.search(r"project\(gradbus VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
    own = {path.resolve() for path in map(pathlib.Path, files)}
    owners = {path: owner(path) for path in libraries(files) - own if not path.name.startswith("libgradbus")}
    unknown = sorted(str(path) for path, package in owners.items() if not package)
    if unknown:
        raise SystemExit(f"scripts/sbom.py: no package of Debian has {', '.join(unknown)}")
    packages = [described(package) for package in sorted(set(owners.values()))]
    main = {"SPDXID": "SPDXRef-gradbus", "name": "gradbus", "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION"}  # fmt: skip
    digest = hashlib.sha256(json.dumps([main, *packages]).encode()).hexdigest()
    made = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    related = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-gradbus")]
    related += [("SPDXRef-gradbus", "DYNAMIC_LINK", package["SPDXID"]) for package in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"gradbus-{version}",
        "documentNamespace": f"urn:gradbus:sbom:{version}:{digest}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: gradbus-sbom"]},
        "packages": [main, *packages],
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                          for one, kind, other in related],
    }  # fmt: skip


def main() -> int:
    """Writes the file."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    text = json.dumps(document(sys.argv[2:]), indent=1) + "\n"
    pathlib.Path(sys.argv[1]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
