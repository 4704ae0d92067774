"""declared.py CTEST FOLDER: every test that ctest lists there has what cmake/testing.cmake declares for it."""
import json
import subprocess
import sys

ctest, folder = sys.argv[1:]
LANES = {"quick", "all", "every"}
listed = subprocess.run([ctest, "--show-only=json-v1"], cwd=folder, check=True, capture_output=True, text=True)
tests = json.loads(listed.stdout)["tests"]
if len(tests) < 20:
    sys.exit(f"ctest lists {len(tests)} tests; are the programs built?")

faults = []
for test in tests:
    name = test["name"]
    if name.endswith("_NOT_BUILT"):  # as where there is no GPU
        continue
    properties = {p["name"]: p["value"] for p in test["properties"]}
    labels = set(properties.get("LABELS", []))
    if len(labels & LANES) != 1:
        faults.append(f"{name}: its labels must name one lane, but are {sorted(labels)}")
    if "TIMEOUT" not in properties:
        faults.append(f"{name}: it has no timeout")
    is_discovered = "--gtest_also_run_disabled_tests" in test.get("command", [])
    if is_discovered and len(labels) < 2:
        faults.append(f"{name}: a case must have the labels of its lane and its room, but has {sorted(labels)}")
    order = name.rpartition("/")[2]
    if order in ("forward", "reverse", "random"):  # as the emulator runs it
        environment = dict(value.split("=", 1) for value in properties.get("ENVIRONMENT", []))
        if environment.get("SIMT_ORDER", "").partition(":")[0] != order:
            faults.append(f"{name}: SIMT_ORDER must be {order}, but the environment is {environment}")
for fault in faults[:20]:
    print(fault)
print(f"{len(tests)} tests, {len(faults)} faults")
sys.exit(bool(faults))
