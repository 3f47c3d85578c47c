"""The raw layer: sizes, constants and functions are those of the description and of the compiler.

Arguments: dtl-api.json and the library's file that has the text of a buffer that is not released.
"""

import json
import pathlib
import sys
import unittest

import dtl
from dtl import raw
from dtl.error import NOT_RELEASED

ffi, lib = raw.ffi, raw.lib


class Raw(unittest.TestCase):
    def setUp(self) -> None:
        sections = json.loads(pathlib.Path(DESCRIPTION).read_text())["sections"]
        self.items = [item for section in sections for item in section["items"]]

    def of_kind(self, kind: str) -> list[dict]:
        found = [item for item in self.items if item["kind"] == kind]
        self.assertTrue(found)
        return found

    def test_sizes_and_offsets(self) -> None:
        for item in self.of_kind("struct"):
            self.assertEqual(ffi.sizeof(item["name"]), item["size"], item["name"])
            for field in item["fields"]:
                place = f"{item['name']}.{field['name']}"
                self.assertEqual(ffi.offsetof(item["name"], field["name"]), field["offset"], place)
        for item in self.of_kind("handle"):
            self.assertEqual(ffi.sizeof(item["name"]), 8)

    def test_constants(self) -> None:
        for item in self.of_kind("constant"):
            value = getattr(lib, item["name"])  # cffi compares it with the header's
            self.assertEqual(getattr(value, "id", value), item["value"], item["name"])

    def test_every_function_is_there(self) -> None:
        for item in self.of_kind("function"):
            self.assertTrue(callable(getattr(lib, item["name"])))

    def test_initial_values(self) -> None:
        for item in self.of_kind("struct"):
            if "init" in item:
                initial = getattr(lib, item["name"].removesuffix("_t") + "_initial")()
                self.assertEqual(initial.struct_size, item["size"])

    def test_enumerations(self) -> None:
        prefixes = {
            dtl.Status: "DTL_ERROR_", dtl.DType: "DTL_DTYPE_", dtl.Op: "DTL_OP_",
            dtl.MemoryKind: "DTL_MEMORY_", dtl.DeviceKind: "DTL_DEVICE_", dtl.LogLevel: "DTL_LOG_",
            dtl.Language: "DTL_LANGUAGE_", dtl.Schedule: "DTL_SCHEDULE_",
        }  # fmt: skip
        for enumeration, prefix in prefixes.items():
            self.assertGreater(len(enumeration), 3)
            for member in enumeration:
                if member is not dtl.Status.SUCCESS:
                    self.assertEqual(getattr(lib, prefix + member.name), member)
        self.assertEqual(dtl.Status.SUCCESS, lib.DTL_SUCCESS)
        statuses = {
            item["value"] for item in self.of_kind("constant") if item["type"] == "dtl_status_t"
        }
        self.assertEqual(statuses, set(dtl.Status))

    def test_text_of_a_buffer_that_is_in_use(self) -> None:
        self.assertIn(NOT_RELEASED, pathlib.Path(CANCEL).read_text())

    def test_version(self) -> None:
        self.assertEqual(dtl.__version__, dtl.version())


if __name__ == "__main__":
    DESCRIPTION, CANCEL = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
