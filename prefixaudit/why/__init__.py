"""Why tokens aren't reused: where every token goes, what breaks prefixes, what a repair brings.

waterfall    every prompt token in one place, from the trace and the lookups
prefix_tree  the longest prefix that a prompt shares with any earlier one, in tokens
chunks       pieces of prompts that are found again wherever they stand
runs         a prompt and its relative, and the runs of tokens behind their parting
pairing      each prompt and the earlier one that it shares most with; told about prompts one by one
rendering    prompts as text, and which field of the request a character comes from
structure    two requests side by side as JSON: which field differs, and how
volatile     clocks, ids, paths and the like, around a place where two texts part
found        what is found where two prompts part
chat_changes how two chats differ: by the client's doing or by the template's
explaining   a pair's kind of difference, and the place
kinds        the kinds: whose doing each is, and what to change
grouping     equal differences over the log, and what to change
repairs      requests as they would be without a cause, for a replay (and history_repairs)

Nothing here keeps or returns prompt text: values hold names of fields, numbers and figures.
"""
