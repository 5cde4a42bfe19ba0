"""The crates of a build as a CycloneDX list: sbom.py OUT FEATURES

It has the crates that `cargo metadata` lists for the named features, without what only tests and builds need. With the package
`cyclonedx-python-lib[json-validation]` the file is checked against its schema, and an error ends it.
"""

import json
import subprocess
import sys
from pathlib import Path

out, features = Path(sys.argv[1]), sys.argv[2]
command = ["cargo", "metadata", "--format-version", "1", "--locked", "--features", features]
command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
found = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
packages = {package["id"]: package for package in found["packages"]}
nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
root = next(package["id"] for package in found["packages"] if package["name"] == "fast-slate")


def needed(of: str) -> list[str]:
    """What a package links."""
    return [link["pkg"] for link in nodes[of]["deps"] if any(kind["kind"] is None for kind in link["dep_kinds"])]


reached, waiting = {root}, [root]
while waiting:
    for other in needed(waiting.pop()):
        if other not in reached:
            reached.add(other)
            waiting.append(other)


def address(of: str) -> str:
    return f"pkg:cargo/{packages[of]['name']}@{packages[of]['version']}"


def component(of: str, kind: str = "library") -> dict:
    package = packages[of]
    listed = {"type": kind, "bom-ref": address(of), "name": package["name"], "version": package["version"], "purl": address(of)}
    if package["license"]:
        listed["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    return listed


bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(root, "application")},
    "components": [component(of) for of in sorted(reached - {root})],
    "dependencies": [
        {"ref": address(of), "dependsOn": sorted({address(other) for other in needed(of)})} for of in sorted(reached)
    ],
}
text = json.dumps(bom, indent=1) + "\n"
out.write_text(text)
try:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
except ImportError:
    print("LEFT OUT: not checked against the schema, cyclonedx-python-lib is not here", file=sys.stderr)
else:
    if problem := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
        raise SystemExit(f"{out}: {problem}")
    print(f"{out.name}: {len(reached)} crates, as its schema asks")
