#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the TensorBoard event files of a run. Shares no code with their writer.

    read_events.py RUN [--protoc PROTOC]
        prints what a reader shows of the run's event files, as JSON: tag -> {step: value}

    read_events.py --train PLUMB [--protoc PROTOC]
        trains a small model with `PLUMB train --tensorboard`, kills it with SIGKILL, resumes it,
        and compares what a reader shows with the run's metrics.jsonl; exits with 1 on a difference

Records are cut and their checksums computed here; messages are decoded by protoc from a schema
that is written down here from the published field numbers (tensorflow/core/util/event.proto,
tensorflow/core/framework/{summary,tensor,tensor_shape}.proto). Where the module `tensorboard` is
installed, its own EventAccumulator has to show the same.
"""

import argparse
import ast
import json
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

SCHEMA = """
syntax = "proto3";
package plumb_event_test;
message TensorShape { }
message Tensor { int32 dtype = 1; TensorShape tensor_shape = 2; repeated bytes string_val = 8; }
message PluginData { string plugin_name = 1; bytes content = 2; }
message SummaryMetadata {
  PluginData plugin_data = 1; string display_name = 2; string summary_description = 3;
  int32 data_class = 4;
}
message Value {
  string tag = 1; SummaryMetadata metadata = 9;
  oneof value { float simple_value = 2; Tensor tensor = 8; }
}
message Summary { repeated Value value = 1; }
message SessionLog { int32 status = 1; string checkpoint_path = 2; string msg = 3; }
message Event {
  double wall_time = 1; int64 step = 2;
  oneof what { string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
}
message Events { repeated Event event = 1; }
"""

SESSION_START = 1
DT_STRING = 7
TENSOR_CLASS = 2


def crc32c(data):
    """Returns the CRC-32C, computed by long division with two nibbles per byte."""
    table = []
    for nibble in range(16):
        for _ in range(4):
            nibble = nibble >> 1 ^ (0x82F63B78 if nibble & 1 else 0)
        table.append(nibble)
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        crc = crc >> 4 ^ table[crc & 15]
        crc = crc >> 4 ^ table[crc & 15]
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """Yields the complete records of a file. The rest of it is torn."""
    content = path.read_bytes()
    at = 0
    while len(content) - at >= 12:
        header = content[at : at + 8]
        (length,) = struct.unpack("<Q", header)
        (length_crc,) = struct.unpack_from("<I", content, at + 8)
        assert length_crc == masked_crc32c(header), f"{path}:{at}: checksum of the length"
        if len(content) - at < 16 + length:
            return
        data = content[at + 12 : at + 12 + length]
        (data_crc,) = struct.unpack_from("<I", content, at + 12 + length)
        assert data_crc == masked_crc32c(data), f"{path}:{at}: checksum of the data"
        yield data
        at += 16 + length


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def parse_text_proto(lines):
    """Returns messages as {field: [values]}. A field that the schema lacks has a number as its
    name."""
    message = {}
    for line in lines:
        line = line.strip()
        if line == "}":
            break
        if line.endswith("{"):
            name, value = line[:-1].strip(), parse_text_proto(lines)
        else:
            name, text = line.split(": ", 1)
            value = ast.literal_eval("b" + text) if text[0] == '"' else float(text)
        assert not name.isdigit(), f"field {name} is none of the published ones"
        message.setdefault(name, []).append(value)
    return message


def decode(path, protoc):
    """Returns the events of a file."""
    # The records become elements of one message, so that protoc runs once per file.
    wrapped = b"".join(b"\x0a" + varint(len(data)) + data for data in records(path))
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "events.proto").write_text(SCHEMA)
        command = [protoc, "-I", directory, "--decode=plumb_event_test.Events", "events.proto"]
        text = subprocess.run(command, input=wrapped, stdout=subprocess.PIPE, check=True).stdout
    return parse_text_proto(iter(text.decode().splitlines())).get("event", [])


def event_files(run):
    return sorted(run.glob("*tfevents*"))


def shown(files, protoc):
    """Returns the scalars and texts that a reader shows after all files, as tag -> {step: value}."""
    scalars, texts, plugins = {}, {}, {}
    for path in files:
        events = decode(path, protoc)
        assert events[0].get("file_version") == [b"brain.Event:2"], f"{path}: no file_version"
        for event in events:
            step = int(event.get("step", [0])[0])
            assert event["wall_time"][0] > 0, f"{path}: no wall_time"
            if event.get("session_log", [{}])[0].get("status") == [SESSION_START]:
                for series in [*scalars.values(), *texts.values()]:
                    for later in [s for s in series if s >= step]:
                        del series[later]
            for value in event.get("summary", [{}])[0].get("value", []):
                tag = value["tag"][0].decode()
                if "metadata" in value:
                    metadata = value["metadata"][0]
                    plugins[tag] = metadata["plugin_data"][0]["plugin_name"][0].decode()
                if "simple_value" in value:
                    assert plugins[tag] == "scalars", f"{tag}: {plugins[tag]}"
                    series, shown_value = scalars, value["simple_value"][0]
                else:
                    tensor = value["tensor"][0]
                    assert plugins[tag] == "text", f"{tag}: {plugins[tag]}"
                    assert metadata["data_class"] == [TENSOR_CLASS], tag
                    assert tensor["dtype"] == [DT_STRING], tag
                    series, shown_value = texts, tensor["string_val"][0].decode()
                assert step not in series.setdefault(tag, {}), f"{tag}: twice at step {step}"
                series[tag][step] = shown_value
    return scalars, texts


def f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def differences(run, scalars):
    """Returns the differences between a reader's values and metrics.jsonl, as text."""
    expected = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        figures = {
            "train/loss": metrics["loss"],
            "train/lr": metrics["lr"],
            "train/grad_norm": metrics["grad_norm"],
            "train/tokens_per_second": metrics["tokens"] / metrics["seconds"],
        }
        if "val_loss" in metrics:
            figures["val/loss"] = metrics["val_loss"]
        for tag, value in figures.items():
            expected.setdefault(tag, {})[metrics["step"]] = f32(value)
    found = []
    if set(scalars) != set(expected):
        found.append(f"tags {sorted(scalars)}, not {sorted(expected)}")
    for tag in expected:
        series = {step: f32(value) for step, value in scalars.get(tag, {}).items()}
        for step in sorted(set(series) | set(expected[tag])):
            if series.get(step) != expected[tag].get(step):
                there, here = expected[tag].get(step), series.get(step)
                found.append(f"{tag}, step {step}: metrics.jsonl {there}, event files {here}")
    return found


def compare_with_tensorboard(run, scalars):
    try:
        from tensorboard.backend.event_processing import event_accumulator
    except ImportError:
        print("the module tensorboard is not installed: its own reader was not asked")
        return
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    accumulator = event_accumulator.EventAccumulator(str(run), size_guidance=everything)
    accumulator.Reload()
    for tag in scalars:
        assert {e.step: e.value for e in accumulator.Scalars(tag)} == scalars[tag], tag


MODEL = """
n_layer: 1 n_head: 1 d_model: 8 context_length: 16
block { placement: "pre" norm: "rms_norm" }
"""
TRAINING = """
max_steps: 1000000 batch_size: 2 eval_interval: 7 eval_batches: 1 checkpoint_interval: 1000000
data { format: DOCUMENTS val_fraction: 0.2 }
"""


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_after(command, directory, metrics, lines):
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE)
    while count_lines(metrics) < lines:
        if process.poll() is not None:
            sys.exit(f"{' '.join(command)}: {process.stderr.read().decode()}")
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def train_and_compare(plumb, protoc):
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / "run"
        metrics = run / "metrics.jsonl"
        (pathlib.Path(directory) / "model.pbtxt").write_text(MODEL)
        (pathlib.Path(directory) / "train.pbtxt").write_text(TRAINING)
        names = "".join(a + b + c + "\n" for a in "abc" for b in "eio" for c in "mnr")
        (pathlib.Path(directory) / "names.txt").write_text(names)
        common = [plumb, "train", "--quiet", "--out", "run", "--data", "names.txt"]
        begin = common + ["model.pbtxt", "--train", "train.pbtxt", "--tensorboard"]
        resume = common + ["--resume"]
        subprocess.run(
            begin + ["--stop-at", "100"], cwd=directory, check=True, stdout=subprocess.DEVNULL
        )
        # Both resume from step 100, the only checkpoint, and take its following steps again.
        kill_after(resume, directory, metrics, 130)
        kill_after(resume, directory, metrics, count_lines(metrics) + 60)
        # The number of steps depends on the machine.
        steps = count_lines(metrics) + 60
        subprocess.run(
            resume + ["--set", f"train.max_steps={steps}"],
            cwd=directory,
            check=True,
            stdout=subprocess.DEVNULL,
        )

        files = event_files(run)
        assert len(files) == 4, files
        alone = [shown([path], protoc)[0]["train/loss"] for path in files]
        assert [min(series) for series in alone] == [1, 101, 101, 101], "the sessions' first steps"
        assert max(alone[1]) >= 126, "what was buffered at the last val/loss is there"
        scalars, texts = shown(files, protoc)
        assert set(texts) == {"equations", "model.pbtxt", "train.pbtxt"}, sorted(texts)
        assert "x = x + f(norm(x))" in next(iter(texts["equations"].values()))
        assert len(scalars["train/loss"]) == steps
        found = differences(run, scalars)
        if found:
            sys.exit("\n".join(found[:20] + [f"{len(found)} differences"]))
        compare_with_tensorboard(run, scalars)
        print(f"{len(files)} files show the {steps} steps of metrics.jsonl")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", type=pathlib.Path)
    parser.add_argument("--train", metavar="PLUMB")
    parser.add_argument("--protoc", default="protoc")
    arguments = parser.parse_args()
    if arguments.train:
        train_and_compare(arguments.train, arguments.protoc)
    elif arguments.run:
        scalars, texts = shown(event_files(arguments.run), arguments.protoc)
        print(json.dumps({**scalars, **texts}, indent=1))
    else:
        parser.error("give RUN or --train PLUMB")


if __name__ == "__main__":
    main()
