"""A scripted server with the interface of a vision endpoint."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.pipeline.scripted_endpoint import Answer, ScriptedEndpoint, completion, serving


class VisionServer(ScriptedEndpoint):
    """Answers each request with the next of ``answers``: a text, or a status that is an error."""

    def __init__(self, answers: list[str | int]) -> None:
        super().__init__()
        self.answers = answers

    def usual(self, request: dict[str, Any]) -> Answer:
        answer = self.answers.pop(0)
        return Answer(answer if isinstance(answer, int) else 200, completion(str(answer)))


def vision_server(*answers: str | int) -> AbstractContextManager[VisionServer]:
    return serving(VisionServer(list(answers)))
