"""Writes opdefs.json: TensorFlow's op definitions. Usage: make_opdefs.py list.json

The definitions and the types of the CPU kernels are TensorFlow's; list.json says which ops are wanted, and their tier:
[{"name": "Abs", "tier": 0, "gradient": "yes", "cpu_kernel_types": {"T": ["float"]}, ...}]."""
import json
import os
import sys

KEEP = ["name", "tier", "gradient", "inputs", "outputs", "attrs", "is_stateful", "is_commutative", "is_aggregate",
        "allows_uninitialized_input", "cpu_kernel_types"]

ops = json.load(open(sys.argv[1]))
lines = [json.dumps({k: op[k] for k in KEEP if k in op}, separators=(",", ":")) for op in ops]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "opdefs.json"), "w") as f:
  f.write('{"script":"make_opdefs.py","tensorflow":"2.21.0","ops":[\n%s\n]}\n' % ",\n".join(lines))
