# SPDX-License-Identifier: Apache-2.0
"""Validates the JSON results of plumb.h for many models, all norms and this machine against the installed schemas.

schemas_test.py SOURCE_DIRECTORY LIBRARY NORM_DIRECTORY

In the test every object may have the fields of its schema only, and must have all of them, so that a field which is
missing in a schema or a result is found. Exit code 77 without python3-jsonschema.
"""
import glob
import json
import os
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

source, library, norms = sys.argv[1:]
sys.path.insert(0, os.path.join(source, "runtime", "python"))
os.environ["PLUMB_LIBRARY"] = library
import plumb_runtime as plumb  # noqa: E402

failures = []


def strict(schema):
    """Returns a schema whose objects may and must have all documented fields; fails if it requires fewer."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema:
        if list(schema["properties"]) != schema["required"]:
            failures.append(f"a schema requires {schema['required']}, and documents {list(schema['properties'])}")
        copy["additionalProperties"] = False
    return copy


def validator(name):
    with open(os.path.join(source, "runtime", "include", "schemas", name + ".schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(strict(schema))


def check(schema, result, what):
    for error in schema.iter_errors(result):
        failures.append(f"{what}: {'.'.join(map(str, error.absolute_path))}: {error.message[:300]}")


def check_norms(runtime):
    schema, names = validator("plugin"), set()
    for directory in runtime.describe()["plugins"]["directories"]:
        names |= {norm["id"] for norm in directory["norms"] if norm["problem"] is None}
    described = {name: runtime.describe_plugin(name) for name in sorted(names)}
    for name, result in described.items():
        check(schema, result, f"plumb_plugin_describe of {name}")
    # Each list of a norm has elements somewhere, so that they are checked, too.
    for field in ("attributes", "parameters", "buffers", "traits", "dtypes"):
        if not any(result[field] for result in described.values()):
            failures.append(f"no norm has {field}")
    return len(described)


def check_models(runtime):
    model_schema, norms_schema, count, has_buffers = validator("model"), validator("model_norms"), 0, False
    texts = {}
    for path in glob.glob(os.path.join(source, "examples", "**", "*.pbtxt"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if "\nn_layer:" in "\n" + text:
            texts[path] = text
    for name in ("pre", "post", "peri", "hyper_connections", "muddformer", "layer_scale", "olmo2"):
        texts[name] = f'n_layer: 3 n_head: 2 d_model: 16 block {{ placement: "{name}" norm: "rms_norm" }}'
    texts["bidirectional"] = ('n_layer: 2 n_head: 2 d_model: 16 bidirectional: true token_types: 2 '
                              'block { placement: "post" norm: "layer_norm" }')
    texts["statistics"] = ('n_layer: 2 n_head: 2 d_model: 16 norm { name: "bn" plugin: "batch_norm" allow_cross_token: true } '
                           'block { placement: "pre" norm: "bn" }')
    for name, text in sorted(texts.items()):
        spec = plumb.Spec(text, name)
        for field, value in (("vocab_size", 32), ("context_length", 16)):
            if f"{field}:" not in text:
                spec[field] = value
        try:
            model = plumb.Model(runtime, spec)
        except plumb.Error as error:
            if os.path.sep in name:  # an example that needs files next to it
                continue
            failures.append(f"{name}: {error}")
            continue
        result = model.describe()
        check(model_schema, result, f"plumb_model_describe of {name}")
        check(norms_schema, model.norms(), f"plumb_model_norms of {name}")
        count += 1
        has_buffers |= bool(result["buffers"])
    if count < 15 or not has_buffers:
        failures.append(f"{count} models were described, and one has buffers: {has_buffers}")
    return count


def main():
    with tempfile.TemporaryDirectory() as work:
        # A broken plugin, and an entry of the path that is dropped.
        with open(os.path.join(work, "broken.so"), "w", encoding="utf-8") as file:
            file.write("not a library")
        os.environ["PLUMB_PLUGIN_PATH"] = f"{work}:relative"
        runtime = plumb.Runtime(plugin_path=norms, log=lambda level, message: None)
        machine = validator("runtime")
        before = runtime.describe()
        check(machine, before, "plumb_runtime_describe")
        n_norms, n_models = check_norms(runtime), check_models(runtime)
        runtime.gemm()  # loads oneDNN
        after = runtime.describe()
        check(machine, after, "plumb_runtime_describe after use")
        for field, value in (("dropped", after["plugins"]["dropped"]), ("problems", after["problems"])):
            if not value:
                failures.append(f"plumb_runtime_describe: {field} is empty")
    # The test can fail: a field more and a field less are errors.
    for wrong in (dict(before, undocumented=1), {key: before[key] for key in list(before)[1:]}):
        if machine.is_valid(wrong):
            failures.append("a wrong result is valid")
    if failures:
        sys.exit("\n".join(failures[:40]))
    print(f"{n_norms} norms, {n_models} models and the machine have the fields of the schemas")


main()
