"""Policies: each task runs on a resource that the policy selects."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import callbacks, text
from ._raw import ffi, lib
from .error import Error, check
from .handle import Owned
from .lifecycle import new_info, timeout_ns
from .stream import Event, Stream

# Function of a task: gets the resource; may return an event of the work that it left running.
Task = Callable[[Any], Event | None]


class Stats(NamedTuple):
    """Statistics of a resource."""

    submitted: int
    failed: int
    load: int


class Policy(Owned):
    """Selects a resource for each task.

    Names: "fixed", "round_robin", "dynamic_load", "auto_tune", "capacity"; see dtl_policy_create.
    Resources are streams, or any other objects of the program. Call wait_all before destroy.
    """

    _noun = "policy"
    _verb = "release"

    def __init__(
        self,
        name: str,
        resources: Sequence[Any],
        *,
        inline: bool = False,
        fixed_index: int = 0,
        capacity: int = 0,
        samples: int = 0,
        warmups: int = 0,
        resample_submits: int = 0,
    ) -> None:
        """Creates a policy. With `inline`, submits wait for work that a task leaves running."""
        self.resources = list(resources)
        streams = bool(self.resources) and all(isinstance(one, Stream) for one in self.resources)
        opts = new_info("dtl_policy_opts")
        kind = lib.DTL_RESOURCES_INLINE if inline else lib.DTL_RESOURCES_GENERIC
        opts.kind = lib.DTL_RESOURCES_STREAMS if streams and not inline else kind
        opts.fixed_index, opts.capacity = fixed_index, capacity
        opts.samples, opts.warmups = samples, warmups
        opts.resample_submits = resample_submits
        table = ffi.new("dtl_resource_t[]", max(len(self.resources), 1))
        # What a task gets: its resource by the number that the library passes.
        self._by_value: dict[int, Any] = {}
        for index, resource in enumerate(self.resources):
            value = resource._handle.id if opts.kind == lib.DTL_RESOURCES_STREAMS else index
            table[index].value = value
            self._by_value[value] = resource
        # Tasks whose end no wait has found, with the events that they left.
        self._tasks: list[_Task] = []
        out = ffi.new("dtl_policy_t *")
        length = len(self.resources)
        check(lib.dtl_policy_create(text.encode(name), table, length, opts, out))
        self._handle = out[0]

    def submit(
        self,
        task: Task,
        *,
        key: int | None = None,
        variant: int = 0,
        timeout: float | None = None,
    ) -> Submission:
        """Submits a task: selects a resource and calls task(resource).

        `key` and `variant` identify the task for policies that learn; without a key, the name of
        the function does. `timeout` limits the wait for a free resource.
        """
        state = _Task(task, self._by_value)
        out = ffi.new("dtl_submission_t *")
        status = lib.dtl_policy_submit(
            self._handle, _key(task, key, variant), lib.python_policy_task, state.handle,
            timeout_ns(timeout), out,
        )  # fmt: skip
        check(status)
        return Submission(out, state, self)

    def run(
        self,
        task: Task,
        *,
        key: int | None = None,
        variant: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Submits a task and blocks until it has ended; raises its failure."""
        state = _Task(task, self._by_value)
        self._tasks.append(state)
        status = lib.dtl_policy_submit_and_wait(
            self._handle, _key(task, key, variant), lib.python_policy_task, state.handle,
            timeout_ns(timeout),
        )  # fmt: skip
        if status != lib.DTL_ERROR_TIMEOUT:
            self._tasks.remove(state)
        state.check(status)

    def wait_all(self, timeout: float | None = None) -> None:
        """Blocks until everything that was submitted has ended."""
        status = lib.dtl_policy_wait_all(self._handle, timeout_ns(timeout))
        if status != lib.DTL_ERROR_TIMEOUT:
            self._tasks.clear()
        check(status)

    @property
    def stats(self) -> list[Stats]:
        """Statistics of each resource."""
        table = ffi.new("dtl_policy_stats_t[]", max(len(self.resources), 1))
        length = ffi.new("uint64_t *")
        check(lib.dtl_policy_stats(self._handle, table, len(self.resources), length))
        rows = [table[index] for index in range(length[0])]
        return [Stats(row.submitted, row.failed, row.load) for row in rows]

    def __exit__(self, kind: object = None, *_: object) -> None:
        if kind is None:
            self.wait_all()
        self.destroy()


class Submission:
    """A submitted task."""

    def __init__(self, submission: Any, state: _Task, policy: Policy) -> None:
        self._submission: Any = submission
        self._state = state
        self._policy = policy

    @property
    def resource(self) -> Any:
        """Resource that was selected."""
        out = ffi.new("dtl_resource_t *")
        check(lib.dtl_submission_resource(self._submission, out))
        return self._policy._by_value[out.value]

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the task has ended; raises its failure."""
        self._state.check(lib.dtl_submission_wait(self._submission, timeout_ns(timeout)))

    def __del__(self) -> None:
        submission = getattr(self, "_submission", None)
        if submission is not None and submission.ticket != 0 and lib is not None:
            # The task continues: the policy keeps what it uses.
            self._policy._tasks.append(self._state)
            lib.dtl_submission_release(submission)


class _Task:
    """State of a task: its function, what it left running, and its exception."""

    def __init__(self, function: Task, resources: dict[int, Any]) -> None:
        self.function = function
        self.resources = resources
        self.event: Event | None = None
        self.exception: Exception | None = None
        self.handle: Any = ffi.new_handle(self)

    def check(self, status: int) -> None:
        """Raises the exception of the task, or Error for a failure."""
        exception, self.exception = self.exception, None
        if exception is not None and status != 0:
            raise exception
        check(status)


def _key(task: Task, key: int | None, variant: int) -> Any:
    if key is None:
        name = (
            f"{getattr(task, '__module__', '')}.{getattr(task, '__qualname__', repr(type(task)))}"
        )
        key = zlib.crc32(name.encode()) | 1 << 32
    return ffi.new("dtl_task_key_t *", [key, variant])[0]


@ffi.def_extern(error=callbacks.FAILED)
def python_policy_task(resource: Any, arg: Any, out_wait: Any) -> int:
    """Runs a task on its resource."""
    state = ffi.from_handle(arg)
    try:
        event = state.function(state.resources[resource.value])
    except Exception as error:  # the wait raises it
        state.exception = error
        return int(error.status) if isinstance(error, Error) else callbacks.FAILED
    if isinstance(event, Event):
        state.event = event
        out_wait.event = event._handle
    return 0
