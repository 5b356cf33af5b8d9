#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of examples/embed_server with curl as the client.

    embed_server_test.py SERVER RUN LONG_RUN SMILES_RUN

RUN has names as documents, LONG_RUN byte tokens and a context that takes seconds to fill, SMILES_RUN the tokens of
a published tokenizer, with <s> before a text, and characters of several tokens."""
import concurrent.futures
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import plumb_runtime as plumb

SERVER, RUN, LONG_RUN, SMILES_RUN = sys.argv[1:5]
JSON = ("-H", "Content-Type: application/json")


class Server:
    def __init__(self, run, *arguments):
        self.process = subprocess.Popen([SERVER, run, "--port", "0", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+) serves (\w+), ", line)
        if not found:
            raise AssertionError(f"the server prints {line!r} {self.process.communicate()}")
        self.url, self.name = found.groups()

    def curl(self, path, *arguments, body=None):
        """Returns (status, body)."""
        if body is not None:
            arguments = (*JSON, *arguments, "--data-binary", "@-")
        ran = subprocess.run(["curl", "-sS", "-N", "-w", "\n%{http_code}", *arguments, self.url + path],
                             input=body if isinstance(body, str) or body is None else json.dumps(body), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        if ran.returncode:
            raise AssertionError(f"curl: {ran.stderr}")
        text, _, status = ran.stdout.rpartition("\n")
        return int(status), text

    def complete(self, **body):
        status, text = self.curl("/v1/completions", body=body)
        if status != 200:
            raise AssertionError(f"{status}: {text}")
        return json.loads(text)

    def text(self, **body):
        return self.complete(**body)["choices"][0]["text"]

    def events(self, **body):
        status, text = self.curl("/v1/completions", body={**body, "stream": True})
        if status != 200 or not text.endswith("data: [DONE]\n\n"):
            raise AssertionError(f"{status}: {text}")
        return [json.loads(event[len("data: "):]) for event in text.split("\n\n")[:-2]]

    def end(self):
        """Sends SIGINT. Returns stdout, stderr, the exit code and the seconds until the end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        printed, complained = self.process.communicate(timeout=30)
        return printed, complained, self.process.returncode, time.monotonic() - began


class Completions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(RUN)

    @classmethod
    def tearDownClass(cls):
        printed, complained, code, _ = cls.server.end()
        assert (printed, complained, code) == ("stopped\n", "", 0), (printed, complained, code)

    def test_the_model_is_listed(self):
        status, text = self.server.curl("/v1/models")
        models = json.loads(text)
        self.assertEqual((status, models["object"], [model["id"] for model in models["data"]]),
                         (200, "list", [self.server.name]))
        self.assertEqual(self.server.curl("/v1/models/" + self.server.name)[0], 200)
        self.assertEqual(self.server.curl("/v1/models/gpt")[0], 404)

    def test_a_completion_has_the_fields_of_openai(self):
        answer = self.server.complete(prompt="ma", model=self.server.name, seed=1, max_tokens=3, user="me", logprobs=None)
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(answer["model"], self.server.name)
        self.assertTrue(answer["id"].startswith("cmpl-"))
        self.assertAlmostEqual(answer["created"], time.time(), delta=60)
        [choice] = answer["choices"]
        self.assertEqual((choice["index"], choice["logprobs"]), (0, None))
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        self.assertEqual(len(answer["choices"]), 1)
        usage = answer["usage"]
        self.assertEqual(usage["prompt_tokens"], 3)  # with the begin token of a document
        self.assertEqual(usage["total_tokens"], 3 + usage["completion_tokens"])
        self.assertLessEqual(usage["completion_tokens"], 3)

    def test_a_stream_is_the_text_in_pieces(self):
        for asked in ({"seed": 1}, {"seed": 2, "n": 3}, {"seed": 3, "echo": True}, {"temperature": 0},
                      {"seed": 1, "stop": ["a", "el"], "n": 4}, {"prompt": ["an", "be"], "seed": 5, "n": 2}):
            asked = {"prompt": "an", "max_tokens": 10, **asked}
            whole = self.server.complete(**asked)
            texts, reasons = {}, {}
            for event in self.server.events(**asked):
                [choice] = event["choices"]
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                if choice["finish_reason"]:
                    reasons[choice["index"]] = choice["finish_reason"]
            self.assertEqual(texts, {choice["index"]: choice["text"] for choice in whole["choices"]}, asked)
            self.assertEqual(reasons, {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}, asked)
        last = self.server.events(prompt="an", seed=1, stream_options={"include_usage": True})[-1]
        self.assertEqual((last["choices"], last["usage"]["prompt_tokens"]), ([], 3))

    def test_what_options_do(self):
        text = self.server.text
        self.assertEqual(text(prompt="an", seed=7), text(prompt="an", seed=7))
        self.assertGreater(len({text(prompt="an", seed=seed, max_tokens=10) for seed in range(8)}), 1)
        self.assertGreater(len({text(prompt="an", max_tokens=10) for _ in range(8)}), 1)
        likeliest = text(prompt="an", temperature=0)
        for same in ({"top_p": 0}, {"top_p": 1e-9}, {"temperature": 0, "seed": 9}):
            self.assertEqual(text(prompt="an", **same), likeliest)
        self.assertEqual(text(prompt="an", echo=True, temperature=0), "an" + likeliest)
        self.assertEqual(text(prompt="an", echo=True, max_tokens=0), "an")
        self.assertEqual(text(prompt="an", max_tokens=0), "")
        self.assertEqual(text(prompt=[26, 0, 13], temperature=0), likeliest)
        self.assertTrue(text(prompt="", seed=1))
        n = self.server.complete(prompt="an", seed=1, n=4, max_tokens=10)["choices"]
        self.assertEqual([choice["index"] for choice in n], [0, 1, 2, 3])
        self.assertGreater(len({choice["text"] for choice in n}), 1)
        whole = text(prompt="m", seed=3, max_tokens=12)
        self.assertGreater(len(whole), 2)
        stopped = self.server.complete(prompt="m", seed=3, max_tokens=12, stop=whole[1:3])["choices"][0]
        self.assertEqual((stopped["text"], stopped["finish_reason"]), (whole[:whole.index(whole[1:3])], "stop"))

    def test_invalid_requests_are_openai_errors(self):
        ok = {"prompt": "an"}
        for body, param in (
                ({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": 3}, "prompt"), ({"prompt": []}, "prompt"),
                ({"prompt": [1.5]}, "prompt"), ({"prompt": [999]}, "prompt"), ({"prompt": [-1]}, "prompt"),
                ({"prompt": ["a", 3]}, "prompt"), ({"prompt": [[]]}, "prompt"), ({"prompt": "ÄN"}, "prompt"),
                ({"prompt": "a" * 16, "max_tokens": 1}, "max_tokens"), ({"prompt": "a" * 99}, "prompt"),
                ({**ok, "max_tokens": -1}, "max_tokens"), ({**ok, "max_tokens": 1.5}, "max_tokens"),
                ({**ok, "max_tokens": 2**63}, "max_tokens"), ({**ok, "max_tokens": "3"}, "max_tokens"),
                ({**ok, "max_tokens": 100}, "max_tokens"), ({**ok, "temperature": -1}, "temperature"),
                ({**ok, "temperature": 2.1}, "temperature"), ({**ok, "temperature": "1"}, "temperature"),
                ({**ok, "top_p": 1.1}, "top_p"), ({**ok, "seed": 1.5}, "seed"), ({**ok, "n": 0}, "n"), ({**ok, "n": 17}, "n"),
                ({"prompt": ["a"] * 9, "n": 2}, "n"), ({**ok, "stop": ""}, "stop"), ({**ok, "stop": [1]}, "stop"),
                ({**ok, "stop": list("abcde")}, "stop"), ({**ok, "echo": 1}, "echo"), ({**ok, "stream": "yes"}, "stream"),
                ({**ok, "stream_options": {"x": 1}}, "stream_options.x"), ({**ok, "logprobs": 2}, "logprobs"),
                ({**ok, "best_of": 2}, "best_of"), ({**ok, "suffix": "x"}, "suffix"), ({**ok, "max_token": 3}, "max_token"),
                ("{", None), ("", None), ("[]", None), ('{"prompt": "a",}', None), ('{"prompt": "a", "prompt": "b"}', None),
                ('{"prompt": "a"} x', None), ('{"prompt": NaN}', None), ("[" * 100000, None),
                *(('{"prompt": "a", "%s": %s1%s}' % (field, "[" * 400000, "]" * 400000), None) for field in ("stop", "model", "x")), ('{"prompt": "\\ud800"}', None)):
            status, text = self.server.curl("/v1/completions", body=body)
            error = json.loads(text)["error"]
            self.assertEqual((status, error["param"]), (400, param), f"{str(body)[:80]}: {text}")
            self.assertEqual(error["type"], "invalid_request_error")
            self.assertTrue(error["message"])
        self.assertEqual(error["code"], None)

    def test_statuses(self):
        def status(path, *arguments, **body):
            status, text = self.server.curl(path, *arguments, **body)
            return status, json.loads(text)["error"]["code"]

        self.assertEqual(status("/v1/completions", body={"prompt": "a", "model": "gpt-4"}), (404, "model_not_found"))
        self.assertEqual(status("/v1/completions", body={"prompt": "a" * 99}), (400, "context_length_exceeded"))
        self.assertEqual(status("/v1/chat/completions", body={"messages": []}), (400, "no_chat_template"))
        self.assertEqual(status("/v1/completions"), (405, None))
        self.assertEqual(status("/v1/embeddings", body={}), (404, None))
        self.assertEqual(status("/../../etc/passwd", "--path-as-is"), (404, None))
        self.assertEqual(status("/v1/completions", "-d", '{"prompt": "a"}'), (415, None))
        self.assertEqual(status("/v1/completions", body=json.dumps({"prompt": "a" * 2**20})), (413, None))

    def test_requests_at_once_get_what_they_get_alone(self):
        asked = [{"prompt": prompt, "seed": seed, "max_tokens": 12, "n": 4, "stop": "ee"}
                 for seed, prompt in enumerate(["an", "be", "car", "d", "el", "fr"])]
        # These fill the context, while others grow.
        asked += [{"prompt": "an" * 6, "seed": seed, "temperature": 2, "n": 8} for seed in range(2)]
        alone = [self.server.complete(**each)["choices"] for each in asked]
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda each: self.server.complete(**each)["choices"], asked))
            self.assertEqual(together, alone)

    def test_the_page_is_whole(self):
        status, text = self.server.curl("/")
        self.assertEqual(status, 200)
        self.assertNotRegex(text, r"https?://")  # the page loads nothing from other sites


class SameAsSample(unittest.TestCase):
    """The text of a prompt and options equals that of `plumb sample`."""

    @staticmethod
    def sample(run, prompt, seed, num):
        ran = subprocess.run(["plumb", "sample", run, "--prompt", prompt, "--temperature", "1", "--seed", str(seed), "--num",
                              str(num), "--max-tokens", "8", "--json"], stdout=subprocess.PIPE, check=True)
        return [sample["text"] for sample in json.loads(ran.stdout)["samples"]]

    def test_texts_are_those_of_the_command_line(self):
        for run, prompts in ((RUN, ("", "an")), (LONG_RUN, ("", "ma")), (SMILES_RUN, ("", "mama", "an an", "😀"))):
            server = Server(run)
            self.addCleanup(Bounds.finish, server.process)
            for prompt in prompts:
                for seed in (1, 2):
                    asked = {"prompt": prompt, "temperature": 1, "seed": seed, "n": 4, "max_tokens": 8}
                    answer = server.complete(echo=True, **asked)
                    self.assertEqual([choice["text"] for choice in answer["choices"]], self.sample(run, prompt, seed, 4),
                                     f"{run} {prompt!r} {seed}")
                    texts = {}
                    for event in server.events(**asked):
                        [choice] = event["choices"]
                        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                    alone = [choice["text"] for choice in server.complete(**asked)["choices"]]
                    self.assertEqual(list(texts.values()), alone)
                    if prompt:
                        self.assertEqual([prompt + text for text in alone],
                                         [choice["text"] for choice in answer["choices"]])

    def test_the_library_goes_on_past_the_context_as_the_command_line_does(self):
        def read(name):
            with open(os.path.join(SMILES_RUN, name), encoding="utf-8") as file:
                return file.read().strip()

        tokenizer = plumb.Tokenizer(read("tokenizer.json"))
        model = plumb.Model(plumb.Runtime(), plumb.Spec(read("model.pbtxt")))
        model.load(os.path.join(SMILES_RUN, "checkpoints", read("latest"), "model.safetensors"))
        session, prompt = plumb.Session(model), tokenizer.prefix + tokenizer.encode("mama")
        ran = subprocess.run(["plumb", "sample", SMILES_RUN, "--prompt", "mama", "--temperature", "0.7", "--num", "3",
                              "--max-tokens", "60", "--json"], stdout=subprocess.PIPE, check=True)
        for index, sample in enumerate(json.loads(ran.stdout)["samples"]):
            options = {"temperature": 0.7, "seed": 1, "index": index, "vocabulary": tokenizer.vocab_size}
            session.truncate(0)
            session.feed(prompt)
            ids = session.generate(max_tokens=len(sample["ids"]), **options)
            self.assertEqual(ids, sample["ids"])
            self.assertGreater(len(ids), model.info.context_length)
            decoder = tokenizer.decoder(prompt)
            self.assertEqual("mama" + "".join(map(decoder.next, ids)) + decoder.finish(), sample["text"])

    def test_characters_of_several_tokens_are_whole(self):
        server = Server(SMILES_RUN)
        self.addCleanup(Bounds.finish, server.process)
        first_byte = [0, 29, 29, 0, 30 + 0xF0]  # "mama ", and the first byte of each smile
        for echo in (False, True):
            asked = {"prompt": first_byte, "temperature": 0, "max_tokens": 8, "echo": echo}
            whole = server.text(**asked)
            self.assertRegex(whole, "^mama [😀😁]" if echo else "^[😀😁]")
            pieces = [event["choices"][0]["text"] for event in server.events(**asked)]
            self.assertEqual("".join(pieces), whole)
            self.assertNotIn("\ufffd", "".join(pieces[:-1]))
        # The count includes the <s> that the tokenizer's post-processor adds.
        self.assertEqual(server.complete(prompt="an", max_tokens=1)["usage"]["prompt_tokens"], 3)

    def test_an_answer_says_that_the_context_is_full(self):
        server = Server(RUN)
        self.addCleanup(Bounds.finish, server.process)
        for prompt, reasons in (("an" * 6, {"context", "stop"}), ("an", {"length", "stop"})):
            found = set()
            for seed in range(4):
                answer = server.complete(prompt=prompt, temperature=2, seed=seed, n=16,
                                         **({} if "context" in reasons else {"max_tokens": 2}))
                found |= {choice["finish_reason"] for choice in answer["choices"]}
            self.assertEqual(found, reasons)


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(RUN)

    @classmethod
    def tearDownClass(cls):
        Bounds.finish(cls.server.process)

    def status(self, *arguments, body={"prompt": "an", "max_tokens": 1}):
        return self.server.curl("/v1/completions", *arguments, body=body)[0]

    def send(self, text):
        """Returns the bytes that arrive until the connection is closed."""
        with socket.create_connection(("127.0.0.1", int(self.server.url.rpartition(":")[2])), timeout=20) as connection:
            connection.sendall(text)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionResetError:  # the server closes without reading the body
                pass
            return answer

    def test_the_host_must_be_the_servers(self):
        port = self.server.url.rpartition(":")[2]
        for host in (f"localhost:{port}", "localhost", "LocalHost:1", "127.0.0.1", f"127.0.0.1:{port}", "[::1]", f"[::1]:{port}"):
            self.assertEqual(self.status("-H", "Host: " + host), 200, host)
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1",
                     "localhost:x", "localhost:80:80", "[::1", "[::2]", "[::1]x", "localhost@evil.example", "a, localhost", ""):
            for path, body in (("/v1/completions", {"prompt": "an"}), ("/v1/models", None), ("/", None)):
                status, text = self.server.curl(path, "-H", f"Host: {host}" if host else "Host;", body=body)
                self.assertEqual(status, 403, f"{host}: {text}")
        self.assertEqual(json.loads(self.server.curl("/v1/models", "-H", "Host: evil.example")[1])["error"]["type"],
                         "invalid_request_error")

    def test_a_server_of_all_addresses_knows_addresses_and_no_names(self):
        process = subprocess.Popen([SERVER, RUN, "--port", "0", "--host", "0.0.0.0"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(Bounds.finish, process)
        port = re.match(r"http://0\.0\.0\.0:(\d+) ", process.stdout.readline())[1]
        for host, expected in (("10.1.2.3:80", "200"), ("[fe80::1]", "200"), ("localhost", "200"), ("evil.example", "403")):
            ran = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Host: " + host,
                                  f"http://127.0.0.1:{port}/v1/models"], stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(ran.stdout, expected, host)

    def test_a_body_cannot_grow(self):
        with tempfile.NamedTemporaryFile(suffix=".gz") as bomb:
            bomb.write(gzip.compress(b'{"prompt": "' + b"a" * (64 << 20) + b'"}'))
            bomb.flush()
            self.assertLess(os.path.getsize(bomb.name), 1 << 20)
            for path in ("/v1/completions", "/v1/chat/completions", "/not/there"):
                for encoding in ("gzip", "br", "deflate", "identity"):
                    status, _ = self.server.curl(path, *JSON, "-H", "Content-Encoding: " + encoding, "--data-binary",
                                                 "@" + bomb.name)
                    self.assertEqual(status, 415, f"{path} {encoding}")
            with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
                self.assertLess(int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1]), 60 << 10)
        self.assertEqual(self.status("-H", "Transfer-Encoding: chunked"), 411)
        self.assertEqual(self.server.curl("/not/there", "-H", "Transfer-Encoding: chunked", body={})[0], 411)
        for method in ("POST", "PUT", "PATCH", "PRI"):
            answer = self.send(f"{method} /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + b"a" * 4096)
            self.assertRegex(answer, rb"^HTTP/1.1 4\d\d ", method)
        self.assertEqual(self.status(), 200)

    def test_half_of_a_request_blocks_no_other(self):
        address = ("127.0.0.1", int(self.server.url.rpartition(":")[2]))
        halves = [socket.create_connection(address, timeout=20) for _ in range(100)]
        for half in halves:
            self.addCleanup(half.close)
            half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        began = time.monotonic()
        self.assertEqual(self.status(), 200)
        self.assertLess(time.monotonic() - began, 1)
        for half in halves:  # each is closed or refused
            while half.recv(4096):
                pass
        self.assertLess(time.monotonic() - began, 6)

    def test_a_refused_body_is_no_request(self):
        inner = b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"prompt": "a"}'
        answer = self.send(b"POST /v1/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner)
        self.assertEqual(answer.count(b"HTTP/1.1 "), 1, answer)
        self.assertIn(b"HTTP/1.1 403", answer)


class Bounds(unittest.TestCase):
    """Tests with one request at once, and texts that take long."""
    LONG = {"prompt": "x", "max_tokens": 2047, "n": 16, "seed": 1}

    def setUp(self):
        self.server = Server(LONG_RUN, "--requests", "1", "--threads", "1")
        self.addCleanup(self.finish, self.server.process)

    @staticmethod
    def finish(process):
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()

    def begin(self, **body):
        """Returns a client in the middle of an answer."""
        client = subprocess.Popen(["curl", "-sN", *JSON, "-d", json.dumps({**self.LONG, **body}),
                                   self.server.url + "/v1/completions"], stdout=subprocess.PIPE)
        self.addCleanup(self.finish, client)
        if body.get("stream"):
            client.stdout.readline()
        else:
            while self.status() == 200:
                if client.poll() is not None:  # refused during a status request
                    return self.begin(**body)
                time.sleep(0.01)
        return client

    def status(self):
        return self.server.curl("/v1/completions", body={"prompt": "a", "max_tokens": 1})[0]

    def test_more_requests_than_may_run_are_refused(self):
        self.begin(stream=True)
        status, text = self.server.curl("/v1/completions", "-i", body={"prompt": "a"})
        self.assertEqual(status, 429)
        self.assertIn("Retry-After: 1", text)
        self.assertIn('"code":"rate_limit_exceeded"', text)
        self.assertEqual(self.server.curl("/v1/models")[0], 200)

    def test_a_client_that_goes_away_ends_its_request(self):
        for stream in (True, False):
            client = self.begin(stream=stream)
            self.assertEqual(self.status(), 429)
            self.finish(client)
            began = time.monotonic()
            while self.status() != 200:
                self.assertLess(time.monotonic() - began, 2)
                time.sleep(0.01)

    def test_ctrl_c_ends_requests_that_run(self):
        client = self.begin(stream=True)
        printed, complained, code, seconds = self.server.end()
        self.assertEqual((printed, complained, code), ("stopped\n", "", 0))
        self.assertLess(seconds, 4)
        self.assertNotIn(b"[DONE]", client.stdout.read())

    def test_pieces_are_whole_characters(self):
        # Random bytes are seldom UTF-8, but the server always sends UTF-8.
        for event in self.server.events(prompt="ä€😀", temperature=2, max_tokens=400, seed=1, echo=True):
            event["choices"][0]["text"].encode()
        whole = self.server.text(prompt="ä€😀", temperature=2, max_tokens=400, seed=1, echo=True)
        self.assertTrue(whole.startswith("ä€😀"))

    def test_a_port_that_is_taken_and_bad_arguments(self):
        port = self.server.url.rpartition(":")[2]
        for arguments, code, said in (([RUN, "--port", port], 1, "another server"), ([], 2, "usage"), ([RUN, "--port", "x"], 2, "--port must"),
                                      ([RUN, "--prot", "1"], 2, "--prot is not known"),
                                      ([RUN, "--requests", "65"], 2, "--requests must be a number from 1 to 64"), (["/not/there"], 1, "/not/there"),
                                      ([os.path.dirname(RUN)], 1, "is neither a run nor a checkpoint")):
            ran = subprocess.run([SERVER, *arguments], stderr=subprocess.PIPE, text=True, timeout=30, check=False)
            self.assertEqual(ran.returncode, code, ran.stderr)
            self.assertIn(said, ran.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
