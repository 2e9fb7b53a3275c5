"""Handle of a registered function: callable as before, with methods to queue calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from penstock.service.responses import Receipt

if TYPE_CHECKING:
    from penstock.service.call_fields import CallOptions
    from penstock.service.functions import FunctionJobs

P = ParamSpec("P")
R = TypeVar("R")


class FunctionHandle(Generic[P, R]):
    """A function of an application.

    @app.function
    def resize(payload): ...

    resize({"image": "a.png"})  # runs it here and now
    resize.call({"image": "a.png"}, delay=60)  # queues a call
    """

    def __init__(self, app: FunctionJobs, name: str, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._app = app
        self._function = function
        self.name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def call(
        self,
        payload: Any = None,
        *,
        entity: tuple[str, str] | None = None,
        connection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Receipt:
        """Queue one call; see ``Penstock.call``."""
        return self._app.call(self.name, payload, entity=entity, connection=connection, **options)

    def call_many(
        self, payloads: Iterable[Any], *, connection: Any = None, **options: Unpack[CallOptions]
    ) -> list[Receipt]:
        """Queue one call for each payload, in one transaction: all, or none. All have the same options."""
        calls = [{"name": self.name, "payload": payload, **options} for payload in payloads]
        return self._app.call_many(calls, connection=connection)  # type: ignore[arg-type]

    def map(self, payloads: Iterable[Any], **options: Unpack[CallOptions]) -> Receipt:
        """Queue one parent job with a call for each payload; see ``Penstock.map``."""
        return self._app.map(self.name, payloads, **options)

    def __reduce__(self) -> str:
        # Like a plain function, by its name: pools of processes may be given it.
        return getattr(self, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<function {self.name!r} of an application>"
