#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that arrays share the library's memory, and that fork and pickle are refused with a clear error. Exit code 77
without numpy."""
import copy
import gc
import os
import pickle
import sys
import unittest

import plumb_runtime as plumb

try:
    import numpy
except ImportError:
    print("skipped: there is no numpy")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

MODEL = 'n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5 block { placement: "pre" norm: "rms_norm" }'
IDS = numpy.arange(17) % 5


def model():
    return plumb.Model(plumb.Runtime(threads=1), plumb.Spec(MODEL), seed=3)


def address_of(array):
    return array.__array_interface__["data"][0]


class Sharing(unittest.TestCase):
    def test_writing_to_an_array_changes_the_model(self):
        made = model()
        evaluator = plumb.Evaluator(made, 2)
        before = evaluator.loss(IDS[:16], IDS[1:])
        for tensor in made.tensors().values():
            tensor.numpy()[...] *= 2
        made.changed()
        self.assertNotEqual(evaluator.loss(IDS[:16], IDS[1:]), before)
        for tensor in made.tensors().values():
            tensor.numpy()[...] /= 2
        made.changed()
        self.assertEqual(evaluator.loss(IDS[:16], IDS[1:]), before)

    def test_all_arrays_of_a_tensor_are_one_memory(self):
        made = model()
        tensor = made.tensor(0)
        arrays = [tensor.numpy(), numpy.asarray(tensor), numpy.asarray(tensor.view), numpy.from_dlpack(tensor),
                  made.tensor(0).numpy()]
        self.assertEqual({address_of(array) for array in arrays}, {address_of(arrays[0])})
        self.assertEqual({(array.shape, array.dtype.str) for array in arrays}, {(tensor.shape, "<f4")})
        arrays[0][...] = 7
        self.assertEqual(arrays[3].mean(), 7)
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        self.assertNotEqual(address_of(numpy.array(tensor)), address_of(arrays[0]))
        kept = arrays[3]
        del made, tensor, arrays
        gc.collect()
        self.assertEqual(kept.mean(), 7)

    def test_a_view_by_dlpack_forbids_moving_the_weights(self):
        made = model()
        kept = numpy.from_dlpack(made.tensor(0))
        with self.assertRaisesRegex(RuntimeError, "view"):
            plumb.Trainer(made, "dtype: BF16")
        del kept
        plumb.Trainer(made, "dtype: BF16")

    @unittest.skipUnless(torch, "there is no torch")
    def test_torch_shares_the_memory(self):
        tensor = model().tensor(0)
        shared = torch.from_dlpack(tensor)
        self.assertEqual((shared.data_ptr(), tuple(shared.shape)), (address_of(tensor.numpy()), tensor.shape))
        shared.fill_(3)
        self.assertEqual(tensor.numpy().mean(), 3)

    def test_gradients_and_logits_are_not_copied(self):
        made = model()
        trainer = plumb.Trainer(made, "batch_size: 2")
        trainer.step(IDS[:16], IDS[1:])
        gradient = trainer.gradient(0).numpy()
        self.assertEqual(address_of(gradient), address_of(trainer.gradient(0).numpy()))
        before = gradient.copy()
        trainer.step(IDS[1:], IDS[:16])
        self.assertFalse(numpy.array_equal(gradient, before))
        session = plumb.Session(made)
        session.feed(IDS[:3])
        logits = numpy.asarray(session.logits())
        self.assertEqual((logits.shape, logits.dtype.str), ((5,), "<f4"))
        self.assertEqual(address_of(logits), address_of(numpy.asarray(session.logits())))
        evaluator = plumb.Evaluator(made, 2, logits=True)
        self.assertEqual(numpy.asarray(evaluator.logits(IDS[:16])).shape, (2, 8, 5))


class Processes(unittest.TestCase):
    def test_a_forked_process_gets_an_error(self):
        made = model()
        trainer, session = plumb.Trainer(made, "batch_size: 2"), plumb.Session(made)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            found = []
            for use in (lambda: trainer.step(IDS[:16], IDS[1:]), lambda: session.feed(1), lambda: made.init(1),
                        lambda: plumb.Evaluator(made)):
                try:
                    use()
                    found.append("no error")
                except plumb.Error as error:
                    found.append(f"{error.code.name} {error}")
            own = plumb.Trainer(model(), "batch_size: 2").step(IDS[:16], IDS[1:]).loss
            os.write(writing, "\n".join([*found, str(own)]).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            found = pipe.read().splitlines()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(found), 5, found)
        for text in found[:4]:
            self.assertRegex(text, "FAILED_PRECONDITION .*fork")
        self.assertEqual(float(found[4]), trainer.step(IDS[:16], IDS[1:]).loss)

    def test_objects_are_not_pickled_and_errors_are(self):
        made = model()
        for each in (made, plumb.Session(made), plumb.Runtime(), plumb.Tokenizer.bytes(), made.tensor(0)):
            for use in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                    use(each)
        with self.assertRaises(plumb.Error) as raised:
            plumb.Spec("n_hed: 2", name="my.pbtxt")
        error = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((type(error), str(error), error.code, error.file, error.line),
                         (plumb.Error, str(raised.exception), plumb.Code.INVALID_ARGUMENT, "my.pbtxt", 1))
        info = plumb.Trainer(made, "batch_size: 2").step(IDS[:16], IDS[1:])
        self.assertEqual(pickle.loads(pickle.dumps(info)), info)


if __name__ == "__main__":
    unittest.main()
