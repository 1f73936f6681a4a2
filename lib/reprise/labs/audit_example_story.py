"""The run that `reprise.labs.audit_examples` writes in every format.

A manager asks a search agent for two numbers; the search agent reports one of them with two digits swapped, and
everything after it is computed from that. The decisive error is the report. No model was asked: every line is ours.
"""

import json

TASK = "How many more people lived in Bergen than in Trondheim at the start of 2020?"
PLAN = "Find both populations, then subtract."
QUERY, CALL = {"query": "population 2020 Bergen Trondheim"}, "call_1"
FOUND = "Bergen 283929, Trondheim 205163 (1 January 2020)"
REPORT = "Bergen had 238929 inhabitants and Trondheim 205163."
SUM = {"expression": "238929 - 205163"}
DIFFERENCE = "33766"
ANSWER = "33766 more people lived in Bergen."
REASON = "Two digits of Bergen's population are swapped: the document says 283929."
START = 1_600_000_000  # seconds, of all logs with times


def function_call(id: str, name: str, arguments: dict) -> dict:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
