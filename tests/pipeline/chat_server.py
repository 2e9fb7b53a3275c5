"""A scripted server with the interface of a chat endpoint that extracts graphs."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

from tests.pipeline.scripted_endpoint import Answer, ScriptedEndpoint, completion, serving

TOKENS_A_CALL = 7
_NAME = re.compile(r"[A-Z]\w+(?: [A-Z]\w+)*")


class ChatServer(ScriptedEndpoint):
    """Finds capitalised words, each of which knows the next, unless it has a script."""

    def __init__(self) -> None:
        super().__init__()
        self.by_text: dict[str, Answer] = {}
        """Answers to passages with these words."""

    @property
    def texts(self) -> list[str]:
        return [request["messages"][-1]["content"] for request in self.requests]

    def usual(self, request: dict[str, Any]) -> Answer:
        text = request["messages"][-1]["content"]
        scripted = next((answer for words, answer in self.by_text.items() if words in text), None)
        names = list(dict.fromkeys(_NAME.findall(text)))
        entities = [{"name": name, "kind": "person"} for name in names]
        relations = [
            {"source": source, "kind": "knows", "target": target} for source, target in pairwise(names)
        ]
        body = graph_answer({"entities": entities, "relations": relations})
        return (scripted or Answer())._replace(body=scripted.body if scripted and scripted.body else body)


def graph_answer(found: object, **choice: Any) -> bytes:
    return completion(json.dumps(found), tokens=TOKENS_A_CALL, **choice)


def chat_server() -> AbstractContextManager[ChatServer]:
    return serving(ChatServer())
