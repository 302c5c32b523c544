#!/usr/bin/env python3
"""Checks the lint itself: a sound tree passes, and each broken rule is found by its line."""

import tempfile
import unittest
from pathlib import Path

import check_engine_only
import check_includes
import check_tests
import check_text

SOUND = {
    "include/renga/status.h": '// Status.\n#pragma once\n#include <string>\n',
    "src/base/log.cc": '#include "base/log.h"\n#include <spdlog/spdlog.h>\n',
    "src/engine/engine.cc": '// Engine.\n#include "engine/engine.h"\n#include "model/transformer.h"\n'
    '#include "base/check.h"\n#include "renga/status.h"\n#include <unistd.h>\n',
    "src/transport/grpc_service.cc": '// Service.\n#include <grpcpp/grpcpp.h>\n'
    '#include "renga/v1/inference.grpc.pb.h"\n',
    "src/app/main.cc": '// Main.\n#include "engine/engine.h"\nchar* e = getenv("RENGA_X");\n',
    "kernels/cpu/ops_avx2.cc": '// Ops.\n#include <immintrin.h>\n#include "kernels/cpu/rope-inl.h"\n',
    "kernels/cpu/rope-inl.h": '// RoPE.\n#pragma once\n#include <stdint.h>\n#include "kernels/ops.h"\n'
    '#include "kernels/cpu/vec-inl.h"\n',
    "tests/CMakeLists.txt": "set(deps_engine base model engine)\nset(deps_reference base)\n",
    "tests/model/transformer_test.cc": '#include "model/transformer.h"\n',
    "tests/engine/engine_test.cc": '// Test.\n#include <gtest/gtest.h>\n#include "engine/engine.h"\n'
    '#include "tests/reference/attention.h"\n#include "tests/fakes/fake_clock.h"\n',
    "tests/reference/attention.h": '// Reference.\n#pragma once\n#include "tests/reference/math.h"\n',
}

# What is wrong: the file, its whole text, and a piece of the message.
BROKEN = [
    ("src/base/log.cc", '// x\n#include "engine/engine.h"\n', "may not include engine"),
    ("src/model/model.cc", '// x\n#include "engine/engine.h"\n', "may not include engine"),
    ("src/service/pool.cc", '// x\n#include "engine/engine.h"\n', "may not include engine"),
    ("src/engine/x.cc", '// x\n#include "transport/grpc_service.h"\n', "may not include transport"),
    ("src/service/x.cc", '// x\n#include "renga/v1/inference.pb.h"\n', "may not include proto"),
    ("src/engine/x.cc", '// x\n#include <grpcpp/grpcpp.h>\n', "only in: bench/load, gateway, transport"),
    ("src/engine/x.cc", '// x\n#include <spdlog/spdlog.h>\n', "only in: base"),
    ("src/engine/x.cc", '// x\n#include <immintrin.h>\n', "only in: kernels/cpu"),
    ("src/transport/x.cc", '// x\n#include <absl/strings/str_cat.h>\n', "only in: nowhere"),
    ("src/transport/x.cc", '// x\n#include <format>\n', "only in: nowhere"),
    ("src/transport/x.cc", '// x\n#include <curl/curl.h>\n', "in no row"),
    ("src/engine/x.cc", '// x\n#include "../model/transformer.h"\n', 'no ".."'),
    ("src/engine/x.cc", '// x\n#include "src/model/transformer.h"\n', "without src/"),
    ("src/engine/x.cc", '// x\n#include "scheduler.h"\n', "from its folder on"),
    ("src/engine/x.cc", '// x\n#include <model/transformer.h>\n', "in quotes"),
    ("src/engine/x.cc", "#include <string>\n", "opens with a comment"),
    ("tests/engine/x_test.cc", '#include "model/y.h"\n', "opens with a comment"),
    ("src/engine/x.cc", "// x\n" * 601, "split the file"),
    ("src/engine/x.h", "// x\n#include <string>\n", "#pragma once"),
    ("src/engine/x.h", "// x\n#pragma once\nusing namespace std;\n", "using namespace"),
    ("src/engine/x.cc", '// x\nauto e = std::getenv("X");\n', "no getenv"),
    ("src/madeup/x.cc", "// x\n", "no row in MODULES"),
    ("kernels/cpu/x.cc", '// x\n#include "base/check.h"\n', "may not include base"),
    ("kernels/cpu/x.cc", '// x\n#include "renga/status.h"\n', "may not include renga"),
    ("kernels/cpu/x.cc", "// x\n#include <poll.h>\n", "in no row"),
    ("kernels/cpu/x-inl.h", "// x\n#pragma once\n#include <cmath>\n", "include only"),
    ("kernels/cpu/x-inl.h", '// x\n#pragma once\n#include "kernels/sampling.h"\n', "include only"),
    ("kernels/ops.h", "// x\n#pragma once\n#include <vector>\n", "include only"),
    ("kernels/x.cc", "// x\n#include <immintrin.h>\n", "only in: kernels/cpu"),
    ("tests/reference/x.h", '// x\n#pragma once\n#include "kernels/ops.h"\n', "may not include kernels"),
    ("tests/reference/x.h", '// x\n#pragma once\n#include "renga/types.h"\n', "may not include renga"),
    ("tests/engine/x_test.cc", '// x\n#include "transport/grpc_service.h"\n', "may not include transport"),
    ("src/engine/x.cc", "// x\n#include <gtest/gtest.h>\n", "only in: tests"),
    ("src/backend/x.cc", "// x\n#include <cuda_runtime_api.h>\n", "only in: kernels/cuda, src/backend/cuda_device.cc"),
    ("kernels/x.cc", "// x\n#include <cuda_fp16.h>\n", "only in: kernels/cuda"),
    ("src/backend/x.cc", "// x\n#include <dlfcn.h>\n", "only in: src/backend/nvml.cc"),
    ("tests/engine/x_test.cc", "// x\n#include <boost/context/fiber.hpp>\n", "only in: tests/simt"),
]


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in SOUND.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class CheckIncludesTest(Tree):
    def test_a_sound_tree_passes(self):
        self.assertEqual(check_includes.check(self.root), [])

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertTrue(check_includes.check(Path(empty)))

    def test_each_broken_rule_is_found_in_its_file(self):
        for name, text, message in BROKEN:
            with self.subTest(name=name, message=message):
                path = self.root / name
                before = path.read_text() if path.exists() else None
                self.write(name, text)
                problems = check_includes.check(self.root)
                self.assertEqual(len(problems), 1, problems)
                self.assertTrue(problems[0].startswith(f"{name}:"), problems)
                self.assertIn(message, problems[0])
                path.unlink() if before is None else path.write_text(before)

    def test_what_stands_in_a_comment_is_no_offence(self):
        self.write("src/engine/x.h", "// x\n#pragma once\n// no getenv, no using namespace here\n")
        self.assertEqual(check_includes.check(self.root), [])


class CheckTestsTest(Tree):
    def setUp(self):
        super().setUp()
        self.write("tests/lint/test_exceptions.txt", "# none\n")
        for name in ("src/base/log.cc", "src/transport/grpc_service.cc", "src/app/main.cc",
                     "kernels/cpu/ops_avx2.cc"):
            self.write(f"tests/any/{Path(name).stem}_test.cc", "// x\n")

    def test_a_tested_tree_passes(self):
        self.assertEqual(check_tests.check(self.root), [])

    def test_a_source_without_a_test_is_named(self):
        self.write("src/text/jinja/lexer.cc", "// x\n")
        self.assertIn("src/text/jinja/lexer.cc", check_tests.check(self.root)[0])

    def test_an_exception_with_a_reason_is_enough_and_one_without_is_not(self):
        self.write("src/text/jinja/lexer.cc", "// x\n")
        self.write("tests/lint/test_exceptions.txt", "src/text/jinja/lexer.cc: tested by parser_test\n")
        self.assertEqual(check_tests.check(self.root), [])
        self.write("tests/lint/test_exceptions.txt", "src/text/jinja/lexer.cc:\n")
        self.assertEqual(len(check_tests.check(self.root)), 1)

    def test_an_exception_that_nobody_needs_is_an_error(self):
        self.write("tests/lint/test_exceptions.txt", "src/base/log.cc: because\n")
        self.assertIn("needs no exception", check_tests.check(self.root)[0])


class CheckTextTest(unittest.TestCase):
    def test_clean_text_binary_data_and_an_empty_file_pass(self):
        for data in (b"a\n\nb\n", b"\0 \n\n", b""):
            self.assertEqual(check_text.check_bytes("x.md", data), [])

    def test_each_bad_habit_is_found(self):
        for data in (b"a \nb\n", b"a\r\n", b"a", b"a\n\n", b"x" * (check_text.MAX_BYTES + 1)):
            self.assertEqual(len(check_text.check_bytes("x.md", data)), 1, data[:9])


DEPS = """src/CMakeFiles/log.cc.o: #deps 9, deps mtime 17 (VALID)
    ../../src/base/log.cc
    include_roots/base/base/log.h
    /usr/include/stdint.h
    /usr/include/c++/12/string
    /usr/include/x86_64-linux-gnu/bits/types.h
    /usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h
    /usr/include/linux/errno.h
    /usr/local/cuda-13.0/include/cuda_fp16.h
    /opt/nvidia/include/cuda_bf16.h

src/CMakeFiles/old.cc.o: #deps 1, deps mtime 17 (STALE)
    /usr/include/spdlog/spdlog.h
"""


class CheckEngineOnlyTest(unittest.TestCase):
    FOLDERS = ["/tree", "/opt/nvidia"]

    def foreign(self, deps):
        return check_engine_only.foreign(deps, "/tree/build/x", self.FOLDERS)

    def test_ours_and_what_every_machine_has_passes(self):
        self.assertEqual(self.foreign(DEPS), (1, {}))

    def test_headers_of_packages_are_named_with_an_object(self):
        for header in ("/usr/include/spdlog/spdlog.h", "/usr/include/utf8proc.h", "/tree2/x.h",
                       "/usr/include/x86_64-linux-gnu/openssl/opensslconf.h", "/usr/local/include/a.h"):
            deps = DEPS.replace("/usr/include/stdint.h", header)
            self.assertEqual(self.foreign(deps), (1, {header: "src/CMakeFiles/log.cc.o"}))

    def test_a_build_without_objects_is_seen(self):
        self.assertEqual(self.foreign(""), (0, {}))

    def test_cuda_is_where_the_cache_says(self):
        self.assertEqual(check_engine_only.cuda_folders("CMAKE_CXX_COMPILER:FILEPATH=/usr/bin/g++\n"), [])
        cache = f"A:B=C\nCMAKE_CUDA_COMPILER:FILEPATH={Path(__file__).resolve()}\n"
        self.assertEqual(check_engine_only.cuda_folders(cache), [str(Path(__file__).resolve().parents[1])])


if __name__ == "__main__":
    unittest.main()
