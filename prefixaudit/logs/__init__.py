"""Readers of request logs and traces, one file a format: bytes in, Request or Skipped out.

A format is a module that ends in `FORMAT = LogFormat(...)`; its name is what users type. Modules
that start with `_` are what formats share:

_options     ReadOptions
_paths       files, globs, folders, standard input
_bytes       gzip, zstd, UTF-16
_lines       chunks of whole lines in bounded memory
_file        LogFile: one file and its counts
_documents   records of one big JSON array, or of an object that wraps one
_json_lines  records of JSON lines and documents, and what becomes of damaged ones
_table       rows of CSV, JSON, Parquet and Arrow
_fields      typed looks into records
_times       times as seconds
_format      LogFormat, Sample, and the registry LOG_FORMATS
_stream      read_logs
_joining     answers in other lines or files, joined to their requests by id
_gateway     records with a body and an answer; _openai_body, _messages_body, _responses_body the
             APIs' prompts, _openai_response their answers and usage
_chats       prompts that observability tools stored: whole, cut, redacted or left out

The contract: every physical record gives at least one Request or exactly one Skipped, whose reason
holds no prompt text, salt or key, or is counted in `LogStream.set_aside`: an answer joined to its
request, a turn of a transcript, a span of another kind. Line numbers count from 1 over all lines,
blank ones too.
"""

from prefixaudit.logs._file import LogFile, Repair
from prefixaudit.logs._format import LOG_FORMATS, LogFormat
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._paths import FoundFile, find_files
from prefixaudit.logs._stream import IgnoredFile, LogStream, one_by_one, read_logs

__all__ = [
    "LOG_FORMATS",
    "FoundFile",
    "IgnoredFile",
    "LogFile",
    "LogFormat",
    "LogStream",
    "ReadOptions",
    "Repair",
    "find_files",
    "one_by_one",
    "read_logs",
]
