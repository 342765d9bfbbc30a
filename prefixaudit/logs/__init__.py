"""Readers of request logs and traces, one file a format: bytes in, Request or Skipped out.

A format is a module that ends in `FORMAT = LogFormat(...)`; its name is what users type. Modules
that start with `_` are what formats share:

_options     ReadOptions
_paths       files, globs, folders, standard input
_bytes       gzip, zstd, UTF-16
_lines       chunks of whole lines in bounded memory
_file        LogFile: one file and its counts
_json_lines  records of JSON lines, and what becomes of damaged ones
_fields      typed looks into records
_times       times as seconds
_format      LogFormat, Sample, and the registry LOG_FORMATS
_stream      read_logs

The contract: every physical record gives at least one Request or exactly one Skipped, whose reason
holds no prompt text, salt or key. Line numbers count from 1 over all lines, blank ones too.
"""

from prefixaudit.logs._file import LogFile, Repair
from prefixaudit.logs._format import LOG_FORMATS, LogFormat
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._paths import FoundFile, find_files
from prefixaudit.logs._stream import IgnoredFile, LogStream, read_logs

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
    "read_logs",
]
