"""What the Python tests share: a test program whose ranks run the same cases in the same order."""

import os
import sys
import unittest

import dtl


def main() -> None:
    """Runs the cases of the calling program on this rank, and finalises the library."""
    os.environ.setdefault("DTL_TIMEOUT", "120s")
    program = unittest.main(module="__main__", exit=False, failfast=True)
    if not program.result.wasSuccessful():
        # The other ranks detect that this one is gone.
        sys.stderr.flush()
        os._exit(1)
    dtl.COMM_WORLD.barrier()


class Case(unittest.TestCase):
    """A test case with the communicator of the job."""

    comm = dtl.COMM_WORLD

    def setUp(self) -> None:
        self.rank, self.size = self.comm.rank, self.comm.size

    def refuses(self, status: dtl.Status, *words: str):  # type: ignore[no-untyped-def]
        """Expects dtl.Error with a status and words of its text."""
        pattern = ".*".join(words)
        case = self

        class Expectation:
            def __enter__(self) -> None:
                pass

            def __exit__(self, kind: type, error: BaseException, trace: object) -> bool:
                case.assertIsInstance(error, dtl.Error, f"expected {status.name}")
                assert isinstance(error, dtl.Error)
                case.assertEqual(error.status, status, str(error))
                case.assertRegex(error.text, pattern or ".")
                return True

        return Expectation()
