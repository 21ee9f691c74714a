"""Writes fields.txt: the fields of TensorFlow's messages, for those messages that crates/proto/protos has too.

    python testdata/wire/make_fields.py

Needs a Python with TensorFlow. A line per field: message, field, number, type, and whether it is repeated.
"""

import importlib
import os
import pkgutil
import re

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow.core as core
from google.protobuf import descriptor_pool

HERE = os.path.dirname(os.path.abspath(__file__))
PROTOS = os.path.join(HERE, "..", "..", "crates", "proto", "protos")
TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip


def wanted():
    for name in sorted(os.listdir(PROTOS)):
        with open(os.path.join(PROTOS, name)) as f:
            text = f.read()
        package = re.search(r"^package ([\w.]+);", text, re.M).group(1)
        for message in re.findall(r"^message (\w+)", text, re.M):
            yield f"{package}.{message}"


def fields(message):
    for field in sorted(message.fields, key=lambda f: f.number):
        named = field.message_type or field.enum_type
        kind = named.full_name if named else TYPES[field.type]
        count = "repeated" if field.is_repeated else "single"
        yield f"{message.full_name} {field.name} {field.number} {kind} {count}"
    for nested in sorted(message.nested_types, key=lambda m: m.name):
        yield from fields(nested)


def main():
    for module in pkgutil.walk_packages(core.__path__, "tensorflow.core."):
        if module.name.endswith("_pb2"):
            importlib.import_module(module.name)
    pool, lines, missing = descriptor_pool.Default(), [], []
    for name in sorted(wanted()):
        try:
            lines.extend(fields(pool.FindMessageTypeByName(name)))
        except KeyError:
            missing.append(name)
    with open(os.path.join(HERE, "fields.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")
    print(f"{len(lines)} fields; TensorFlow's Python has no {missing}")


if __name__ == "__main__":
    main()
