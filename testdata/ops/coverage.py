"""Prints the pairs of op and dtype that the data does not cover.

opdefs.json lists, for each op, its tier and the types of TensorFlow's CPU kernels; those count that the op's definition allows."""
import glob
import json
import os

from golden import op_def_registry, type_name

folder = os.path.dirname(os.path.abspath(__file__))
seen_ops, seen = set(), set()


def note(op, attrs):
  seen_ops.add(op)
  for k, a in attrs.items():
    if "type" in a:
      seen.add((op, k, a["type"]))


for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
  for c in json.load(open(path)).get("cases", []):
    if "graph" in c:
      for n in c["graph"]:
        note(n["op"], n["attrs"])
    elif "outputs" in c:
      note(c["op"], c["attrs"])
      for x in c["inputs"]:
        if "ref" in x:
          for op, k in [("VariableV2", "dtype"), ("Assign", "T")]:
            note(op, {k: {"type": x["ref"]["dtype"]}})
        if "resource_variable" in x:
          for op, k in [("VarHandleOp", "dtype"), ("AssignVariableOp", "dtype"), ("ReadVariableOp", "dtype")]:
            note(op, {k: {"type": x["resource_variable"]["dtype"]}})

pairs = covered = 0
for op in json.load(open(os.path.join(folder, "opdefs.json")))["ops"]:
  if op["tier"] > 1 or op["name"] in ("_Send", "_Recv", "_HostSend", "_HostRecv"):
    continue
  name = op["name"]
  if name not in seen_ops:
    print("no case:", name)
  definition = op_def_registry.get(name)
  missing = []
  for attr, types in op.get("cpu_kernel_types", {}).items():
    allowed = next((a.allowed_values.list.type for a in definition.attr if a.name == attr), None)
    allowed = [type_name(x) for x in allowed] if allowed else None
    for d in types:
      if allowed is not None and d not in allowed:
        continue
      pairs += 1
      if (name, attr, d) in seen:
        covered += 1
      else:
        missing.append(attr + "=" + d)
  if missing and name in seen_ops:
    print("%s: %s" % (name, " ".join(missing)))
print("%d of %d pairs" % (covered, pairs))
